package e2e

import (
	"strings"
	"testing"
)

// These tests ask which two requests are the same one, contract §3.

func TestWhichRequestsAreTheSame(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: all, path: "/{rest...}"}
  - {name: off, path: "/off/{rest...}", fingerprint: {enabled: false}}
  - {name: parts, path: "/parts/{rest...}", fingerprint: {parts: [method, query]}}
  - {name: headers, path: "/headers/{rest...}", fingerprint: {headers: [X-Mode, Content-Type]}}`})
		seen := 0
		for _, tc := range sameness() {
			t.Run(tc.name, func(t *testing.T) {
				first, second := tc.first, tc.second
				first.key = newKey()
				second.key = first.key
				answer := p.send(t, first).fresh(t, 201)
				seen++
				if got := up.last(t).target; got != first.target {
					t.Errorf("sent %q, the upstream got %q", first.target, got)
				}
				again := p.send(t, second)
				if tc.same {
					again.replays(t, answer)
				} else {
					again.refused(t, 422, "key_reuse")
				}
				p.send(t, first).replays(t, answer)
				up.saw(t, seen)
			})
		}
	})
}

type pair struct {
	name          string
	first, second request
	same          bool
}

func sameness() []pair {
	target := func(name, a, b string, same bool) pair {
		return pair{name, request{target: a}, request{target: b}, same}
	}
	all := []pair{
		target("parameters in another order", "/p?a=1&b=2", "/p?b=2&a=1", true),
		target("values of one name in another order", "/p?t=a&t=b", "/p?t=b&t=a", false),
		target("the order across names", "/p?a=1&b=2&a=3", "/p?b=2&a=1&a=3", true),
		target("names without values", "/p?a&b", "/p?b&a", true),
		target("a value or none", "/p?a=1", "/p", false),
		target("an empty value more", "/p?a=1", "/p?a=1&a=", false),
		target("another name", "/p?a=1", "/p?b=1", false),
		target("names by case", "/p?a=1", "/p?A=1", false),
		target("an encoded separator", "/p?a=1&b=2", "/p?a=1%26b=2", false),
		target("an encoded equals sign", "/p?a%3D1", "/p?a=1", false),
		target("query to path", "/x?b=1", "/xb=1", false),
		target("query to path, encoded", "/x?b=1", "/x%3Fb=1", false),
		target("path to query", "/x/y?z", "/x?y/z", false),
		target("unparsable: semicolon", "/p?a=1;b=2", "/p?a=1", false),
		target("unparsable: other values", "/p?a=1;b=2", "/p?a=1;b=3", false),
		target("unparsable: broken escapes", "/p?a=%zz", "/p?a=%zy", false),
		target("unparsable: a broken escape or none", "/p?a=%zz&b=2", "/p?b=2", false),
		target("unparsable: itself", "/p?a=%zz&b=1;2", "/p?a=%zz&b=1;2", true),
		target("paths by case", "/p/a", "/p/A", false),
		target("an encoded slash", "/p/a%2Fb", "/p/a/b", false),
		target("another path", "/p/1", "/p/2", false),

		target("off: another query", "/off/p?a=1", "/off/p?a=2", true),
		{"off: another body", request{target: "/off/p", body: "a"}, request{target: "/off/p", body: "b"}, true},
		{"parts: another body", request{target: "/parts/p?a=1", body: "a"}, request{target: "/parts/p?a=1", body: "b"}, true},
		target("parts: another path", "/parts/p?a=1", "/parts/q?a=1", true),
		target("parts: another query", "/parts/p?a=1", "/parts/p?a=2", false),
		{"parts: another method", request{target: "/parts/p"}, request{target: "/parts/p", method: "PUT"}, false},
	}
	return append(append(all, sameHeaders()...), sameBodies()...)
}

func sameHeaders() []pair {
	header := func(name, target string, a, b []string, same bool) pair {
		return pair{name, request{target: target, header: a}, request{target: target, header: b}, same}
	}
	return []pair{
		header("headers of the way", "/p", []string{"Date: Tue, 15 Nov 1994 08:12:31 GMT", "User-Agent: a/1", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Forwarded-For: 1.2.3.4", "X-Request-Id: 1", "X-Stainless-Retry-Count: 0"},
			[]string{"User-Agent: b/2", "traceparent: 00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Forwarded-For: 5.6.7.8", "X-Request-Id: 2", "X-Stainless-Retry-Count: 1", "Accept: */*"}, true),
		header("named headers", "/headers/p", []string{"X-Mode: live"}, []string{"X-Mode: test"}, false),
		header("a named header less", "/headers/p", []string{"X-Mode: live"}, nil, false),
		header("a named header twice", "/headers/p", []string{"X-Mode: a", "X-Mode: b"}, []string{"X-Mode: a, b"}, false),
		header("from one named header to the next", "/headers/p", []string{"X-Mode: a", "Content-Type: b"}, []string{"X-Mode: b", "Content-Type: a"}, false),
		header("headers beside the named", "/headers/p", []string{"X-Mode: live", "X-Other: 1"}, []string{"X-Other: 2", "x-mode: live"}, true),
	}
}

func sameBodies() []pair {
	body := func(name, a, b string, same bool) pair {
		return pair{name, request{target: "/p", body: a}, request{target: "/p", body: b}, same}
	}
	long := strings.Repeat("x", 500_000)
	return []pair{
		body("a space in a body", `{"a":1}`, `{"a": 1}`, false),
		body("no body and a line end", "", "\n", false),
		body("the last byte of a long body", long+"a", long+"b", false),
		body("a body and a longer one", long, long+"x", false),
		body("zero bytes", "\x00", "\x00\x00", false),
	}
}

// The spellings of a guarded path are guarded, and each is forwarded as it was sent.
func TestSpellingsOfAPath(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: payments, path: /api/payments}
  - {name: order, path: "/api/orders/{id}"}`})
		seen := 0
		for _, target := range []string{
			"/api/payments", "//api/payments", "/api//payments", "///api///payments", "/api/%70ayments", "/%61pi/payments",
			"/x/../api/payments", "/./api/payments", "/api/./payments", "/api/x/../payments", "/../api/payments", "/api/payments/", "/api/payments//",
			"/api/payments/.", "/%2e%2e/api/payments", "/api/%2e/payments", "/api%2Fpayments", "/api/payments?", "/api/payments?a=%2F;b=%zz&&//",
			"/api/orders/a%2Fb", "/api/orders/a%20b", "/api/orders/caf%C3%A9", "/api/orders/1/", "/api/orders/a;v=1", "/api/orders/a+b:c@d!$&'()*,=~",
			`/api/orders/a"b|c^d`, "/api/orders/caf\xc3\xa9",
		} {
			t.Run(target, func(t *testing.T) {
				p.send(t, request{target: target}).refused(t, 400, "missing_key")
				up.saw(t, seen)
				req := request{target: target, key: newKey()}
				first := p.send(t, req).fresh(t, 201)
				seen++
				if got := up.last(t).target; got != target {
					t.Errorf("the upstream got %q", got)
				}
				p.send(t, req).replays(t, first)
				up.saw(t, seen)
			})
		}
	})
}
