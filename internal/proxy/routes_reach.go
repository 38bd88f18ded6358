package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"idemproxy/internal/dedup"
)

// RouteWarnings returns the rules, or methods of rules, that no request can ever match,
// with the paths of CheckRoutes. Of rules that CheckRoutes refuses there are none.
//
// It asks the matcher itself, for requests of which every part that the pattern leaves open
// is a word that stands in no pattern. If one of those goes elsewhere, it is to a pattern
// that leaves the same parts open, and every other request goes there too.
func RouteWarnings(rules []dedup.Rule) []dedup.Fault {
	rs, faults := newRoutes(rules, nil)
	if len(faults) > 0 {
		return nil
	}
	fresh := freshWord(rules)
	for i := range rules {
		var never []string
		elsewhere := map[string]bool{}
		for j, method := range rules[i].Methods {
			if !rs.reaches(&rules[i], method, fresh, elsewhere) {
				never = append(never, fmt.Sprintf("routes[%d].methods[%d]", i, j))
			}
		}
		if len(never) == len(rules[i].Methods) {
			never = []string{fmt.Sprintf("routes[%d].path", i)}
		}
		for _, path := range never {
			faults = append(faults, dedup.Fault{Path: path, Message: neverMatches(elsewhere)})
		}
	}
	return faults
}

func neverMatches(elsewhere map[string]bool) string {
	if len(elsewhere) == 0 {
		return "no request can match it: paths are compared after cleaning, which resolves dot segments, escaped ones too; write it without them"
	}
	return fmt.Sprintf("no request can match it: all that fit it go to the more specific %s; remove one or the other", strings.Join(slices.Sorted(maps.Keys(elsewhere)), ", "))
}

// freshWord is a path segment and host that no pattern names.
func freshWord(rules []dedup.Rule) string {
	word := "probe"
	for slices.ContainsFunc(rules, func(r dedup.Rule) bool { return strings.Contains(r.Path+" "+r.Host, word) }) {
		word += "x"
	}
	return word
}

// reaches reports whether some request of this method finds the rule, and notes the routes
// where the others go.
func (rs *routes) reaches(rule *dedup.Rule, method, fresh string, elsewhere map[string]bool) bool {
	host := rule.Host
	if host == "" {
		host = fresh
	}
	for _, raw := range rs.examples(rule.Path, fresh) {
		plain, err := url.PathUnescape(raw)
		if err != nil {
			return true // not to be told
		}
		u := &url.URL{Path: plain}
		if raw != u.EscapedPath() {
			u.RawPath = raw
		}
		rt := rs.lookup(&http.Request{Method: method, Host: host, URL: u})
		if rt != nil && rt.rule == rule {
			return true
		}
		if rt != nil {
			elsewhere[fmt.Sprintf("route %q", rt.rule.Name)] = true
		}
	}
	return false
}

// examples are paths that fit a pattern. What matches a rest of any length is tried with
// rests up to one longer than any pattern.
func (rs *routes) examples(pattern, fresh string) []string {
	var b strings.Builder
	segments := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	last := segments[len(segments)-1]
	for _, s := range segments[:len(segments)-1] {
		b.WriteString("/" + segmentOf(s, fresh))
	}
	switch {
	case last == "{$}":
		return []string{b.String() + "/"}
	case last != "" && !strings.HasSuffix(last, "...}"):
		return []string{b.String() + "/" + segmentOf(last, fresh)}
	}
	examples := []string{b.String() + "/"}
	for range rs.depth() + 1 {
		b.WriteString("/" + fresh)
		examples = append(examples, b.String())
	}
	return examples
}

func segmentOf(s, fresh string) string {
	if strings.HasPrefix(s, "{") {
		return fresh
	}
	return s
}

// depth is the number of segments of the longest pattern.
func (rs *routes) depth() int {
	n := 0
	for pattern := range rs.byPattern {
		n = max(n, strings.Count(pattern, "/"))
	}
	return n
}
