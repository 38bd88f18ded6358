package proxy

import (
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

func TestRouteWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []dedup.Rule
		want  []string // path, and a part of the message after a blank
	}{
		"all of them": {[]dedup.Rule{ruleFor("/"), ruleFor("/a"), ruleFor("/a/{id}"), ruleFor("/b/"), ruleFor("/c/{rest...}"), ruleFor("/{x}/{y}/z"), ruleFor("/100%25/ü"), ruleFor("/d%2Fe/{f}")}, nil},
		"hosts":       {[]dedup.Rule{ruleFor("/a"), ruleFor("/a", withHost("example.com")), ruleFor("/{rest...}", withHost("Example.ORG"))}, nil},
		"the root":    {[]dedup.Rule{ruleFor("/{$}")}, nil},
		"off counts":  {[]dedup.Rule{ruleFor("/a", withMode(dedup.ModeOff)), ruleFor("/{rest...}")}, nil},
		"a final slash, which counts for nothing": {[]dedup.Rule{ruleFor("/a/{$}"), ruleFor("/b/{x}/{$}")}, nil},
		"a dot segment": {[]dedup.Rule{ruleFor("/a/%2e%2e/b"), ruleFor("/c/%2E")}, []string{"routes[0].path after cleaning", "routes[1].path after cleaning"}},
		"shadowed": {
			[]dedup.Rule{ruleFor("/a/{rest...}"), ruleFor("/a"), ruleFor("/a/{x}"), ruleFor("/a/{x}/{rest...}")},
			[]string{`routes[0].path more specific route "/a", route "/a/{x}", route "/a/{x}/{rest...}"`},
		},
		"not quite shadowed": {[]dedup.Rule{ruleFor("/a/{rest...}"), ruleFor("/a/{x}"), ruleFor("/a/{x}/{y}")}, nil},
		"shadowed for one method": {
			[]dedup.Rule{
				ruleFor("/a/{rest...}", withMethods("PUT", "POST")),
				ruleFor("/a", withMethods("POST")), ruleFor("/a/{x}", withMethods("POST")), ruleFor("/a/{x}/{rest...}", withMethods("POST")),
			},
			[]string{"routes[0].methods[1] more specific"},
		},
		"faults are no warnings": {[]dedup.Rule{ruleFor("/{$}/a")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := RouteWarnings(slices.Clone(tc.rules))
			if len(got) != len(tc.want) {
				t.Fatalf("warnings %v, want %q", got, tc.want)
			}
			for i, w := range tc.want {
				path, part, _ := strings.Cut(w, " ")
				if got[i].Path != path || !strings.Contains(got[i].Message, part) {
					t.Errorf("warning %v, want %s", got[i], w)
				}
			}
		})
	}
}
