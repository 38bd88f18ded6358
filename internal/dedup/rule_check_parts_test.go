package dedup_test

import (
	"slices"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// TestRulePartsChecked: each change makes exactly one thing wrong, said at its place.
func TestRulePartsChecked(t *testing.T) {
	derive := func(sources ...dedup.KeySource) func(*dedup.Rule) {
		return func(r *dedup.Rule) { r.MissingHeader, r.KeyFrom = dedup.MissingDerive, sources }
	}
	token := func(change func(*dedup.JWT)) func(*dedup.Rule) {
		return func(r *dedup.Rule) {
			r.Identity.JWT.Claim, r.Identity.JWT.SecretFile = "sub", "/secret"
			change(&r.Identity.JWT)
		}
	}
	codes := func(reason dedup.Reason, code string) func(*dedup.Rule) {
		return func(r *dedup.Rule) { r.Errors.Codes = map[dedup.Reason]string{reason: code} }
	}
	header := dedup.KeySource{Header: "X-Event"}
	for _, tc := range []struct {
		change func(*dedup.Rule)
		path   string // "" when nothing is wrong
	}{
		{derive(header, dedup.KeySource{JSON: "/id"}, dedup.KeySource{Query: "id"}, dedup.KeySource{Form: "id"}, dedup.KeySource{Fingerprint: time.Second}), ""},
		{derive(), "key_from"},
		{func(r *dedup.Rule) { r.KeyFrom = []dedup.KeySource{header} }, "key_from"},
		{derive(header, dedup.KeySource{}), "key_from[1]"},
		{derive(dedup.KeySource{Header: "X-A", Query: "a"}), "key_from[0]"},
		{derive(dedup.KeySource{Header: "X A"}), "key_from[0].header"},
		{derive(dedup.KeySource{Header: "idempotency-key"}), "key_from[0].header"},
		{derive(dedup.KeySource{JSON: "id"}), "key_from[0].json"},
		{derive(dedup.KeySource{JSON: "/a~2"}), "key_from[0].json"},
		{derive(dedup.KeySource{Fingerprint: -time.Second}), "key_from[0].fingerprint"},
		{derive(dedup.KeySource{Fingerprint: time.Second}, header), "key_from[0].fingerprint"},

		{token(func(*dedup.JWT) {}), ""},
		{token(func(j *dedup.JWT) { j.SecretFile = "" }), "identity.jwt"},
		{token(func(j *dedup.JWT) { j.JWKSFile = "/keys" }), "identity.jwt"},
		{token(func(j *dedup.JWT) { j.Claim = "" }), "identity.jwt"},
		{token(func(j *dedup.JWT) { j.OnInvalid = "pass" }), "identity.jwt.on_invalid"},
		{token(func(j *dedup.JWT) { j.SecretFile, j.JWKSURL = "", "id.example.com" }), "identity.jwt.jwks_url"},

		{codes(dedup.ReasonKeyReuse, "IDEMPOTENCY_CONFLICT"), ""},
		{codes("key_resue", "X"), "errors.codes.key_resue"},
		{codes(dedup.ReasonKeyReuse, ""), "errors.codes.key_reuse"},
		{codes(dedup.ReasonKeyReuse, "A B"), "errors.codes.key_reuse"},
		{func(r *dedup.Rule) { r.Errors.Format = "xml" }, "errors.format"},

		{func(r *dedup.Rule) {
			r.Fingerprint.Body, r.Fingerprint.Ignore = dedup.BodyJSON, []string{"/a/0", "/x~1y"}
		}, ""},
		{func(r *dedup.Rule) { r.Fingerprint.Body, r.Fingerprint.Ignore = dedup.BodyJSON, []string{"/a", "b"} }, "fingerprint.ignore[1]"},
		{func(r *dedup.Rule) { r.Fingerprint.Ignore = []string{"/a"} }, "fingerprint.ignore"},
		{func(r *dedup.Rule) { r.Fingerprint.Enabled, r.Fingerprint.Headers = false, []string{"X-A"} }, "fingerprint.enabled"},

		{func(r *dedup.Rule) { r.InFlight = "queue" }, "in_flight"},
		{func(r *dedup.Rule) { r.WaitTimeout = 0 }, "wait_timeout"},
		{func(r *dedup.Rule) { r.ReplayAuth.URL = "auth:9000" }, "replay_auth.url"},
		{func(r *dedup.Rule) { r.ReplayAuth.Timeout = 0 }, "replay_auth.timeout"},
		{func(r *dedup.Rule) { r.MaxLiveKeysPerScope = -1 }, "max_live_keys_per_scope"},
	} {
		r := rule(t, nil)
		tc.change(r)
		var got, want []string
		for _, f := range r.Validate() {
			got = append(got, f.Path)
		}
		if tc.path != "" {
			want = []string{tc.path}
		}
		if !slices.Equal(got, want) {
			t.Errorf("faults at %q, want %q", got, want)
		}
	}
}
