package dedup_test

import (
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// headers makes a dedup.Header of "Name: value" lines, as net/http would: names have no
// case, the values of one name keep their order.
func headers(lines ...string) dedup.Header {
	h := map[string][]string{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h[strings.ToLower(name)] = append(h[strings.ToLower(name)], value)
	}
	return func(name string) []string { return h[strings.ToLower(name)] }
}

// rule is the default rule as changed, and valid.
func rule(t testing.TB, change func(*dedup.Rule)) *dedup.Rule {
	t.Helper()
	r := dedup.DefaultRule()
	r.Name, r.Path = "payments", "/payments"
	if change != nil {
		change(&r)
	}
	for _, f := range r.Validate() {
		t.Errorf("the rule of this test is wrong: %s: %s", f.Path, f.Message)
	}
	return &r
}

// wantRejection checks a rejection's reason and that its detail contains a fragment; an
// empty reason wants none.
func wantRejection(t testing.TB, got *dedup.Rejection, reason dedup.Reason, fragment string) {
	t.Helper()
	switch {
	case got == nil && reason == "":
	case got == nil:
		t.Errorf("not rejected, want %s", reason)
	case got.Reason != reason:
		t.Errorf("rejected: %v, want reason %q", got, reason)
	case !strings.Contains(got.Detail, fragment):
		t.Errorf("detail %q does not contain %q", got.Detail, fragment)
	}
}
