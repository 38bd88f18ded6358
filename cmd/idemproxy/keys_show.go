package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"idemproxy/internal/dedup"
)

func newKeysShow() *cobra.Command {
	var k keysFlags
	var body bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Tell what is known of a key",
		Long: `Tell what is known of a key: its state, its age, who executes it or did, how long its
lease and its record will last, the status and the size of the recorded answer. The
answer itself, headers and body, is printed only with --body.`,
		Example: `  idemproxy keys show -c idemproxy.yaml --route payments --key order-17 -H 'X-Account: a'
  idemproxy keys show -c idemproxy.yaml --hash 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU`,
		Args: cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			cfg, err := k.load()
			if err != nil {
				return err
			}
			id, err := k.id(cfg)
			if err != nil {
				return err
			}
			return k.at(cmd.Context(), cfg, func(d desk) error {
				known, err := d.Show(cmd.Context(), id, body)
				if err != nil {
					return err
				}
				if k.json {
					return printJSON(cmd.OutOrStdout(), known)
				}
				return printKnown(cmd.OutOrStdout(), known)
			})
		}),
	}
	k.addCommon(cmd)
	k.addKey(cmd)
	k.addRoute(cmd, "`name` of the key's route")
	cmd.Flags().BoolVar(&body, "body", false, "print the recorded answer too, headers and body")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// printKnown writes what is known of a key for people.
func printKnown(w io.Writer, k dedup.Known) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "%s\t%s\n", name, text)
		}
	}
	row("key_hash", string(k.ID))
	row("state", string(k.State))
	if k.State == dedup.KeyFree {
		return out.Flush()
	}
	row("route", plain(k.Route))
	row("owner", plain(k.Replica))
	if !k.Since.IsZero() {
		row("age", age(k)+" (since "+k.Since.Format(time.RFC3339)+")")
	}
	row("lease left", left(k.LeaseLeft))
	row("ttl left", left(k.TTLLeft))
	row("status", status(k))
	if k.NotStored {
		row("answer", "was too large to keep")
	}
	row("size", fmt.Sprintf("%d bytes", k.Size))
	if err := out.Flush(); err != nil || k.Response == nil {
		return err
	}
	return printResponse(w, k.Response)
}

// printResponse writes a recorded answer, with what would steer a terminal made harmless
// where there is one.
func printResponse(w io.Writer, r *dedup.Response) error {
	fmt.Fprintln(w)
	printFields(w, r.Header)
	fmt.Fprintln(w)
	body := string(r.Body)
	if isTerminal(w) {
		body = printable(body, "\n\t")
	}
	if _, err := io.WriteString(w, body); err != nil {
		return err
	}
	if len(r.Body) > 0 && !strings.HasSuffix(body, "\n") {
		fmt.Fprintln(w)
	}
	printFields(w, r.Trailer)
	return nil
}

func printFields(w io.Writer, fields dedup.Fields) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, value := range fields[name] {
			fmt.Fprintf(w, "%s: %s\n", plain(name), plain(value))
		}
	}
}

// age is how long ago a key was claimed or completed.
func age(k dedup.Known) string {
	if k.Since.IsZero() {
		return ""
	}
	return max(0, time.Since(k.Since)).Truncate(time.Second).String()
}

func left(s dedup.Seconds) string {
	switch d := time.Duration(s); {
	case d <= 0:
		return ""
	case d < time.Second:
		return "<1s"
	default:
		return d.Truncate(time.Second).String()
	}
}

func status(k dedup.Known) string {
	if k.Status == 0 {
		return ""
	}
	return fmt.Sprint(k.Status)
}

// summary is a key in one line, for who has just freed it.
func summary(k dedup.Known) string {
	var more []string
	add := func(name, text string) {
		if text != "" {
			more = append(more, name+" "+text)
		}
	}
	add("route", plain(k.Route))
	add("owner", plain(k.Replica))
	add("age", age(k))
	add("lease left", left(k.LeaseLeft))
	add("status", status(k))
	return fmt.Sprintf("%s (it was %s)", k.ID, strings.Join(append([]string{string(k.State)}, more...), ", "))
}

// plain makes text of a store harmless to a terminal.
func plain(s string) string { return printable(s, "") }

// printable replaces what is not printable, but for some characters.
func printable(s, but string) string {
	return strings.Map(func(c rune) rune {
		if c == '\uFFFD' || !strings.ContainsRune(but, c) && (c < ' ' || c >= 0x7F && c < 0xA0) {
			return '?'
		}
		return c
	}, s)
}
