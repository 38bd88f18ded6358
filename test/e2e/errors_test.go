package e2e

import (
	"encoding/json"
	"testing"
)

// These tests are about errors.format and errors.codes.

// simply checks that an answer is the proxy's own in the simple format.
func (r *response) simply(t *testing.T, status int, code, line string) {
	t.Helper()
	if r.status != status || r.get("Content-Type") != "application/json" {
		t.Fatalf("the answer is no %d in JSON:\n%s", status, r)
	}
	want, _ := json.Marshal(struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{line, code})
	if string(r.body) != string(want)+"\n" {
		t.Errorf("body %s, want %s", r.body, want)
	}
	if r.get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", r.get("Cache-Control"))
	}
	r.checkSilent(t)
}

func TestErrorsInTheSimpleFormat(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: simple, path: /pay, errors: {format: simple, codes: {key_reuse: IDEMPOTENCY_CONFLICT}}, docs_url: "https://example.com/docs"}
  - {name: conflict, path: /conflict, errors: {format: simple}, mismatch_status: 409}`})
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		busy := p.send(t, req)
		busy.simply(t, 409, "in_progress", "idempotency-key in-flight; retry shortly")
		busy.checkRetry(t, "in_progress")
		if busy.get("Link") != `<https://example.com/docs>; rel="describedby"` {
			t.Errorf("Link %q", busy.get("Link"))
		}
		g.open()
		first := running.wait(t).fresh(t, 201)
		p.send(t, req).replays(t, first)
		other := req
		other.body = "y"
		reused := p.send(t, other)
		reused.simply(t, 422, "IDEMPOTENCY_CONFLICT", "idempotency-key reused with a different request")
		reused.checkRetry(t, "key_reuse")
		p.send(t, request{}).simply(t, 400, "missing_key", "idempotency-key missing")

		up.answers(dropped())
		p.send(t, request{key: newKey()}).simply(t, 502, "upstream_failed", "upstream failed")

		up.answers(created)
		req = request{target: "/conflict", key: newKey(), body: "x"}
		p.send(t, req).fresh(t, 201)
		req.body = "y"
		p.send(t, req).simply(t, 409, "key_reuse", "idempotency-key reused with a different request")

		// What operators see has our own words.
		p.counted(t, map[string]float64{`conflicts_total{reason="key_reuse",route="simple"}`: 1})
		p.logged(t, `"route":"simple"`, `"code":"key_reuse"`)
	})
}

// Another code is the caller's code; the type of the problem is ours.
func TestErrorsWithOtherCodes(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: renamed, path: /pay, errors: {codes: {missing_key: NO_KEY, upstream_unreachable: DOWN}}}
  - {name: plain, path: /plain}`})
		var got problem
		res := p.send(t, request{})
		if err := json.Unmarshal(res.body, &got); err != nil || res.status != 400 || res.get("Content-Type") != "application/problem+json" {
			t.Fatalf("the answer is\n%s", res)
		}
		if got.Code != "NO_KEY" || got.Type != "urn:idemproxy:problem:missing_key" || got.Title != titles()["missing_key"] || got.Detail == "" || got.Error == "" {
			t.Errorf("the problem is %+v", got)
		}
		p.send(t, request{key: "a b"}).refused(t, 400, "invalid_key")
		p.send(t, request{target: "/plain"}).refused(t, 400, "missing_key")
	})
}

// A route has its own words for requests that it lets pass, too.
func TestErrorsOfWhatPasses(t *testing.T) {
	t.Parallel()
	p := start(t, setup{store: memory(), upstream: "http://" + local(freePort()), routes: `  - {name: simple, path: /pay, missing_header: pass-through, errors: {format: simple}}`})
	p.send(t, request{}).simply(t, 502, "upstream_unreachable", "upstream unreachable")
	p.send(t, request{key: newKey()}).simply(t, 502, "upstream_unreachable", "upstream unreachable")
	p.send(t, request{target: "/elsewhere"}).refused(t, 502, "upstream_unreachable")
}
