package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"idemproxy/internal/dedup"
)

// An Explanation says which rule applies to a request, for people.
type Explanation struct {
	// Route is the index of the rule that applies; -1 for none.
	Route int
	// Refused is why that rule refuses the request for its head, if it comes with a key.
	Refused *dedup.Rejection
	// Others are the rules that don't, in their order.
	Others []Other
}

// An Other is a rule that does not apply to a request.
type Other struct {
	Route int
	Why   string
	Close bool // its path is the request's, so that somebody may have expected it to apply
}

// Explain says which of the rules applies to a request, and why each other does not. The
// rules must be right; see CheckRoutes.
func Explain(rules []dedup.Rule, r *http.Request) Explanation {
	all, _ := newRoutes(rules, nil)
	e := Explanation{Route: -1}
	applies := all.match(r)
	for i := range rules {
		if applies != nil && applies.rule == &rules[i] {
			e.Route, e.Refused = i, applies.checkHead(r, true)
		}
	}
	for i := range rules {
		if i != e.Route {
			why, near := e.whyNot(rules, i, r)
			e.Others = append(e.Others, Other{i, why, near})
		}
	}
	return e
}

// whyNot says why a rule does not apply, and whether it came close.
func (e Explanation) whyNot(rules []dedup.Rule, i int, r *http.Request) (why string, near bool) {
	rule := rules[i]
	anywhere := rule
	anywhere.Host, anywhere.Methods, anywhere.Mode = "", []string{r.Method}, dedup.ModeEnforce
	matches := func(one dedup.Rule, r *http.Request) bool {
		routes, _ := newRoutes([]dedup.Rule{one}, nil)
		return routes.match(r) != nil
	}
	folded, lower := anywhere, r.Clone(r.Context())
	folded.Path, lower.URL.Path = strings.ToLower(anywhere.Path), strings.ToLower(r.URL.Path)
	hosted := anywhere
	hosted.Host = rule.Host
	switch {
	case !matches(anywhere, r) && !strings.Contains(rule.Path, "{") && matches(folded, lower):
		return fmt.Sprintf("its path is %s: paths are case-sensitive", rule.Path), true
	case !matches(anywhere, r):
		return "its path is " + rule.Path, false
	case !matches(hosted, r):
		return "it is only for the host " + rule.Host, true
	case !slices.Contains(rule.Methods, strings.ToUpper(r.Method)):
		return "its methods are " + strings.Join(rule.Methods, ", "), true
	case rule.Mode == dedup.ModeOff && e.Route < 0:
		return "it matches, but its mode is off", true
	default:
		return fmt.Sprintf("its path %s matches too, but another one is more specific", rule.Path), true
	}
}
