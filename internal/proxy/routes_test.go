package proxy

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// sent parses a request as the server does, from a request line without its version and
// header lines.
func sent(t testing.TB, line string, headers ...string) *http.Request {
	t.Helper()
	lines := append([]string{line + " HTTP/1.1"}, headers...)
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		lines = append(lines, "Host: api.example.com")
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return r
}

// ruleFor is the default rule for a path, named by it.
func ruleFor(path string, change ...func(*dedup.Rule)) dedup.Rule {
	r := dedup.DefaultRule()
	r.Name, r.Path = path, path
	for _, c := range change {
		c(&r)
	}
	return r
}

func withHost(h string) func(*dedup.Rule) {
	return func(r *dedup.Rule) { r.Host, r.Name = h, h+r.Path }
}

func withMethods(m ...string) func(*dedup.Rule) {
	return func(r *dedup.Rule) { r.Methods, r.Name = m, m[0]+" "+r.Path }
}

func withMode(m dedup.Mode) func(*dedup.Rule) { return func(r *dedup.Rule) { r.Mode = m } }

// matchCase is a request line and the name of the rule that it must find; "" for none.
type matchCase struct{ line, want string }

func wantMatches(t *testing.T, rules []dedup.Rule, cases []matchCase) {
	t.Helper()
	rs, faults := newRoutes(rules, nil)
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	for _, tc := range cases {
		line, host, _ := strings.Cut(tc.line, " @")
		var headers []string
		if host != "" {
			headers = []string{"Host: " + host}
		}
		got := ""
		if rt := rs.match(sent(t, line, headers...)); rt != nil {
			got = rt.rule.Name
		}
		if got != tc.want {
			t.Errorf("%s finds %q, want %q", tc.line, got, tc.want)
		}
	}
}

// TestRoutesMatchEverySpelling: no spelling that an upstream may take for a guarded path
// slips past its rule.
func TestRoutesMatchEverySpelling(t *testing.T) {
	wantMatches(t, []dedup.Rule{ruleFor("/payments"), ruleFor("/orders/{id}"), ruleFor("/files/{rest...}"), ruleFor("/tree/"), ruleFor("/100%25/ü")}, []matchCase{
		{"POST /payments", "/payments"},
		{"PUT /payments?a=1", "/payments"},
		{"DELETE /payments?", "/payments"},
		{"POST /payments/", "/payments"},
		{"POST /payments//", "/payments"},
		{"POST //payments", "/payments"},
		{"POST ///payments", "/payments"},
		{"POST /./payments", "/payments"},
		{"POST /payments/.", "/payments"},
		{"POST /x/../payments", "/payments"},
		{"POST /../payments", "/payments"},
		{"POST /payments/x/..", "/payments"},
		{"POST /%70ayments", "/payments"},
		{"POST /%70%61%79ments", "/payments"},
		{"POST /payments%2F", "/payments"},
		{"POST /payments%2f", "/payments"},
		{"POST /%2Fpayments", "/payments"},
		{"POST /%2e/payments", "/payments"},
		{"POST /x/%2e%2e/payments", "/payments"},
		{"POST /x/%2E./payments", "/payments"},
		{"POST /x%2F..%2Fpayments", "/payments"},
		{"post /payments", "/payments"},
		{"Post /payments", "/payments"},
		{"POST http://api.example.com/payments", "/payments"},
		{"POST http://api.example.com//payments/", "/payments"},
		{"POST https://user@other.example:99/payments?x", "/payments"},
		{"GET /payments", ""},
		{"OPTIONS *", ""},
		{"LOCK /payments", ""},
		{"POST /", ""},
		{"POST http://api.example.com", ""},
		{"POST /payments/x", ""},
		{"POST /paymentsx", ""},
		{"POST /payments%00", ""},
		{"POST /payment", ""},
		{"POST /%2570ayments", ""}, // decoded once, as an upstream does

		{"POST /orders/1", "/orders/{id}"},
		{"POST /orders/1/", "/orders/{id}"},
		{"POST /orders//1", "/orders/{id}"},
		{"POST /%6frders/1", "/orders/{id}"},
		{"POST /orders/a%2Fb", "/orders/{id}"},
		{"POST /orders/a%2fb/", "/orders/{id}"},
		{"POST //orders//a%2Fb", "/orders/{id}"},
		{"POST /x/../orders/a%2Fb", "/orders/{id}"},
		{"POST /%6frders/a%2Fb", "/orders/{id}"},
		{"POST /x/%2e%2e/orders/a%2Fb", "/orders/{id}"},
		{"POST /%2E/orders/a%2Fb", "/orders/{id}"},
		{"POST /orders/a%2Fb/.%2e/c%2Fd", "/orders/{id}"},
		{"POST /orders%2F1", "/orders/{id}"},
		{"POST /orders/%2525", "/orders/{id}"},
		{"POST /orders/1%20HTTP", "/orders/{id}"},
		{"POST /orders", ""},
		{"POST /orders/", ""},
		{"POST /orders/a/b", ""},
		{"POST /orders/x/..", ""},

		{"POST /files/a", "/files/{rest...}"},
		{"POST /files/a/b/c", "/files/{rest...}"},
		{"POST /files/a%2Fb/c", "/files/{rest...}"},
		{"POST /files//", "/files/{rest...}"},
		{"POST /files/", "/files/{rest...}"},
		{"POST /tree/", "/tree/"},
		{"POST /tree/a", "/tree/"},
		{"POST /100%25/%c3%bc", "/100%25/ü"},
	})
}

func TestRoutesMostSpecificWins(t *testing.T) {
	rules := []dedup.Rule{
		ruleFor("/"),
		ruleFor("/api/{rest...}"),
		ruleFor("/api/{kind}/{id}"),
		ruleFor("/api/orders/{id}"),
		ruleFor("/api/orders/special"),
		ruleFor("/api/orders/{id}/refunds"),
		ruleFor("/only", withMethods("PUT")),
		ruleFor("/only", withMethods("POST")),
	}
	want := []matchCase{
		{"POST /", "/"},
		{"POST /x", "/"},
		{"POST /x/y?z", "/"},
		{"POST http://api.example.com", "/"},
		{"POST /api/orders", "/api/{rest...}"},
		{"POST /api/a/b/c", "/api/{rest...}"},
		{"POST /api/a/b", "/api/{kind}/{id}"},
		{"POST /api/orders/1", "/api/orders/{id}"},
		{"POST /api//orders/./1/", "/api/orders/{id}"},
		{"POST /api/orders/special", "/api/orders/special"},
		{"POST /api/orders/%73pecial", "/api/orders/special"},
		{"POST /api/orders/1/refunds", "/api/orders/{id}/refunds"},
		{"PUT /only", "PUT /only"},
		{"POST /only", "POST /only"},
		{"PATCH /only", "/"},
		{"GET /api/orders/1", ""},
	}
	wantMatches(t, rules, want)
	slices.Reverse(rules) // whatever the order in which they are written
	wantMatches(t, rules, want)
}

func TestRoutesHosts(t *testing.T) {
	wantMatches(t, []dedup.Rule{ruleFor("/payments"), ruleFor("/payments", withHost("pay.example.com")), ruleFor("/only", withHost("pay.example.com"))}, []matchCase{
		{"POST /payments @pay.example.com", "pay.example.com/payments"},
		{"POST /payments @pay.example.com:8080", "pay.example.com/payments"},
		{"POST /payments @other.example.com", "/payments"},
		{"POST /payments @", "/payments"},
		{"POST /only @pay.example.com", "pay.example.com/only"},
		{"POST /only @PAY.Example.com", "pay.example.com/only"},
		{"POST /only @Pay.example.com.:443", "pay.example.com/only"},
		{"POST http://PAY.EXAMPLE.COM/only @other.example.com", "pay.example.com/only"},
		{"POST /only @other.example.com", ""},
		{"POST http://pay.example.com/only @other.example.com", "pay.example.com/only"},
		{"POST http://other.example.com/only @pay.example.com", ""},
	})
}

func TestRoutesHostInCapitals(t *testing.T) {
	wantMatches(t, []dedup.Rule{ruleFor("/only", withHost("Pay.Example.com"))}, []matchCase{{"POST /only @pay.example.com", "Pay.Example.com/only"}})
	wantMatches(t, []dedup.Rule{ruleFor("/a", withHost("::1")), ruleFor("/b", withHost("[::1]"))}, []matchCase{
		{"POST /a @[::1]:80", "::1/a"},
		{"POST /a @[::1]", "::1/a"},
		{"POST /b @[::1]:80", "[::1]/b"},
		{"POST /b @[::1]", "[::1]/b"},
	})
}

// TestRoutesOfTwoReadings: a path with %2F that one reading guards is guarded.
func TestRoutesOfTwoReadings(t *testing.T) {
	for _, other := range []dedup.Rule{ruleFor("/", withMode(dedup.ModeOff)), ruleFor("/"), ruleFor("/{rest...}")} {
		wantMatches(t, []dedup.Rule{other, ruleFor("/orders/{id}"), ruleFor("/payments")}, []matchCase{
			{"POST /orders/1", "/orders/{id}"},
			{"POST /orders/a%2Fb", "/orders/{id}"},
			{"POST /payments%2F", "/payments"},
			{"POST /x%2F..%2Fpayments", "/payments"},
		})
	}
}

func TestRoutesRoot(t *testing.T) {
	wantMatches(t, []dedup.Rule{ruleFor("/{$}")}, []matchCase{
		{"POST /", "/{$}"},
		{"POST //", "/{$}"},
		{"POST /.", "/{$}"},
		{"POST /x/..", "/{$}"},
		{"POST http://api.example.com", "/{$}"},
		{"POST /x", ""},
	})
}

// TestRoutesOff: a rule that is off takes its paths out of the others.
func TestRoutesOff(t *testing.T) {
	wantMatches(t, []dedup.Rule{ruleFor("/"), ruleFor("/webhooks/{rest...}", withMode(dedup.ModeOff))}, []matchCase{
		{"POST /x", "/"},
		{"POST /webhooks/x", ""},
		{"POST //webhooks/%78", ""},
	})
}

func TestCheckRoutes(t *testing.T) {
	for name, tc := range map[string]struct {
		rules   []dedup.Rule
		path    string
		message []string
	}{
		"none":                {},
		"neither conflicts":   {rules: []dedup.Rule{ruleFor("/a/{x}"), ruleFor("/a/b"), ruleFor("/{y}")}},
		"same path by method": {rules: []dedup.Rule{ruleFor("/a", withMethods("PUT")), ruleFor("/a", withMethods("POST", "DELETE"))}},
		"same path by host":   {rules: []dedup.Rule{ruleFor("/a"), ruleFor("/a", withHost("example.com"))}},
		"the same twice": {
			rules: []dedup.Rule{ruleFor("/x"), ruleFor("/a"), ruleFor("/a")},
			path:  "routes[2].path", message: []string{`conflicts with route "/a" (POST /a)`},
		},
		"the same under two names": {
			rules: []dedup.Rule{ruleFor("/a/{x}"), ruleFor("/a/{y}")},
			path:  "routes[1].path", message: []string{`conflicts with route "/a/{x}" (POST /a/{x})`},
		},
		"neither more specific": {
			rules: []dedup.Rule{ruleFor("/a/{x}"), ruleFor("/{y}/b")},
			path:  "routes[1].path", message: []string{`conflicts with route "/a/{x}" (POST /a/{x})`, "neither pattern is more specific"},
		},
		"one method in common": {
			rules: []dedup.Rule{ruleFor("/a", withMethods("PUT", "POST")), ruleFor("/a", withMethods("PATCH", "POST"))},
			path:  "routes[1].path", message: []string{`conflicts with route "PUT /a" (POST /a)`},
		},
		"the same with a quote": {
			rules: []dedup.Rule{ruleFor(`/a"b\c`), ruleFor(`/a"b\c`)},
			path:  "routes[1].path", message: []string{"conflicts with route"},
		},
		"off conflicts too": {
			rules: []dedup.Rule{ruleFor("/a"), ruleFor("/a", withMode(dedup.ModeOff))},
			path:  "routes[1].path", message: []string{`conflicts with route "/a"`},
		},
		"no pattern":         {rules: []dedup.Rule{ruleFor("/a/{x")}, path: "routes[0].path", message: []string{"not a pattern", "wildcard"}},
		"a wildcard twice":   {rules: []dedup.Rule{ruleFor("/{x}/{x}")}, path: "routes[0].path", message: []string{"not a pattern", "duplicate"}},
		"rest in the middle": {rules: []dedup.Rule{ruleFor("/{x...}/a")}, path: "routes[0].path", message: []string{"not a pattern"}},
		"part of a segment":  {rules: []dedup.Rule{ruleFor("/a{x}")}, path: "routes[0].path", message: []string{"not a pattern"}},
		"never matches":      {rules: []dedup.Rule{ruleFor("/a//b")}, path: "routes[0].path", message: []string{"not a pattern", "unclean"}},
		"a host that is a pattern": {
			rules: []dedup.Rule{ruleFor("/a", withHost("{h}.example.com"))},
			path:  "routes[0].path", message: []string{"not a pattern"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults := CheckRoutes(tc.rules)
			if tc.path == "" {
				if len(faults) > 0 {
					t.Errorf("faults %v", faults)
				}
				return
			}
			if len(faults) != 1 || faults[0].Path != tc.path {
				t.Fatalf("faults %v, want one at %s", faults, tc.path)
			}
			for _, fragment := range tc.message {
				if !strings.Contains(faults[0].Message, fragment) {
					t.Errorf("message %q does not contain %q", faults[0].Message, fragment)
				}
			}
			if strings.Contains(faults[0].Message, "\n") || strings.Contains(faults[0].Message, ".go:") {
				t.Errorf("message %q is not for users", faults[0].Message)
			}
		})
	}
	if faults := CheckRoutes([]dedup.Rule{ruleFor("/{"), ruleFor("/a"), ruleFor("/a")}); len(faults) != 2 {
		t.Errorf("faults %v, want both at once", faults)
	}
}

// TestTarget: what the upstream gets and the fingerprint covers, byte for byte.
func TestTarget(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"POST /", "/"},
		{"POST /a?b=1&c=%zz;d", "/a?b=1&c=%zz;d"},
		{"POST /a?", "/a?"},
		{"POST //a//b/../c/", "//a//b/../c/"},
		{"POST /%70ayments%2F", "/%70ayments%2F"},
		{`POST /a|b\c"^`, `/a|b\c"^`},
		{"POST /a#b", "/a#b"},
		{"POST /a?b=http://c/d", "/a?b=http://c/d"},
		{"POST /http://b/c", "/http://b/c"},
		{"OPTIONS *", "*"},
		{"POST http://example.com/a?b", "/a?b"},
		{"POST http://example.com", "/"},
		{"POST http://example.com/", "/"},
		{"POST http://example.com?b=/c", "/?b=/c"},
		{"POST http://example.com?b=c://d/e", "/?b=c://d/e"},
		{"POST http://example.com//a", "//a"},
		{"POST http://u:p@example.com:80/a%2Fb?", "/a%2Fb?"},
		{"POST HTTPS://[::1]:8443/a", "/a"},
		{"POST x:/payments", "/payments"},
		{"POST x:/y://h/payments", "/y://h/payments"},
		{"POST http:/payments?a=b://c/d", "/payments?a=b://c/d"},
	} {
		r := sent(t, tc.line)
		if got := target(r); got != tc.want {
			t.Errorf("target of %s is %q, want %q", tc.line, got, tc.want)
		}
	}
	if r, _ := http.NewRequest("POST", "http://example.com/a%2Fb?c", nil); target(r) != "" {
		t.Errorf("a request that nobody sent has target %q", target(r))
	}
}

func TestTwins(t *testing.T) {
	rule := ruleFor("/x", func(r *dedup.Rule) {
		r.HeaderName = dedup.Names{"Idempotency-Key", "X_Request_Id"}
		r.TenantHeader = "X-Tenant"
		r.Identity.Headers = []string{"X-Account-Id", "X-User"}
	})
	for _, tc := range []struct {
		headers []string
		want    bool
	}{
		{nil, false},
		{[]string{"Idempotency-Key: a", "X-Tenant: t", "X-Account-Id: b", "X-User: u", "X_Request_Id: r"}, false},
		{[]string{"IDEMPOTENCY-KEY: a", "x-account-id: b", "x_request_id: c"}, false},
		{[]string{"Idempotency_Key: a"}, true},
		{[]string{"idempotency_key: a"}, true},
		{[]string{"Idempotency-Key: a", "Idempotency_Key: a"}, true},
		{[]string{"Idempotency_Key: "}, true},
		{[]string{"X_Tenant: t"}, true},
		{[]string{"X-Account_Id: a"}, true},
		{[]string{"X_Account-Id: a"}, true},
		{[]string{"X_USER: u"}, true},
		{[]string{"X-Request-Id: r"}, true},
		{[]string{"X-Request_Id: r"}, true},
		{[]string{"X_Other: o", "Idempotency-Keys: a", "IdempotencyKey: a", "Authorization_: x"}, false},
	} {
		if got := newTwins(&rule).in(sent(t, "POST /x", tc.headers...).Header); got != tc.want {
			t.Errorf("%q: twins %v, want %v", tc.headers, got, tc.want)
		}
	}
	plain := ruleFor("/x")
	if newTwins(&plain).in(http.Header{"": {"a"}, "_": {"a"}}) {
		t.Error("headers that the rule does not name have twins")
	}
}
