package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// These tests are about the headers that a rule names.

func TestAliasesOfTheKeyHeader(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: payments, path: /pay, header_name: [Cko-Idempotency-Key, X-Idempotency-Key]}
  - {name: single, path: /single, header_name: PayPal-Request-Id}`})
		k := newKey()
		first := p.send(t, request{body: "x", header: []string{"cko-idempotency-KEY: " + k}}).fresh(t, 201)
		p.send(t, request{body: "x", header: []string{"X-Idempotency-Key: " + k}}).replays(t, first)
		p.send(t, request{key: k, body: "x"}).refused(t, 400, "missing_key") // not a name of this rule
		up.saw(t, 1)

		first = p.send(t, request{target: "/single", header: []string{"PayPal-Request-Id: " + k + "2"}}).fresh(t, 201)
		p.send(t, request{target: "/single", header: []string{"PayPal-Request-Id: " + k + "2"}}).replays(t, first)
		up.saw(t, 2)
	})
}

func TestWhetherTheUpstreamSeesTheKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: forwarded, path: /forwarded}
  - {name: hidden, path: /hidden, forward_key: false}`})
		k := newKey()
		p.send(t, request{target: "/forwarded", key: k}).fresh(t, 201)
		if got := up.last(t).header.Values("Idempotency-Key"); len(got) != 1 || got[0] != k {
			t.Errorf("the upstream got the key as %q", got)
		}
		k = newKey()
		p.send(t, request{target: "/hidden", key: k}).fresh(t, 201)
		if got := up.last(t).header.Values("Idempotency-Key"); len(got) != 0 {
			t.Errorf("the upstream got the key as %q", got)
		}
	})
}

// A caller can't hide from the upstream what the rule relies on.
func TestConnectionHidesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: payments, path: /pay, identity_header: X-Account, tenant_header: X-Tenant}
  - {name: hidden, path: /hidden, forward_key: false}
  - {name: optional, path: /optional, missing_header: pass-through, identity: {headers: [X-Account], on_missing: anonymous}}`})
		k := newKey()
		who := []string{"X-Account: alice", "X-Tenant: wonderland", "X-Hop: gone"}
		req := request{key: k, body: "x", header: append(who, "Connection: Idempotency-Key, X-Account, X-Hop", "Connection: x-tenant, close")}
		first := p.send(t, req).fresh(t, 201)
		got := up.last(t).header
		if got.Get("Idempotency-Key") != k || got.Get("X-Account") != "alice" || got.Get("X-Tenant") != "wonderland" || got.Get("X-Hop") != "" {
			t.Errorf("the upstream got %v", got)
		}
		p.send(t, req).replays(t, first)
		up.saw(t, 1)

		p.send(t, request{target: "/hidden", key: newKey(), header: []string{"Connection: Idempotency-Key"}}).fresh(t, 201)
		if got := up.last(t).header.Values("Idempotency-Key"); len(got) != 0 {
			t.Errorf("the upstream got the key as %q", got)
		}
		p.send(t, request{target: "/optional", header: []string{"X-Account: alice", "Connection: X-Account"}}).fresh(t, 201)
		if got := up.last(t).header.Get("X-Account"); got != "alice" {
			t.Errorf("the upstream got the account %q", got)
		}
	})
}

func TestDroppedResponseHeaders(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
			w.Header().Add("Set-Cookie", "session=1; Path=/, x")
			w.Header().Add("Set-Cookie", "other=2")
			w.Header().Set("X-Trace", "abc")
			w.Header().Set("X-Kept", "yes")
			w.WriteHeader(201)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, drop_response_headers: [set-cookie, X-Trace]}`})
		req := request{key: newKey(), body: "x"}
		first := p.send(t, req).fresh(t, 201)
		if len(first.values("Set-Cookie")) != 2 || first.get("X-Trace") != "abc" {
			t.Errorf("the first caller gets them:\n%s", first)
		}
		again := p.send(t, req)
		again.equals(t, first, "Set-Cookie", "X-Trace", replayHeader)
		if len(again.values("Set-Cookie")) != 0 || len(again.values("X-Trace")) != 0 || again.get("X-Kept") != "yes" {
			t.Errorf("the replay has them:\n%s", again)
		}
		up.saw(t, 1)
	})
}

func TestTheReplayHeader(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
			for _, name := range []string{replayHeader, "Idempotency-Replayed"} {
				w.Header().Set(name, "forged")
			}
			w.WriteHeader(201)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: default, path: /default}
  - {name: renamed, path: /renamed, replay_header: Idempotency-Replayed}
  - {name: none, path: /none, replay_header: ""}
  - {name: optional, path: /optional, missing_header: pass-through}`})
		mine := func(r *response) string {
			return strings.Join(r.values(replayHeader), ",") + "|" + strings.Join(r.values("Idempotency-Replayed"), ",")
		}
		for _, tc := range []struct{ target, first, again string }{
			{"/default", "|forged", "true|forged"},
			{"/renamed", "forged|", "forged|true"},
			{"/none", "forged|forged", "forged|forged"},
		} {
			req := request{target: tc.target, key: newKey()}
			first := p.send(t, req)
			if got := mine(first); got != tc.first {
				t.Errorf("%s: first %q, want %q", tc.target, got, tc.first)
			}
			again := p.send(t, req)
			if got := mine(again); got != tc.again {
				t.Errorf("%s: replay %q, want %q", tc.target, got, tc.again)
			}
			again.equals(t, first, replayHeader, "Idempotency-Replayed")
		}
		up.saw(t, 3)
		if got := mine(p.send(t, request{target: "/optional"})); got != "|forged" {
			t.Errorf("passed through: %q: an upstream may not claim a replay where a rule would", got)
		}
	})
}

func TestTheLinkToTheDocuments(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: documented, path: /pay, docs_url: "https://example.com/docs/idempotency"}
  - {name: silent, path: /silent}`})
		res := p.send(t, request{body: "x"})
		res.refused(t, 400, "missing_key")
		if got := res.values("Link"); len(got) != 1 || got[0] != `<https://example.com/docs/idempotency>; rel="describedby"` {
			t.Errorf("Link %q", got)
		}
		req := request{key: newKey()}
		for range 2 {
			if got := p.send(t, req).values("Link"); len(got) != 0 {
				t.Errorf("an answer of the upstream has Link %q", got)
			}
		}
		if got := p.send(t, request{target: "/silent"}).values("Link"); len(got) != 0 {
			t.Errorf("Link %q without docs_url", got)
		}
	})
}

// The headers of a request reach the upstream as they were sent.
func TestRequestHeadersReachTheUpstream(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: payments, path: /pay}
  - {name: optional, path: /optional, missing_header: pass-through}`})
		body := allBytes()
		for _, target := range []string{"/pay", "/optional", "/unmatched"} {
			header := []string{"Authorization: Bearer 0123456789abcdef", "X-Many: b", "X-Many: a, c", "Cookie: a=1; b=2", "Accept-Encoding: br;q=0.5", "User-Agent: ", "Content-Type: application/octet-stream", "X-Name: caf\xe9"}
			req := request{target: target, body: body, header: header}
			if target == "/pay" {
				req.key = newKey()
			}
			p.send(t, req).fresh(t, 201)
			got := up.last(t)
			if string(got.body) != body || got.err != nil || got.host != "service.example" || got.method != "POST" {
				t.Errorf("%s: the upstream got %d bytes (%v) for %s of %s", target, len(got.body), got.err, got.method, got.host)
			}
			for name, want := range map[string]string{
				"Authorization": "Bearer 0123456789abcdef", "X-Many": "b|a, c", "Cookie": "a=1; b=2", "Accept-Encoding": "br;q=0.5",
				"Content-Type": "application/octet-stream", "X-Name": "caf\xe9", "Content-Length": "256", "User-Agent": "", "Transfer-Encoding": "",
			} {
				if g := strings.Join(got.header.Values(name), "|"); g != want {
					t.Errorf("%s: the upstream got %s %q, want %q", target, name, g, want)
				}
			}
			if got.header.Get("X-Forwarded-For") != "127.0.0.1" || got.header.Get("X-Forwarded-Proto") != "http" || got.header.Get("X-Forwarded-Host") != "service.example" {
				t.Errorf("%s: the upstream got X-Forwarded headers %v", target, got.header)
			}
		}
	})
}
