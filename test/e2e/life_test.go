package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// These tests go through the life of a key, contract §2.

const payments = `  - {name: payments, path: /pay}`

func TestAKeyRunsOnceAndReplays(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: `{"amount":100}`}

		first := p.send(t, req).fresh(t, 201)
		if string(first.body) != `{"execution":1}` {
			t.Fatalf("body %q", first.body)
		}
		for range 3 {
			p.send(t, req).replays(t, first)
		}
		up.saw(t, 1)

		req.key = newKey()
		p.send(t, req).fresh(t, 201)
		up.saw(t, 2)
	})
}

func TestAKeyInProgressIsRefusedAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: `{"amount":100}`}

		running := p.begin(req)
		g.arrived(t)
		p.send(t, req).refused(t, 409, "in_progress")
		other := req
		other.body, other.header = `{"amount":999}`, []string{"Authorization: Bearer somebody-else-entirely"}
		p.send(t, other).refused(t, 409, "in_progress") // whatever the payload

		g.open()
		first := running.wait(t).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

func TestAKeyUsedForAnotherRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: orders, path: "/orders/{rest...}"}
  - {name: old, path: "/old/{rest...}", mismatch_status: 409}`})
		for _, prefix := range []string{"/orders", "/old"} {
			status := map[string]int{"/orders": 422, "/old": 409}[prefix]
			first := request{key: newKey(), target: prefix + "/1?currency=eur", body: `{"amount":100}`}
			answer := p.send(t, first).fresh(t, 201)
			for name, change := range map[string]func(*request){
				"method": func(r *request) { r.method = "PUT" },
				"path":   func(r *request) { r.target = prefix + "/2?currency=eur" },
				"query":  func(r *request) { r.target = prefix + "/1?currency=usd" },
				"body":   func(r *request) { r.body = `{"amount":101}` },
			} {
				t.Run(prefix+" "+name, func(t *testing.T) {
					other := first
					change(&other)
					p.send(t, other).refused(t, status, "key_reuse")
				})
			}
			p.send(t, first).replays(t, answer)
		}
		up.saw(t, 2)
	})
}

func TestOtherCredentialsGetNoReplay(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: bound, path: /bound}
  - {name: session, path: /session, replay_scope_headers: [Cookie, X-Session]}
  - {name: open, path: /open, replay_scope_headers: []}`})
		alice, mallory := "Authorization: Bearer alice-0123456789", "Authorization: Bearer mallory-0123456789"

		req := request{target: "/bound", key: newKey(), body: "x", header: []string{alice}}
		first := p.send(t, req).fresh(t, 201)
		for _, header := range [][]string{{mallory}, nil, {alice, alice}} {
			other := req
			other.header = header
			p.send(t, other).refused(t, 409, "replay_scope")
		}
		p.send(t, req).replays(t, first)

		req = request{target: "/session", key: newKey(), header: []string{"X-Session: 1", alice}}
		first = p.send(t, req).fresh(t, 201)
		req.header = []string{"X-Session: 1", mallory}
		p.send(t, req).replays(t, first)
		req.header = []string{"Cookie: 1", alice}
		p.send(t, req).refused(t, 409, "replay_scope")

		req = request{target: "/open", key: newKey(), header: []string{alice}}
		first = p.send(t, req).fresh(t, 201)
		req.header = []string{mallory}
		p.send(t, req).replays(t, first)
		up.saw(t, 3)
	})
}

func TestAnAnswerTooLargeToKeep(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		fits, large := strings.Repeat("f", 64<<10), strings.Repeat("0123456789abcdef", 100_000)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			switch string(r.body) {
			case "fits":
				text(201, fits)(w, r)
			case "one more":
				text(201, fits+"f")(w, r)
			default:
				w.Header().Set("Trailer", "X-Sum")
				text(200, large)(w, r)
				w.Header().Set("X-Sum", "12345")
			}
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, max_response_body: 64KiB}`})

		req := request{key: newKey(), body: "fits"}
		p.twice(t, req, 201)

		req = request{key: newKey(), body: "one more"}
		if res := p.send(t, req).fresh(t, 201); string(res.body) != fits+"f" {
			t.Errorf("%d bytes came through, want %d", len(res.body), len(fits)+1)
		}
		p.send(t, req).refused(t, 409, "response_not_stored")

		req = request{key: newKey(), body: "large"}
		res := p.send(t, req).fresh(t, 200)
		if string(res.body) != large {
			t.Errorf("%d bytes came through, want %d", len(res.body), len(large))
		}
		if len(res.trailers) != 1 || res.trailers[0].value != "12345" {
			t.Errorf("trailers %q", res.trailers)
		}
		p.send(t, req).refused(t, 409, "response_not_stored")
		req.body = "large, and another"
		p.send(t, req).refused(t, 422, "key_reuse") // it is that first
		up.saw(t, 3)
	})
}

func TestATimeoutLeavesTheOutcomeUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 300ms", routes: `
  - {name: hold, path: /hold}
  - {name: release, path: /release, on_unknown_outcome: release}`})

		hold := request{target: "/hold", key: newKey(), body: "x"}
		p.send(t, hold).refused(t, 504, "upstream_timeout")
		p.send(t, hold).refused(t, 409, "outcome_unknown")
		other := hold
		other.body = "y"
		p.send(t, other).refused(t, 409, "outcome_unknown")
		up.saw(t, 1)

		release := request{target: "/release", key: newKey(), body: "x"}
		p.send(t, release).refused(t, 504, "upstream_timeout")
		up.saw(t, 2)
		g.open()
		first := p.send(t, release).fresh(t, 201)
		p.send(t, release).replays(t, first)
		p.send(t, hold).refused(t, 409, "outcome_unknown")
		up.saw(t, 3)
	})
}

// The time runs to the answer's last byte: an answer that stalls halfway is none.
func TestAnAnswerThatStallsTimesOut(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
			w.WriteHeader(200)
			w.Write([]byte("half of the ans"))
			http.NewResponseController(w).Flush()
			g.pass()
		})
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 300ms", routes: payments})
		req := request{key: newKey(), body: "x"}
		p.send(t, req).refused(t, 504, "upstream_timeout")
		p.send(t, req).refused(t, 409, "outcome_unknown")
		up.saw(t, 1)
	})
}

func TestAnUnreachableUpstreamFreesTheKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		port := freePort()
		p := start(t, setup{store: s, upstream: "http://" + local(port), routes: payments})
		req := request{key: newKey(), body: "x"}
		p.send(t, req).refused(t, 502, "upstream_unreachable")
		p.send(t, req).refused(t, 502, "upstream_unreachable")

		up := upstreamOn(t, port, created)
		first := p.send(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

func TestAnIncompleteAnswerIsNone(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: hold, path: /hold}
  - {name: release, path: /release, on_unknown_outcome: release}`})
		seen := 0
		for name, raw := range map[string]string{
			"no answer":         "",
			"cut in the head":   "HTTP/1.1 201 Created\r\nContent-Le",
			"cut in the body":   "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nonly this",
			"cut between":       "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n",
			"cut in a chunk":    "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nonly this",
			"cut after chunks":  "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
			"protocol switched": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
			"not HTTP":          "SSH-2.0-OpenSSH_9.6\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				up.answers(hijacked(raw))
				hold := request{target: "/hold", key: newKey(), body: "x"}
				p.send(t, hold).refused(t, 502, "upstream_failed")
				release := request{target: "/release", key: newKey(), body: "x"}
				p.send(t, release).refused(t, 502, "upstream_failed")
				up.saw(t, seen+2)

				up.answers(created)
				p.send(t, hold).refused(t, 409, "outcome_unknown")
				up.saw(t, seen+2)
				p.send(t, release).fresh(t, 201)
				up.saw(t, seen+3)
				seen += 3
			})
		}
	})
}

// The lease of a claim is renewed while its request runs, however long that is.
func TestALongRequestKeepsItsKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 900ms, on_unknown_outcome: release}`})
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			p.send(t, req).refused(t, 409, "in_progress")
		}
		g.open()
		first := running.wait(t).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

func TestARecordEndsWithItsTTL(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		const ttl = 1500 * time.Millisecond
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, ttl: 1500ms, lease: 1s}`})
		req := request{key: newKey(), body: "x"}
		first := p.send(t, req).fresh(t, 201)
		recorded := time.Now() // or a little earlier
		var second *response
		eventually(t, "forgotten", func() bool { // although it is replayed all the time
			second = p.send(t, req)
			if len(second.values(replayHeader)) > 0 {
				second.replays(t, first)
				return false
			}
			return true
		})
		if lived := time.Since(recorded); lived < ttl-500*time.Millisecond {
			t.Errorf("the record lived %v, want %v", lived, ttl)
		}
		second.fresh(t, 201)
		up.saw(t, 2)
	})
}

// The TTL of a record runs from its completion, not from its claim.
func TestTheTTLBeginsWithCompletion(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		const ttl = 4 * time.Second
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, ttl: 4s, lease: 1s}`})
		req := request{key: newKey(), body: "x"}
		claimed := time.Now()
		running := p.begin(req)
		g.arrived(t)
		time.AfterFunc(3*time.Second, g.open)
		first := running.wait(t).fresh(t, 201)
		completed := time.Now()
		for time.Since(claimed) < ttl+time.Second { // the claim's own TTL would be over
			again := p.send(t, req)
			if time.Since(completed) < ttl-500*time.Millisecond {
				again.replays(t, first)
			}
			time.Sleep(100 * time.Millisecond)
		}
		up.saw(t, 1)
	})
}

// An unknown outcome is held for a TTL from its claim; then the key is free.
func TestAnUnknownOutcomeEndsWithItsTTL(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, dropped())
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, ttl: 2s, lease: 1s}`})
		req := request{key: newKey(), body: "x"}
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, req).refused(t, 409, "outcome_unknown")
		up.saw(t, 1)
		up.answers(created)
		eventually(t, "free again", func() bool {
			res := p.send(t, req)
			if res.status == 409 {
				res.refused(t, 409, "outcome_unknown")
			}
			return res.status == 201
		})
		up.saw(t, 2)
	})
}

func TestAnswersThatReleaseTheKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: default, path: /default}
  - {name: custom, path: /custom, release_statuses: [404, "5xx"]}
  - {name: none, path: /none, release_statuses: []}`})
		seen := 0
		for _, tc := range []struct {
			target   string
			status   int
			released bool
		}{
			{"/default", 401, true},
			{"/default", 429, true},
			{"/default", 400, false},
			{"/default", 402, false},
			{"/default", 403, false},
			{"/default", 404, false},
			{"/default", 409, false},
			{"/default", 422, false},
			{"/default", 500, false},
			{"/default", 502, false},
			{"/default", 503, false},
			{"/default", 504, false},
			{"/default", 200, false},
			{"/default", 302, false},
			{"/custom", 404, true},
			{"/custom", 500, true},
			{"/custom", 503, true},
			{"/custom", 599, true},
			{"/custom", 401, false},
			{"/custom", 429, false},
			{"/none", 401, false},
			{"/none", 429, false},
		} {
			up.answers(func(w http.ResponseWriter, r *received) {
				w.Header().Set("Retry-After", "7")
				text(tc.status, "no")(w, r)
			})
			req := request{target: tc.target, key: newKey(), body: "x"}
			first := p.send(t, req).fresh(t, tc.status)
			if string(first.body) != "no" || first.get("Retry-After") != "7" {
				t.Errorf("%s %d: the upstream's answer came as\n%s", tc.target, tc.status, first)
			}
			seen++
			up.answers(created)
			if again := p.send(t, req); tc.released {
				again.fresh(t, 201)
				seen++
				p.send(t, req).replays(t, again)
			} else {
				again.replays(t, first)
			}
			up.saw(t, seen)
		}
	})
}
