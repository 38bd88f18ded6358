package e2e

import (
	"net/http"
	"testing"
)

// These tests try to have a request executed twice.

// A caller that hangs up cancels nothing: the request runs to its end and is recorded.
func TestACallerThatHangsUp(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		gone := make(chan struct{}, 1)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			g.pass()
			select {
			case <-r.ctx.Done():
				gone <- struct{}{}
			default:
			}
			created(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x"}
		c := p.dial(t)
		if _, err := c.Write(req.bytes()); err != nil {
			t.Fatal(err)
		}
		g.arrived(t)
		c.Close()
		p.send(t, req).refused(t, 409, "in_progress")
		g.open()

		var again *response
		eventually(t, "recorded", func() bool {
			again = p.send(t, req)
			return again.status != 409
		})
		if again.status != 201 || string(again.body) != `{"execution":1}` || again.get(replayHeader) != "true" {
			t.Errorf("the retry got\n%s", again)
		}
		up.saw(t, 1)
		select {
		case <-gone:
			t.Error("the upstream's request was cancelled")
		default:
		}
	})
}

// net/http's Transport sends a request without a body, or any with GetBody, again when
// a connection that was used before dies under it.
func TestAConnectionThatDiesUnderARequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: hold, path: /hold}
  - {name: legacy, path: /legacy, header_name: X-Idempotency-Key}
  - {name: hidden, path: /hidden, forward_key: false}`})
		seen := 0
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			for _, target := range []string{"/hold", "/legacy", "/hidden"} {
				for _, body := range []string{"", `{"amount":100}`} {
					req := func() request {
						if target == "/legacy" {
							return request{method: method, target: target, body: body, header: []string{"X-Idempotency-Key: " + newKey()}}
						}
						return request{method: method, target: target, body: body, key: newKey()}
					}
					up.answers(created)
					for range 2 { // connections to be used again
						p.send(t, req()).fresh(t, 201)
						seen++
					}
					up.answers(dropped())
					doomed := req()
					p.send(t, doomed).refused(t, 502, "upstream_failed")
					seen++
					up.saw(t, seen)
					up.answers(created)
					p.send(t, doomed).refused(t, 409, "outcome_unknown")
					up.saw(t, seen)
				}
			}
		}
	})
}

// The upstream closes idle connections at any time; then nothing was sent, or nobody
// knows. In no case is a request sent twice.
func TestAnUpstreamThatRestarts(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		port := freePort()
		up := upstreamOn(t, port, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay}`})
		p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
		up.server.Close()
		next := upstreamOn(t, port, created)
		served := false
		for range 50 {
			req := request{key: newKey(), body: newKey()}
			res := p.send(t, req)
			switch {
			case res.status == 201:
				res.fresh(t, 201)
				p.send(t, req).replays(t, res)
				next.executed(t, req.body, 1)
				served = true
			case problemOf(res).Code == "upstream_unreachable":
				res.refused(t, 502, "upstream_unreachable")
				p.send(t, req)
			default:
				res.refused(t, 502, "upstream_failed")
				p.send(t, req).refused(t, 409, "outcome_unknown")
			}
			if served {
				return
			}
		}
		t.Error("the upstream is back, and no request reaches it")
	})
}

// Callers that come again and again, to replicas that come and go.
func TestManyKeysManyCallers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		const keys, tries = 25, 8
		requests := make([]request, keys)
		answers := make([][]pending, keys)
		for i := range requests {
			requests[i] = request{key: newKey(), body: newKey()}
		}
		for range tries {
			for i, r := range requests {
				answers[i] = append(answers[i], p.begin(r))
			}
		}
		for i, r := range requests {
			var first *response
			for _, d := range answers[i] {
				res := d.wait(t)
				switch {
				case res.status == 409:
					res.refused(t, 409, "in_progress")
				case len(res.values(replayHeader)) == 0 && first == nil:
					first = res.fresh(t, 201)
				case len(res.values(replayHeader)) == 0:
					t.Errorf("a second answer that is no replay:\n%s", res)
				}
			}
			if first == nil {
				t.Fatal("nobody got the answer")
			}
			p.send(t, r).replays(t, first)
			up.executed(t, r.body, 1)
		}
		up.saw(t, keys)
	})
}
