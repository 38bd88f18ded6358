package dedup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// A ruleCheck makes one thing wrong in a rule that is right.
type ruleCheck struct {
	change  func(*dedup.Rule)
	path    string
	message string // a fragment
}

func TestRuleChecks(t *testing.T) {
	for i, tc := range slices.Concat(matchChecks(), timeChecks(), headerChecks(), answerChecks(), fingerprintChecks()) {
		t.Run(fmt.Sprintf("%d_%s", i, tc.path), func(t *testing.T) {
			r := rule(t, nil)
			tc.change(r)
			faults := r.Validate()
			if len(faults) != 1 {
				t.Fatalf("faults %v, want one at %s", faults, tc.path)
			}
			if faults[0].Path != tc.path || !strings.Contains(faults[0].Message, tc.message) {
				t.Errorf("fault %q: %q, want %q: …%s…", faults[0].Path, faults[0].Message, tc.path, tc.message)
			}
		})
	}
}

func matchChecks() []ruleCheck {
	methods := func(m ...string) func(*dedup.Rule) { return func(r *dedup.Rule) { r.Methods = m } }
	checks := []ruleCheck{
		{func(r *dedup.Rule) { r.Name = "" }, "name", "needs a name"},
		{methods(), "methods", "at least one method"},
		{methods("POST", "post"), "methods[1]", "in capitals"},
		{methods("PO ST"), "methods[0]", "not a method"},
		{methods("POST", ""), "methods[1]", "not a method"},
		{methods("POST", "PUT", "POST"), "methods[2]", "POST is listed twice"},
		{func(r *dedup.Rule) { r.Path = "" }, "path", "begins with a slash"},
		{func(r *dedup.Rule) { r.Path = "payments" }, "path", "begins with a slash"},
		{func(r *dedup.Rule) { r.Path = "POST /payments" }, "path", "begins with a slash"},
		{func(r *dedup.Rule) { r.Host = "http://example.com" }, "host", "host name alone"},
		{func(r *dedup.Rule) { r.Host = "example.com/x" }, "host", "host name alone"},
		{func(r *dedup.Rule) { r.Host = "a b" }, "host", "host name alone"},
		{func(r *dedup.Rule) { r.Host = "example.com:8443" }, "host", "without a scheme, a port"},
		{func(r *dedup.Rule) { r.Host = "[::1]:8443" }, "host", "without a scheme, a port"},
		{func(r *dedup.Rule) { r.Mode = "" }, "mode", "must be enforce or observe or off"},
		{func(r *dedup.Rule) { r.Mode = "Enforce" }, "mode", "must be enforce or observe or off"},
	}
	for _, m := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"} {
		checks = append(checks, ruleCheck{methods("POST", m), "methods[1]", m + " changes nothing"})
	}
	return checks
}

func timeChecks() []ruleCheck {
	return []ruleCheck{
		{func(r *dedup.Rule) { r.TTL, r.Lease = 2*time.Millisecond, 3*time.Millisecond }, "lease", "shorter than ttl (2ms)"},
		{func(r *dedup.Rule) { r.Lease = r.TTL }, "lease", "shorter than ttl (24h"},
		{func(r *dedup.Rule) { r.Lease = 0 }, "lease", "more than 0"},
		{func(r *dedup.Rule) { r.Lease = -time.Second }, "lease", "more than 0"},
		{func(r *dedup.Rule) { r.Lease = 3*time.Millisecond - 1 }, "lease", "more than 0"},
		{func(r *dedup.Rule) { r.MaxKeyLength = 0 }, "max_key_length", "at least 1"},
		{func(r *dedup.Rule) { r.MaxKeyLength = -1 }, "max_key_length", "at least 1"},
		{func(r *dedup.Rule) { r.MaxScopeLength = 0 }, "max_scope_length", "at least 1"},
		{func(r *dedup.Rule) { r.MaxRequestBody = -1 }, "max_request_body", "not be negative"},
		{func(r *dedup.Rule) { r.MaxResponseBody = -1 }, "max_response_body", "not be negative"},
	}
}

func headerChecks() []ruleCheck {
	keys := func(names ...string) func(*dedup.Rule) { return func(r *dedup.Rule) { r.HeaderName = names } }
	identity := func(names ...string) func(*dedup.Rule) { return func(r *dedup.Rule) { r.Identity.Headers = names } }
	return []ruleCheck{
		{keys(), "header_name", "name the header"},
		{keys(""), "header_name", "not a header name"},
		{keys("Idempotency Key"), "header_name", "not a header name"},
		{keys("Idempotency-Key:"), "header_name", "not a header name"},
		{keys("Schlüssel"), "header_name", "not a header name"},
		{keys("A", "B", "a"), "header_name[2]", "listed twice"},
		{keys("A", "b c"), "header_name[1]", "not a header name"},
		{func(r *dedup.Rule) { r.IdentityHeader = "host" }, "identity_header", "Host is no header field"},
		{func(r *dedup.Rule) { r.TenantHeader = "Host" }, "tenant_header", "Host is no header field"},
		{func(r *dedup.Rule) { r.TenantHeader = "X Tenant" }, "tenant_header", "not a header name"},
		{func(r *dedup.Rule) { r.TenantHeader = "idempotency-key" }, "tenant_header", "key header too"},
		{func(r *dedup.Rule) { r.RequireTenant = new(true) }, "require_tenant", "no effect"},
		{func(r *dedup.Rule) { r.RequireTenant = new(false) }, "require_tenant", "no effect"},
		{func(r *dedup.Rule) { r.IdentityHeader = "X@Account" }, "identity_header", "not a header name"},
		{func(r *dedup.Rule) { r.IdentityHeader = "A"; r.Identity.Headers = []string{"B"} }, "identity_header", "set one of the two"},
		{func(r *dedup.Rule) { r.IdentityHeader = "IDEMPOTENCY-KEY" }, "identity_header", "key header too"},
		{func(r *dedup.Rule) { r.IdentityHeader = "X-A"; r.TenantHeader = "x-a" }, "identity_header", "tenant header too"},
		{identity("A", "Idempotency-Key"), "identity.headers[1]", "key header too"},
		{func(r *dedup.Rule) { identity("A", "X-T")(r); r.TenantHeader = "x-t" }, "identity.headers[1]", "tenant header too"},
		{identity("A", "a"), "identity.headers[1]", "listed twice"},
		{identity("A B"), "identity.headers[0]", "not a header name"},
		{func(r *dedup.Rule) { r.Identity.OnMissing = "pass" }, "identity.on_missing", "must be reject or anonymous"},
		{func(r *dedup.Rule) { r.Fingerprint.Headers = []string{"A", "/"} }, "fingerprint.headers[1]", "not a header name"},
		{func(r *dedup.Rule) { r.Fingerprint.Headers = []string{"A", "A"} }, "fingerprint.headers[1]", "listed twice"},
		{func(r *dedup.Rule) { r.ReplayScopeHeaders = []string{""} }, "replay_scope_headers[0]", "not a header name"},
		{func(r *dedup.Rule) { r.ReplayScopeHeaders = []string{"Cookie", "cookie"} }, "replay_scope_headers[1]", "listed twice"},
		{func(r *dedup.Rule) { r.DropResponseHeaders = []string{"Set Cookie"} }, "drop_response_headers[0]", "not a header name"},
		{func(r *dedup.Rule) { r.DropResponseHeaders = []string{"A", "B", "B"} }, "drop_response_headers[2]", "listed twice"},
		{func(r *dedup.Rule) { r.ReplayHeader = "X Replay" }, "replay_header", "not a header name"},
	}
}

func answerChecks() []ruleCheck {
	docs := func(url string) func(*dedup.Rule) { return func(r *dedup.Rule) { r.DocsURL = url } }
	return []ruleCheck{
		{func(r *dedup.Rule) { r.MissingHeader = "ignore" }, "missing_header", "must be reject or pass-through"},
		{func(r *dedup.Rule) { r.OnUnknownOutcome = "" }, "on_unknown_outcome", "must be hold or release"},
		{func(r *dedup.Rule) { r.OnStoreFailure = "pass" }, "on_store_failure", "must be reject or pass-through"},
		{func(r *dedup.Rule) { r.MismatchStatus = 400 }, "mismatch_status", "must be 422 or 409"},
		{func(r *dedup.Rule) { r.MismatchStatus = 0 }, "mismatch_status", "must be 422 or 409"},
		{func(r *dedup.Rule) { r.ReleaseStatuses = []dedup.StatusSet{"429", "4x"} }, "release_statuses[1]", "from 200 to 599"},
		{docs("/docs"), "docs_url", "absolute URL"},
		{docs("example.com"), "docs_url", "absolute URL"},
		{docs("https://"), "docs_url", "absolute URL"},
		{docs("https://example.com/a>b"), "docs_url", "absolute URL"},
		{docs(`https://example.com/"`), "docs_url", "absolute URL"},
		{docs("https://example.com/a b"), "docs_url", "absolute URL"},
		{docs("https://exa\nmple.com/"), "docs_url", "absolute URL"},
	}
}

func fingerprintChecks() []ruleCheck {
	parts := func(p ...dedup.Part) func(*dedup.Rule) { return func(r *dedup.Rule) { r.Fingerprint.Parts = p } }
	return []ruleCheck{
		{func(r *dedup.Rule) { r.Fingerprint.Body = "" }, "fingerprint.body", "must be exact"},
		{parts("method", "host"), "fingerprint.parts[1]", "must be method or path or query or body"},
		{parts("method", "body", "method"), "fingerprint.parts[2]", "listed twice"},
		{parts(), "fingerprint.parts", "enabled: false"},
	}
}

// TestRuleChecksAllowed is what must not be refused.
func TestRuleChecksAllowed(t *testing.T) {
	for name, change := range map[string]func(*dedup.Rule){
		"other methods":       func(r *dedup.Rule) { r.Methods = []string{"POST", "LOCK", "M-SEARCH"} },
		"host":                func(r *dedup.Rule) { r.Host = "api.example.com" },
		"root":                func(r *dedup.Rule) { r.Path = "/" },
		"wildcards":           func(r *dedup.Rule) { r.Path = "/a/{id}/{rest...}" },
		"off":                 func(r *dedup.Rule) { r.Mode = dedup.ModeOff },
		"shortest times":      func(r *dedup.Rule) { r.TTL, r.Lease = 4*time.Millisecond, 3*time.Millisecond },
		"bounds of 1":         func(r *dedup.Rule) { r.MaxKeyLength, r.MaxScopeLength = 1, 1 },
		"no bodies":           func(r *dedup.Rule) { r.MaxRequestBody, r.MaxResponseBody = 0, 0 },
		"aliases":             func(r *dedup.Rule) { r.HeaderName = dedup.Names{"Idempotency-Key", "X_Key", "!#$%&'*+-.^_`|~09azAZ"} },
		"tenant":              func(r *dedup.Rule) { r.TenantHeader = "X-T" },
		"tenant not required": func(r *dedup.Rule) { r.TenantHeader, r.RequireTenant = "X-T", new(false) },
		"identity":            func(r *dedup.Rule) { r.IdentityHeader = "X-A" },
		"identities": func(r *dedup.Rule) {
			r.Identity.Headers, r.Identity.OnMissing = []string{"X-A", "X-B"}, "anonymous"
		},
		"no replay header":            func(r *dedup.Rule) { r.ReplayHeader = "" },
		"no replay scope":             func(r *dedup.Rule) { r.ReplayScopeHeaders = nil },
		"identity in the fingerprint": func(r *dedup.Rule) { r.IdentityHeader, r.Fingerprint.Headers = "X-A", []string{"X-A"} },
		"only headers":                func(r *dedup.Rule) { r.Fingerprint.Parts, r.Fingerprint.Headers = nil, []string{"X-A"} },
		"fingerprint off":             func(r *dedup.Rule) { r.Fingerprint.Enabled, r.Fingerprint.Parts = false, nil },
		"mismatch 409":                func(r *dedup.Rule) { r.MismatchStatus = 409 },
		"no release statuses":         func(r *dedup.Rule) { r.ReleaseStatuses = nil },
		"docs":                        func(r *dedup.Rule) { r.DocsURL = "https://example.com/docs?a=b#c" },
		"policies": func(r *dedup.Rule) {
			r.MissingHeader, r.OnUnknownOutcome, r.OnStoreFailure = "pass-through", "release", "pass-through"
		},
	} {
		t.Run(name, func(t *testing.T) { rule(t, change) })
	}
}

// TestRuleTTL: what is wrong with a ttl that short is wrong with the lease too.
func TestRuleTTL(t *testing.T) {
	for _, ttl := range []time.Duration{0, -time.Hour, time.Millisecond - 1} {
		r := rule(t, nil)
		r.TTL = ttl
		if faults := r.Validate(); len(faults) != 2 || faults[0].Path != "ttl" || !strings.Contains(faults[0].Message, "at least 1ms") || faults[1].Path != "lease" {
			t.Errorf("ttl %v: faults %v", ttl, faults)
		}
	}
}

// TestRuleFaultsComeAllAtOnce: one Validate names everything that is wrong.
func TestRuleFaultsComeAllAtOnce(t *testing.T) {
	r := rule(t, nil)
	r.Name, r.Path, r.Mode, r.Lease, r.HeaderName, r.MismatchStatus, r.Fingerprint.Body = "", "x", "on", 0, dedup.Names{"a b"}, 1, "xml"
	var got []string
	for _, f := range r.Validate() {
		got = append(got, f.Path)
	}
	if want := []string{"name", "path", "mode", "lease", "header_name", "mismatch_status", "fingerprint.body"}; !slices.Equal(got, want) {
		t.Errorf("faults at %v, want %v", got, want)
	}
	if (&dedup.Rule{}).Validate() == nil {
		t.Error("an empty rule is right")
	}
}
