package main

import (
	"bytes"
	"context"
	"encoding/hex"
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
	"idemproxy/internal/dedup"
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
			r, content, err := explainable(args[0], args[1], headers, body)
			if err != nil {
				return err
			}
			e := explain(cfg, r, content)
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(e)
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
func explainable(method, target string, headers []string, body string) (*http.Request, []byte, error) {
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
	r, err := http.NewRequestWithContext(context.Background(), method, target, bytes.NewReader(content))
	if err != nil || !strings.HasPrefix(r.URL.Path, "/") {
		return nil, nil, usageError{errors.New("the request is a method and a path, such as POST /api/payments?x=1, or a URL")}
	}
	r.RequestURI = r.URL.RequestURI()
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, nil, usageError{errors.New("a header is written 'Name: value'")}
		}
		if strings.EqualFold(name, "Host") {
			r.Host = strings.TrimSpace(value)
			continue
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	return r, content, nil
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

// operation says which operation the request is to its rule.
func (e *explained) operation(cfg *config.Config, rule *dedup.Rule, r *http.Request, body []byte, head *dedup.Rejection) {
	e.Fingerprint, e.Covers = "none", "nothing is compared"
	if rule.Fingerprint.Enabled {
		sum := rule.Fingerprint.Of(dedup.Request{Method: r.Method, Target: r.RequestURI, Header: r.Header.Values, Body: body})
		e.Fingerprint, e.Covers = hex.EncodeToString(sum[:]), covers(rule.Fingerprint, len(body))
	}
	e.Scope = scopeParts(rule, r)
	key, refused := rule.Key(r.Header.Values)
	switch {
	case refused != nil:
		e.answer(refused)
		return
	case key == "" && rule.MissingHeader == dedup.MissingPassThrough:
		e.Key, e.Answer = "missing", "passes through unguarded, for it has no key (missing_header: pass-through)"
		return
	case key == "" && rule.MissingHeader == dedup.MissingReject:
		e.Key, e.Answer = "missing", "is refused: missing_key"
		return
	case head != nil:
		e.answer(head)
		return
	}
	scope, refused := rule.Scope(r.Header.Values, unverified(rule, r))
	if refused != nil {
		e.answer(refused)
		return
	}
	op, refused := rule.Operation(scope, key, dedup.Request{Method: r.Method, Target: r.RequestURI, Header: r.Header.Values, Body: body})
	switch {
	case int64(len(body)) > int64(rule.MaxRequestBody):
		e.Answer = "is refused: " + string(dedup.ReasonRequestTooLarge)
		return
	case refused != nil:
		e.answer(refused)
		return
	case key == "":
		e.Key = "derived, from key_from"
	default:
		e.Key = "given"
	}
	if op.TTL != 0 {
		e.Key += fmt.Sprintf("; it counts for %v", op.TTL)
	}
	if rule.Identity.JWT.Claim != "" {
		e.StoreKey = "depends on the caller whom the token names; explain verifies no tokens"
		return
	}
	e.KeyHash, e.StoreKey = string(op.ID), cfg.Store.KeyPrefix+string(op.ID)
}

// unverified stands for the caller whom the request's token may name; nil if it has no
// credentials that could.
func unverified(rule *dedup.Rule, r *http.Request) *dedup.Subject {
	if rule.Identity.JWT.Claim == "" || r.Header.Get("Authorization") == "" {
		return nil
	}
	return &dedup.Subject{Claim: rule.Identity.JWT.Claim}
}

func (e *explained) answer(refused *dedup.Rejection) {
	e.Answer = fmt.Sprintf("is refused: %s. %s", refused.Reason, refused.Detail)
}

// covers says what a fingerprint is made of.
func covers(f dedup.FingerprintRule, length int) string {
	var parts []string
	for _, p := range f.Parts {
		part := string(p)
		if p == dedup.PartBody {
			part = fmt.Sprintf("body (%s, %d bytes)", f.Body, length)
		}
		parts = append(parts, part)
	}
	for _, h := range f.Headers {
		parts = append(parts, "header "+h)
	}
	return strings.Join(parts, ", ")
}

// scopeParts names what makes the scope, and whether the request has it.
func scopeParts(rule *dedup.Rule, r *http.Request) []string {
	var parts []string
	add := func(what string, given bool) {
		state := "missing"
		if given {
			state = "given"
		}
		parts = append(parts, what+": "+state)
	}
	if rule.Version != "" {
		add("version "+rule.Version, true)
	}
	if rule.ScopeByRoute {
		add("route "+rule.Name, true)
	}
	if rule.TenantHeader != "" {
		add("tenant "+rule.TenantHeader, r.Header.Get(rule.TenantHeader) != "")
	}
	for _, h := range rule.IdentityHeaders() {
		add("identity "+h, r.Header.Get(h) != "")
	}
	if claim := rule.Identity.JWT.Claim; claim != "" {
		add("token with the claim "+claim, r.Header.Get("Authorization") != "")
	}
	return parts
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
