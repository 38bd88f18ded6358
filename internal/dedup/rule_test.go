package dedup_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

func TestDefaultRule(t *testing.T) {
	r := dedup.DefaultRule()
	var paths []string
	for _, f := range r.Validate() {
		paths = append(paths, f.Path)
	}
	if want := []string{"name", "path"}; !slices.Equal(paths, want) {
		t.Errorf("faults of the default rule at %v, want %v: only those have no default", paths, want)
	}
	rule(t, nil) // with both it is clean

	one, two := dedup.DefaultRule(), dedup.DefaultRule()
	one.Methods[0], one.HeaderName[0], one.ReleaseStatuses[0], one.Fingerprint.Parts[0], one.ReplayScopeHeaders[0] = "X", "X", "X", "X", "X"
	if two.Methods[0] != "POST" || two.HeaderName[0] != "Idempotency-Key" || two.ReleaseStatuses[0] != "401" || two.Fingerprint.Parts[0] != "method" || two.ReplayScopeHeaders[0] != "Authorization" {
		t.Error("two default rules share a list")
	}
}

// TestRuleDefaultsAreTheContract is contract §5.
func TestRuleDefaultsAreTheContract(t *testing.T) {
	r := dedup.DefaultRule()
	for name, ok := range map[string]bool{
		"methods":              slices.Equal(r.Methods, []string{"POST", "PUT", "PATCH", "DELETE"}),
		"host":                 r.Host == "",
		"mode":                 r.Mode == "enforce",
		"header_name":          slices.Equal(r.HeaderName, []string{"Idempotency-Key"}),
		"ttl":                  r.TTL == 24*time.Hour,
		"lease":                r.Lease == 30*time.Second,
		"missing_header":       r.MissingHeader == "reject",
		"max_key_length":       r.MaxKeyLength == 255,
		"max_scope_length":     r.MaxScopeLength == 255,
		"version":              r.Version == "",
		"tenant_header":        r.TenantHeader == "" && r.RequireTenant == nil,
		"identity_header":      r.IdentityHeader == "" && len(r.Identity.Headers) == 0 && r.Identity.OnMissing == "reject",
		"scope_by_route":       !r.ScopeByRoute,
		"fingerprint":          r.Fingerprint.Enabled && slices.Equal(r.Fingerprint.Parts, []dedup.Part{"method", "path", "query", "body"}) && r.Fingerprint.Body == "exact" && len(r.Fingerprint.Headers) == 0,
		"mismatch_status":      r.MismatchStatus == 422,
		"replay_scope_headers": slices.Equal(r.ReplayScopeHeaders, []string{"Authorization"}),
		"on_unknown_outcome":   r.OnUnknownOutcome == "hold",
		"release_statuses":     slices.Equal(r.ReleaseStatuses, []dedup.StatusSet{"401", "429"}),
		"docs_url":             r.DocsURL == "",
		"on_store_failure":     r.OnStoreFailure == "reject",
		"replay_header":        r.ReplayHeader == "X-Idempotent-Replay",
		"forward_key":          r.ForwardKey,
		"max_request_body":     r.MaxRequestBody == 1<<20,
		"max_response_body":    r.MaxResponseBody == 1<<20,
		"drop_response_header": len(r.DropResponseHeaders) == 0,
	} {
		if !ok {
			t.Errorf("the default of %s is not the contract's", name)
		}
	}
}

func TestRuleHeaders(t *testing.T) {
	short := dedup.Rule{IdentityHeader: "X-Account"}
	long := dedup.Rule{Identity: dedup.Identity{Headers: []string{"X-Account", "X-User"}}}
	if got := short.IdentityHeaders(); !slices.Equal(got, []string{"X-Account"}) {
		t.Errorf("identity_header: %v", got)
	}
	if got := long.IdentityHeaders(); !slices.Equal(got, []string{"X-Account", "X-User"}) {
		t.Errorf("identity.headers: %v", got)
	}
	for _, tc := range []struct {
		header  string
		require *bool
		want    bool
	}{{"", nil, false}, {"", new(true), false}, {"X-T", nil, true}, {"X-T", new(true), true}, {"X-T", new(false), false}} {
		r := dedup.Rule{TenantHeader: tc.header, RequireTenant: tc.require}
		if got := r.TenantRequired(); got != tc.want {
			t.Errorf("tenant %q: required %v, want %v", tc.header, got, tc.want)
		}
	}
}

func TestStatusSet(t *testing.T) {
	for _, tc := range []struct {
		set  dedup.StatusSet
		in   []int
		out  []int
		good bool
	}{
		{"429", []int{429}, []int{428, 430, 42, 4290, 329, 529, 0, -429}, true},
		{"400", []int{400}, []int{401, 500, 40}, true},
		{"5xx", []int{500, 502, 555, 599}, []int{499, 600, 50, 5000, 5}, true},
		{"2xx", []int{200, 299}, []int{199, 300}, true},
		{"4xx", []int{400, 404, 499}, []int{399, 500}, true},
		{"599", []int{599}, []int{598}, true},
		{"600", nil, []int{200}, false},
		{"1xx", nil, []int{200}, false},
		{"100", nil, []int{200}, false},
		{"5XX", nil, []int{500, 599}, false},
		{"4x1", nil, []int{401, 411, 421}, false},
		{"x00", nil, []int{200}, false},
		{"41:", nil, []int{410, 411}, false},
		{"4/9", nil, []int{409}, false},
		{"", nil, []int{200}, false},
		{"40", nil, []int{400, 40}, false},
		{"4290", nil, []int{429, 4290}, false},
		{"xxx", nil, []int{200}, false},
		{" 29", nil, []int{229}, false},
		{"-29", nil, []int{229}, false},
	} {
		r := rule(t, nil)
		r.ReleaseStatuses = []dedup.StatusSet{"418", tc.set}
		faults := r.Validate()
		if good := len(faults) == 0; good != tc.good || !good && faults[0].Path != "release_statuses[1]" {
			t.Errorf("%q: faults %v, want none: %v", tc.set, faults, tc.good)
		}
		for _, status := range tc.in {
			if !tc.set.Has(status) || !r.Releases(status) {
				t.Errorf("%q has not %d", tc.set, status)
			}
		}
		for _, status := range tc.out {
			if tc.good && (tc.set.Has(status) || r.Releases(status)) {
				t.Errorf("%q has %d", tc.set, status)
			}
		}
		if !r.Releases(418) {
			t.Errorf("only the last set counts")
		}
	}
	if none := (dedup.Rule{}); none.Releases(429) {
		t.Error("no set has 429")
	}
}

func TestSize(t *testing.T) {
	for _, tc := range []struct {
		text   string
		want   dedup.Size
		prints string // "" where it prints as it was written
	}{
		{"0", 0, ""},
		{"1", 1, ""},
		{"1023", 1023, ""},
		{"1024", 1024, "1KiB"},
		{"1025", 1025, ""},
		{"64KiB", 64 << 10, ""},
		{"64 KiB", 64 << 10, "64KiB"},
		{"1MiB", 1 << 20, ""},
		{"1024KiB", 1 << 20, "1MiB"},
		{"1536KiB", 1536 << 10, ""},
		{"2GiB", 2 << 30, ""},
		{"1024GiB", 1 << 40, ""},
		{"7B", 7, "7"},
		{"0MiB", 0, "0"},
		{"0007", 7, "7"},
		{"9223372036854775807", 1<<63 - 1, ""},
		{"8589934591GiB", 8589934591 << 30, ""},
	} {
		got, err := dedup.ParseSize(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", tc.text, got, err, tc.want)
			continue
		}
		if tc.prints == "" {
			tc.prints = tc.text
		}
		if got.String() != tc.prints {
			t.Errorf("%q prints as %q, want %q", tc.text, got, tc.prints)
		}
		text, err := got.MarshalText()
		var again dedup.Size
		if err != nil || again.UnmarshalText(text) != nil || again != got {
			t.Errorf("%q is marshalled to %q (%v), which is %d", tc.text, text, err, again)
		}
	}
	for _, text := range []string{
		"", " ", "B", "KiB", "-1", "+1", "-1KiB", "1.5MiB", "1e3", "0x10", "1_000", "1KB", "1MB", "1K", "1M", "1kib", "1kiB", "1TiB",
		"1 ", " 1", "1KiBB", "1KiB2", "ten", "9223372036854775808", "18446744073709551616", "9007199254740992KiB", "8589934592GiB", "١",
	} {
		size := dedup.Size(42)
		if err := size.UnmarshalText([]byte(text)); err == nil || size != 42 {
			t.Errorf("%q is a size: %d", text, size)
		} else if !strings.Contains(err.Error(), "64KiB") {
			t.Errorf("the error of %q shows no size that is right: %v", text, err)
		}
	}
}
