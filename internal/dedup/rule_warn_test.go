package dedup_test

import (
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

func TestSettingsWithoutEffect(t *testing.T) {
	off := func(r *dedup.Rule) { r.Fingerprint.Enabled = false }
	for _, tc := range []struct {
		path  string
		set   func(*dedup.Rule)
		needs func(*dedup.Rule)
	}{
		{"wait_timeout", func(r *dedup.Rule) { r.WaitTimeout++ }, func(r *dedup.Rule) { r.InFlight = dedup.InFlightWait }},
		{"replay_auth.timeout", func(r *dedup.Rule) { r.ReplayAuth.Timeout++ }, func(r *dedup.Rule) { r.ReplayAuth.URL = "http://a" }},
		{"identity.on_missing", func(r *dedup.Rule) { r.Identity.OnMissing = dedup.IdentityAnonymous }, func(r *dedup.Rule) { r.Identity.Headers = []string{"X-A"} }},
		{"identity.on_missing", func(r *dedup.Rule) { r.Identity.OnMissing = dedup.IdentityAnonymous }, func(r *dedup.Rule) { r.Identity.JWT.Claim = "sub" }},
		{"identity.jwt.on_invalid", func(r *dedup.Rule) { r.Identity.JWT.OnInvalid = dedup.InvalidMissing }, func(r *dedup.Rule) { r.Identity.JWT.Claim = "sub" }},
		{"max_scope_length", func(r *dedup.Rule) { r.MaxScopeLength++ }, func(r *dedup.Rule) { r.TenantHeader = "X-T" }},
		{"fingerprint.body", func(r *dedup.Rule) { r.Fingerprint.Body, r.Fingerprint.Parts = dedup.BodyJSON, []dedup.Part{"path"} }, func(r *dedup.Rule) { r.Fingerprint.Parts = []dedup.Part{"body"} }},
		{"fingerprint.parts", func(r *dedup.Rule) { off(r); r.Fingerprint.Parts = []dedup.Part{"body"} }, func(r *dedup.Rule) { r.Fingerprint.Enabled = true }},
		{"mismatch_status", func(r *dedup.Rule) { off(r); r.MismatchStatus = 409 }, func(r *dedup.Rule) { r.Fingerprint.Enabled = true }},
	} {
		r := rule(t, tc.set)
		if got := r.WithoutEffect(); len(got) != 1 || got[0].Path != tc.path || !strings.HasPrefix(got[0].Message, "has no effect") {
			t.Errorf("%s: %v", tc.path, got)
		}
		if tc.needs(r); len(r.WithoutEffect()) > 0 {
			t.Errorf("%s, with what it needs: %v", tc.path, r.WithoutEffect())
		}
	}
	if got := rule(t, nil).WithoutEffect(); len(got) > 0 {
		t.Errorf("the defaults: %v", got)
	}
}
