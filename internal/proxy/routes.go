package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// A route is a rule with what is made of it once.
type route struct {
	rule    *dedup.Rule
	metrics *metrics.Route
	twins   twins
	answers *answers
	tokens  *verifier // nil if the rule reads none
}

// routes finds the rule of a request by the patterns of net/http's ServeMux, which is
// used as a matcher only: its own answers (redirects, 404, 405) are never given.
type routes struct {
	mux       *http.ServeMux
	byPattern map[string]*route
	all       []*route        // as configured
	hasHosts  bool            // some rule is for one host
	methods   map[string]bool // those of any rule; most requests have another
	prefixes  []string        // what the paths begin with, up to the first wildcard; most requests begin otherwise
}

// CheckRoutes returns what is wrong with the patterns of the rules: not a pattern, or in
// conflict with another one. Paths are those of the list, such as "routes[1].path".
func CheckRoutes(rules []dedup.Rule) []dedup.Fault {
	_, faults := newRoutes(rules, nil)
	return faults
}

func newRoutes(rules []dedup.Rule, m *metrics.Metrics) (*routes, []dedup.Fault) {
	rs := &routes{mux: http.NewServeMux(), byPattern: map[string]*route{}, methods: map[string]bool{}}
	var faults []dedup.Fault
	for i := range rules {
		rule := &rules[i]
		rt := &route{rule: rule, twins: newTwins(rule), answers: newAnswers(rule)}
		if m != nil {
			rt.metrics = m.Route(rule.Name)
			if rule.Mode == dedup.ModeObserve {
				rt.metrics.Observes()
			}
		}
		rs.all = append(rs.all, rt)
		rs.hasHosts = rs.hasHosts || rule.Host != ""
		rs.prefixes = append(rs.prefixes, literal(rule.Path))
		for _, method := range rule.Methods {
			pattern := method + " " + cleanHost(rule.Host) + rule.Path
			if err := rs.add(pattern, rt); err != nil {
				faults = append(faults, dedup.Fault{Path: fmt.Sprintf("routes[%d].path", i), Message: err.Error()})
				break
			}
		}
	}
	return rs, faults
}

// literal is what every cleaned path that a pattern matches begins with: the pattern up to
// its first wildcard or escape.
func literal(pattern string) string {
	if i := strings.IndexAny(pattern, "{%"); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.TrimRight(pattern, "/")
}

// add registers a pattern. ServeMux says what is wrong with one by panicking, in a text
// that names the two patterns and places in this source.
func (rs *routes) add(pattern string, rt *route) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = rs.fault(fmt.Sprint(v))
		}
	}()
	rs.mux.Handle(pattern, http.NotFoundHandler())
	rs.byPattern[pattern] = rt
	method, _, _ := strings.Cut(pattern, " ")
	rs.methods[method] = true
	return nil
}

// fault makes a fault for people of ServeMux's.
func (rs *routes) fault(text string) error {
	_, after, conflict := strings.Cut(text, `conflicts with pattern "`)
	if !conflict {
		_, what, _ := strings.Cut(text, `": `)
		return fmt.Errorf("not a pattern of net/http: %s", what)
	}
	quoted, _ := strconv.QuotedPrefix(`"` + after)
	other, _ := strconv.Unquote(quoted)
	return fmt.Errorf("conflicts with route %q (%s): some request matches both, and neither pattern is more specific", rs.byPattern[other].rule.Name, other)
}

// match returns the route of a request, or nil.
//
// The path is cleaned first (percent-decoded once, slashes merged, dot segments resolved,
// a trailing slash ignored), so that no spelling that an upstream may take for a guarded
// path slips past its rule. Since an upstream may also read %2F as a part of a segment,
// such a path is looked up both ways.
func (rs *routes) match(r *http.Request) *route {
	rt := rs.lookup(r)
	if rt == nil || rt.rule.Mode == dedup.ModeOff {
		return nil
	}
	return rt
}

// lookup is match for rules that are off, too.
func (rs *routes) lookup(r *http.Request) *route {
	if !rs.methods[strings.ToUpper(r.Method)] {
		return nil
	}
	clean := cleanPath(r.URL.Path)
	begins := func(prefix string) bool { return strings.HasPrefix(clean, prefix) }
	if r.URL.RawPath == "" && !slices.ContainsFunc(rs.prefixes, begins) {
		return nil
	}
	rt := rs.find(r, &url.URL{Path: clean})
	if r.URL.RawPath != "" {
		if escaped := cleanEscaped(r.URL.RawPath); escaped != clean {
			if plain, err := url.PathUnescape(escaped); err == nil {
				rt = stricter(rt, rs.find(r, &url.URL{Path: plain, RawPath: escaped}))
			}
		}
	}
	return rt
}

// stricter chooses between the routes of two readings of a path: one that guards rather
// than one that is off, then the one whose pattern says more.
func stricter(a, b *route) *route {
	switch {
	case a == nil || b == nil:
		return cmp.Or(a, b)
	case (a.rule.Mode == dedup.ModeOff) != (b.rule.Mode == dedup.ModeOff):
		if a.rule.Mode == dedup.ModeOff {
			return b
		}
		return a
	case literals(b.rule.Path) > literals(a.rule.Path):
		return b
	default:
		return a
	}
}

// literals is how many segments of a pattern are no wildcards.
func literals(pattern string) int {
	n := 0
	for s := range strings.SplitSeq(pattern, "/") {
		if s != "" && s[0] != '{' {
			n++
		}
	}
	return n
}

// cleanEscaped is cleanPath for an escaped path, whose dots may be escaped too.
func cleanEscaped(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil && (plain == "." || plain == "..") {
			segments[i] = plain
		}
	}
	return cleanPath(strings.Join(segments, "/"))
}

func (rs *routes) find(r *http.Request, u *url.URL) *route {
	host := ""
	if rs.hasHosts {
		host = cleanHost(r.Host)
	}
	_, pattern := rs.mux.Handler(&http.Request{Method: strings.ToUpper(r.Method), Host: host, URL: u})
	return rs.byPattern[pattern]
}

// cleanHost is a host without its port, in lower case, without the brackets of an address
// and the dot that may end a name.
func cleanHost(h string) string {
	if host, _, err := net.SplitHostPort(h); err == nil {
		h = host
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(h, "[]")), ".")
}

// cleanPath merges slashes, resolves dot segments, and drops a trailing slash.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	return path.Clean(p)
}

// twins finds headers that some upstreams take for one that the rule relies on: CGI and
// what grew out of it fold hyphens and underscores into one, so that Idempotency_Key
// would be a second key that nobody checked.
type twins struct {
	names  map[string]bool // the rule's headers, lower case, as they are
	folded map[string]bool // the same, with hyphens for underscores
}

func newTwins(rule *dedup.Rule) twins {
	t := twins{map[string]bool{}, map[string]bool{}}
	headers := append(append([]string{rule.TenantHeader}, rule.HeaderName...), rule.IdentityHeaders()...)
	for _, source := range rule.KeyFrom {
		headers = append(headers, source.Header)
	}
	if rule.Identity.JWT.Claim != "" {
		headers = append(headers, "Authorization")
	}
	for _, name := range headers {
		if name != "" {
			t.names[strings.ToLower(name)] = true
			t.folded[fold(name)] = true
		}
	}
	return t
}

// in reports whether a request has such a header.
func (t twins) in(h http.Header) bool {
	for name := range h {
		if t.folded[fold(name)] && !t.names[strings.ToLower(name)] {
			return true
		}
	}
	return false
}

func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
