package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"idemproxy/internal/config"
	"idemproxy/internal/dedup"
)

// operation says which operation the request is to its rule.
func (e *explained) operation(cfg *config.Config, rule *dedup.Rule, r *http.Request, body []byte, head *dedup.Rejection) {
	request := dedup.Request{Method: r.Method, Target: r.RequestURI, Header: r.Header.Values, Body: body}
	e.fingerprint(rule.Fingerprint, request)
	e.Scope = scopeParts(rule, r)
	key, refused := rule.Key(r.Header.Values)
	e.Key = "given"
	if key == "" {
		e.Key = "missing"
	}
	switch {
	case refused != nil:
		e.answer(refused)
		return
	case key == "" && rule.MissingHeader == dedup.MissingPassThrough:
		e.Answer = "passes through unguarded, for it has no key (missing_header: pass-through)"
		return
	case key == "" && rule.MissingHeader == dedup.MissingReject:
		e.Answer = "is refused: missing_key"
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
	op, refused := rule.Operation(scope, key, request)
	switch {
	case int64(len(body)) > int64(rule.MaxRequestBody):
		e.Answer = "is refused: " + string(dedup.ReasonRequestTooLarge)
		return
	case refused != nil:
		e.answer(refused)
		return
	case key == "":
		e.Key = "derived, from key_from"
	}
	if op.TTL != 0 {
		e.Key += fmt.Sprintf("; it counts for %v", op.TTL)
	}
	if rule.Identity.JWT.Claim != "" {
		e.StoreKey = "depends on the caller whom the token names; explain verifies no tokens"
		return
	}
	if rule.Mode == dedup.ModeObserve {
		op = op.Observed()
	}
	e.KeyHash, e.StoreKey = string(op.ID), cfg.Store.KeyPrefix+string(op.ID)
}

func (e *explained) fingerprint(rule dedup.FingerprintRule, request dedup.Request) {
	e.Fingerprint, e.Covers = "none", "nothing is compared"
	if rule.Enabled {
		sum := rule.Of(request)
		e.Fingerprint, e.Covers = hex.EncodeToString(sum[:]), covers(rule, len(request.Body))
	}
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
