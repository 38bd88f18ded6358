package proxy

import (
	"net/http/httptest"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

func TestExplain(t *testing.T) {
	rule := func(name, path string, change func(*dedup.Rule)) dedup.Rule {
		r := dedup.DefaultRule()
		r.Name, r.Path = name, path
		if change != nil {
			change(&r)
		}
		return r
	}
	rules := []dedup.Rule{
		rule("payments", "/api/payments", nil),
		rule("all", "/api/{rest...}", nil),
		rule("posts", "/posts", func(r *dedup.Rule) { r.Methods = []string{"POST"} }),
		rule("shop", "/shop", func(r *dedup.Rule) { r.Host = "shop.example.com" }),
		rule("old", "/old", func(r *dedup.Rule) { r.Mode = dedup.ModeOff }),
	}
	for _, tc := range []struct {
		method, target string
		applies        string
		other, why     string // of those that came close, the one to look at; "" for none
	}{
		{"POST", "/api/payments", "payments", "all", "matches too, but another one is more specific"},
		{"POST", "/api//payments/?x=1", "payments", "all", "more specific"},
		{"POST", "/api/orders", "all", "", ""},
		{"GET", "/api/payments", "", "payments", "its methods are POST, PUT, PATCH, DELETE"},
		{"PUT", "/posts", "", "posts", "its methods are POST"},
		{"POST", "/Posts", "", "posts", "case-sensitive"},
		{"POST", "/shop", "", "shop", "only for the host shop.example.com"},
		{"POST", "/old", "", "old", "its mode is off"},
		{"POST", "/elsewhere", "", "", ""},
	} {
		e := Explain(rules, httptest.NewRequest(tc.method, tc.target, nil))
		applies := ""
		if e.Route >= 0 {
			applies = rules[e.Route].Name
		}
		if applies != tc.applies {
			t.Errorf("%s %s: %q applies, want %q", tc.method, tc.target, applies, tc.applies)
		}
		if got, want := len(e.Others), len(rules); e.Route >= 0 && got != want-1 || e.Route < 0 && got != want {
			t.Errorf("%s %s: %d others", tc.method, tc.target, got)
		}
		found := tc.other == ""
		for _, o := range e.Others {
			found = found || rules[o.Route].Name == tc.other && o.Close && strings.Contains(o.Why, tc.why)
			if o.Close && tc.other == "" {
				t.Errorf("%s %s: %s came close: %s", tc.method, tc.target, rules[o.Route].Name, o.Why)
			}
		}
		if !found {
			t.Errorf("%s %s: not said that %s: %s, but %+v", tc.method, tc.target, tc.other, tc.why, e.Others)
		}
	}
}
