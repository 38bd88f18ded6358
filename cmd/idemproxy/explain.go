package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
	"idemproxy/internal/proxy"
)

// explained is what explain says; --json prints it as it is.
type explained struct {
	Request     string           `json:"request"`
	Route       string           `json:"route,omitempty"`
	DefinedAt   string           `json:"defined_at,omitempty"`
	Others      []otherRoute     `json:"others"`
	Settings    []config.Setting `json:"settings,omitempty"`
	Key         string           `json:"key,omitempty"`
	Scope       []string         `json:"scope,omitempty"`
	Fingerprint string           `json:"fingerprint,omitempty"`
	Covers      string           `json:"fingerprint_covers,omitempty"`
	StoreKey    string           `json:"store_key,omitempty"`
	KeyHash     string           `json:"key_hash,omitempty"`
	Answer      string           `json:"answer,omitempty"`
}

type otherRoute struct {
	Route string `json:"route"`
	Why   string `json:"why"`
	Close bool   `json:"close"`
}

func newExplain() *cobra.Command {
	var s settings
	var headers []string
	var body string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH",
		Short: "Say what the configuration makes of a request",
		Long: `Say which route guards a request and which others came close, every effective setting
and where it was set, the scope, the fingerprint and the key in the store. Nothing is sent
and no store is opened; no value of a header is printed.`,
		Example: "  idemproxy explain -c idemproxy.yaml POST /api/payments -H 'Idempotency-Key: k1' -H 'X-Account: a' --body payment.json",
		Args:    cobra.ExactArgs(2),
		RunE: running(func(cmd *cobra.Command, args []string) error {
			cfg, err := s.load()
			if err != nil {
				return err
			}
			r, content, err := explainable(cmd.Context(), args[0], args[1], headers, body)
			if err != nil {
				return err
			}
			e := explain(cfg, r, content)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), e)
			}
			return e.print(cmd.OutOrStdout())
		}),
	}
	s.addConfig(cmd)
	s.addOverrides(cmd)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a `header` of the request, as 'Name: value'; may be repeated")
	cmd.Flags().StringVar(&body, "body", "", "`file` with the body of the request, - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// explainable makes the request to explain.
func explainable(ctx context.Context, method, target string, headers []string, body string) (*http.Request, []byte, error) {
	var content []byte
	var err error
	switch body {
	case "":
	case "-":
		content, err = io.ReadAll(os.Stdin)
	default:
		content, err = os.ReadFile(body)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the body: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(content))
	if err != nil || !strings.HasPrefix(r.URL.Path, "/") {
		return nil, nil, usageError{errors.New("the request is a method and a path, such as POST /api/payments?x=1, or a URL")}
	}
	r.RequestURI = r.URL.RequestURI()
	for _, h := range headers {
		name, value, err := headerFlag(h)
		if err != nil {
			return nil, nil, err
		}
		if strings.EqualFold(name, "Host") {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r, content, nil
}

// headerFlag reads the value of a --header.
func headerFlag(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		return "", "", usageError{errors.New("--header: a header is written 'Name: value'")}
	}
	return name, strings.TrimSpace(value), nil
}

func explain(cfg *config.Config, r *http.Request, body []byte) explained {
	e := explained{Request: r.Method + " " + r.URL.Path}
	found := proxy.Explain(cfg.Routes, r)
	for _, o := range found.Others {
		e.Others = append(e.Others, otherRoute{cfg.Routes[o.Route].Name, o.Why, o.Close})
	}
	if found.Route < 0 {
		e.Answer = "passes through unguarded"
		return e
	}
	rule := &cfg.Routes[found.Route]
	e.Route, e.DefinedAt = rule.Name, cfg.Origin(fmt.Sprintf("routes[%d]", found.Route))
	e.Settings = cfg.RouteSettings(found.Route)
	e.operation(cfg, rule, r, body, found.Refused)
	return e
}

// print writes the explanation for people.
func (e explained) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if e.Route == "" {
		fmt.Fprintf(out, "%s: no route guards it; it %s\n", e.Request, e.Answer)
	} else {
		fmt.Fprintf(out, "%s: route %s (%s)\n", e.Request, e.Route, e.DefinedAt)
	}
	heading := "\nOther routes that came close\n"
	for _, o := range e.Others {
		if o.Close {
			fmt.Fprintf(out, "%s  %s\t%s\n", heading, o.Route, o.Why)
			heading = ""
		}
	}
	if e.Route == "" {
		return out.Flush()
	}
	fmt.Fprintln(out, "\nSettings")
	for _, s := range e.Settings {
		fmt.Fprintf(out, "  %s\t%s\t%s\n", s.Path, value(s.Value), s.From)
	}
	fmt.Fprintln(out, "\nThis request")
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "  %s\t%s\n", name, text)
		}
	}
	row("key", e.Key)
	for _, part := range e.Scope {
		row("scope", part)
	}
	row("fingerprint", e.Fingerprint)
	row("", "of "+e.Covers)
	row("store key", e.StoreKey)
	row("key_hash in logs", e.KeyHash)
	row("answer", e.Answer)
	return out.Flush()
}

// value is a setting on one line.
func value(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	if s, ok := v.(string); ok && s != "" {
		return s
	}
	return string(text)
}
