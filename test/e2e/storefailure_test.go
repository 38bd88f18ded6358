package e2e

import (
	"strings"
	"testing"
	"time"
)

// These tests spoil the store.

const bothPolicies = `
  - {name: reject, path: /reject}
  - {name: pass, path: /pass, on_store_failure: pass-through}`

// quickly fails a test if what was done since took long. A dead store must cost no
// caller more than its timeout, and the rest of a busy machine.
func quickly(t *testing.T, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestTheStoreIsDownAndComesBack(t *testing.T) {
	eachServer(t, 5*time.Second, func(t *testing.T, s storage, srv server) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: bothPolicies})
		req := request{target: "/reject", key: newKey(), body: "x"}
		p.twice(t, req, 201)

		srv.kill()
		req.key = newKey()
		began := time.Now()
		p.send(t, req).refused(t, 503, "store_unavailable")
		quickly(t, began)
		up.saw(t, 1)
		if ready, alive := p.probe("/readyz"), p.probe("/healthz"); ready != 503 || alive != 200 {
			t.Errorf("readyz %d, healthz %d; want 503 and 200", ready, alive)
		}

		unguarded := request{target: "/pass", key: newKey(), body: "passed"}
		began = time.Now()
		p.send(t, unguarded).fresh(t, 201)
		p.send(t, unguarded).fresh(t, 201)
		quickly(t, began)
		up.executed(t, "passed", 2)
		if got := p.metric(t, `idemproxy_requests_total{outcome="passed_through",route="pass"}`); got != 2 {
			t.Errorf("%v requests counted as passed through, want 2", got)
		}
		if got := p.metric(t, `idemproxy_store_failures_total{op="claim"}`); got < 3 {
			t.Errorf("%v failures of the store counted, want 3", got)
		}

		srv.start()
		eventually(t, "served again", func() bool { return p.send(t, req).status == 201 })
		if got := p.send(t, req); len(got.values(replayHeader)) != 1 {
			t.Errorf("no replay after the store came back:\n%s", got)
		}
		p.waitReady()
		up.executed(t, "x", 2)
	})
}

func TestTheStoreIsDownAtTheStart(t *testing.T) {
	eachServer(t, 5*time.Second, func(t *testing.T, s storage, srv server) {
		srv.kill()
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: bothPolicies, unready: true})
		req := request{target: "/reject", key: newKey(), body: "x"}
		p.send(t, req).refused(t, 503, "store_unavailable")
		if ready := p.probe("/readyz"); ready != 503 {
			t.Errorf("readyz %d, want 503", ready)
		}
		up.saw(t, 0)
		srv.start()
		p.waitReady()
		p.twice(t, req, 201)
		up.saw(t, 1)
	})
}

// With ready_requires_store off a replica without its store gets requests: it can pass
// those through that no rule guards.
func TestReadyWithoutTheStore(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	start(t, setup{store: redisVia(local(freePort()), 5*time.Second), upstream: up.url, admin: "ready_requires_store: false", routes: bothPolicies})
}

func TestTheStoreNeverAnswers(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s.via(silent(t), 300*time.Millisecond), upstream: up.url, server: "shutdown_grace: 500ms", routes: bothPolicies, unready: true})
		began := time.Now()
		p.send(t, request{target: "/reject", key: newKey(), body: "x"}).refused(t, 503, "store_unavailable")
		quickly(t, began)
		began = time.Now()
		if ready := p.probe("/readyz"); ready != 503 {
			t.Errorf("readyz %d, want 503", ready)
		}
		quickly(t, began)
		up.saw(t, 0)

		// Many at once are no slower.
		began = time.Now()
		var all []pending
		for range 40 {
			all = append(all, p.begin(request{target: "/reject", key: newKey()}))
		}
		for _, d := range all {
			d.wait(t).refused(t, 503, "store_unavailable")
		}
		quickly(t, began)
		up.saw(t, 0)

		began = time.Now()
		p.send(t, request{target: "/pass", key: newKey()}).fresh(t, 201)
		quickly(t, began)
		up.saw(t, 1)
	})
}

// A claim whose answer was lost is taken back, or recognised: the caller's retry is not
// refused until the lease ends, and runs once.
func TestAStoreThatAnswersTooLate(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		k := newLink(t, s.addr)
		up := newUpstream(t, created)
		p := start(t, setup{store: s.via(k.addr, 500*time.Millisecond), upstream: up.url, routes: bothPolicies})
		p.twice(t, request{target: "/reject", key: newKey(), body: "first"}, 201) // the store is warm now
		req := request{target: "/reject", key: newKey(), body: "x"}
		k.hold()
		p.send(t, req).refused(t, 503, "store_unavailable")
		k.resume() // now the claim is applied, long after its owner gave up
		var first *response
		eventually(t, "served", func() bool {
			first = p.send(t, req)
			return first.status == 201
		})
		first.fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.executed(t, "x", 1)
	})
}

// The store fails while the upstream works: the caller gets the real answer, and the
// record is written once the store is back.
func TestTheStoreFailsDuringARequest(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		k := newLink(t, s.addr)
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s.via(k.addr, 500*time.Millisecond), upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		k.hold()
		g.open()
		first := running.wait(t).fresh(t, 201)
		p.send(t, req).refused(t, 503, "store_unavailable")
		k.cut()
		k.resume()
		var again *response
		eventually(t, "recorded", func() bool {
			again = p.send(t, req)
			return again.status == 201
		})
		again.replays(t, first)
		up.saw(t, 1)
	})
}

// The store fails for longer than the lease: what was not recorded is unknown, and never
// executed again.
func TestTheStoreFailsUntilTheLeaseIsOver(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		k := newLink(t, s.addr)
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		conf := setup{store: s.via(k.addr, 500*time.Millisecond), upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 1s}`}
		p := start(t, conf)
		conf.store = s
		other := start(t, conf)
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		k.hold()
		k.cut()
		eventually(t, "held as unknown", func() bool {
			res := other.send(t, req)
			if problemOf(res).Code == "in_progress" {
				return false
			}
			res.refused(t, 409, "outcome_unknown")
			return true
		})
		g.open()
		running.wait(t).fresh(t, 201) // the real answer
		other.send(t, req).refused(t, 409, "outcome_unknown")
		up.saw(t, 1)
	})
}

// A full store refuses what is new. It forgets nothing that lives.
func TestAFullMemoryStore(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: storage{yaml: "type: memory, memory: {max_entries: 3}"}, upstream: up.url, routes: `  - {name: payments, path: /pay, ttl: 3s, lease: 1s}`})
	requests := make([]request, 3)
	answers := make([]*response, 3)
	for i := range requests {
		requests[i] = request{key: newKey(), body: "x"}
		answers[i] = p.twice(t, requests[i], 201)
	}
	for range 5 {
		p.send(t, request{key: newKey(), body: "x"}).refused(t, 503, "store_unavailable")
	}
	for i := range requests {
		p.send(t, requests[i]).replays(t, answers[i])
	}
	up.saw(t, 3)
	eventually(t, "room again, once something expired", func() bool {
		return p.send(t, request{key: newKey(), body: "x"}).status == 201
	})
}

// Redis has room for a small claim and none for a large record. Whatever becomes of the
// answer, the request never runs again.
func TestARedisThatIsFull(t *testing.T) {
	t.Parallel()
	server := ownRedis(t, freePort())
	client := server.client(t)
	large := strings.Repeat("0123456789abcdef", 50_000)
	g := newGate(t)
	up := newUpstream(t, held(g, text(200, large)))
	p := start(t, setup{store: redisVia(local(server.port), 5*time.Second), upstream: up.url, routes: payments})
	req := request{key: newKey(), body: "x"}
	running := p.begin(req)
	g.arrived(t)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	p.send(t, request{key: newKey(), body: "x"}).refused(t, 503, "store_unavailable")
	g.open()
	first := running.wait(t).fresh(t, 200)
	if string(first.body) != large {
		t.Errorf("%d bytes came through, want %d", len(first.body), len(large))
	}
	switch again := p.send(t, req); problemOf(again).Code {
	case "":
		again.replays(t, first)
	case "response_not_stored":
	default:
		t.Errorf("the retry got\n%s", again)
	}
	up.saw(t, 1)
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if again := p.send(t, req); again.status == 200 {
		again.replays(t, first)
	}
	up.saw(t, 1)
	up.answers(created)
	p.twice(t, request{key: newKey(), body: "x"}, 201)
}

// What Redis forgets of scripts and connections, the proxy knows to make again.
func TestRedisForgetsScriptsAndConnections(t *testing.T) {
	t.Parallel()
	server := ownRedis(t, freePort())
	client := server.client(t)
	up := newUpstream(t, created)
	p := start(t, setup{store: redisVia(local(server.port), 5*time.Second), upstream: up.url, routes: payments})
	for i := range 5 {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p.twice(t, request{key: newKey(), body: "x"}, 201)
		if err := client.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		p.twice(t, request{key: newKey(), body: "x"}, 201)
		up.saw(t, 2*i+2)
	}
}
