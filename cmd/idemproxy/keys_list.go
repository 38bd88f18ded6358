package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"idemproxy/internal/dedup"
)

// keysAtOnce is how many keys are asked for at a time.
const keysAtOnce = 500

func newKeysList() *cobra.Command {
	var k keysFlags
	var f filterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys that are known",
		Long: `List the keys that are known, in no particular order and by their hashes: the keys
themselves are nowhere. It reads the store page by page and holds nobody up. With --json
each line is an object.

By --route only what is known to be of the route is listed; --older-than goes by the clock
of the proxy that claimed the key or recorded its answer.`,
		Example: "  idemproxy keys list -c idemproxy.yaml --state unknown --older-than 1h",
		Args:    cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(k.route, dedup.KeyStates()...)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usageError{errors.New("--limit: must not be negative")}
			}
			cfg, err := k.load()
			if err != nil {
				return err
			}
			return k.at(cmd.Context(), cfg, func(d desk) error { return listKeys(cmd, d, filter, limit, k.json) })
		}),
	}
	k.addCommon(cmd)
	k.addRoute(cmd, "only keys of the route of this `name`")
	f.add(cmd, dedup.KeyStates()...)
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after this many keys; 0 means all")
	return cmd
}

func listKeys(cmd *cobra.Command, d desk, f dedup.Filter, limit int, asJSON bool) error {
	out := keyLines{w: cmd.OutOrStdout(), json: asJSON}
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.clear()
	listed := map[dedup.ID]bool{} // a store that rearranges itself names some twice
	looked := 0
	for cursor := ""; ; {
		page, err := d.List(cmd.Context(), f, cursor, keysAtOnce)
		if err != nil {
			return err
		}
		progress.clear()
		for _, k := range page.Keys {
			if listed[k.ID] {
				continue
			}
			if err := out.print(k); err != nil {
				return err
			}
			if listed[k.ID] = true; len(listed) == limit {
				return nil
			}
		}
		looked += page.Looked
		progress.say("%d keys looked at, %d listed", looked, len(listed))
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// keyLines prints keys, a line each, as they come.
type keyLines struct {
	w     io.Writer
	json  bool
	begun bool
}

func (l *keyLines) print(k dedup.Known) error {
	if l.json {
		return json.NewEncoder(l.w).Encode(k)
	}
	const line = "%-43s  %-11s  %10s  %10s  %10s  %6s  %9s  %-20s  %s\n"
	if !l.begun {
		l.begun = true
		if _, err := fmt.Fprintf(l.w, line, "KEY_HASH", "STATE", "AGE", "LEASE LEFT", "TTL LEFT", "STATUS", "BYTES", "ROUTE", "OWNER"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(l.w, line, k.ID, k.State, or(age(k)), or(left(k.LeaseLeft)), or(left(k.TTLLeft)), or(status(k)),
		fmt.Sprint(k.Size), or(plain(k.Route)), or(plain(k.Replica)))
	return err
}

// or is a hyphen for what is not known, so that columns stay columns.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
