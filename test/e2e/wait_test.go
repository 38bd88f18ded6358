package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// These tests have rules with in_flight: wait.

const waiting = `  - {name: payments, path: /pay, in_flight: wait, wait_timeout: 60s}`

// wait sends n requests and returns when they wait.
func (p *proxy) wait(t *testing.T, n int, r request) []pending {
	t.Helper()
	before := p.metric(t, `idemproxy_waiting{route="payments"}`)
	var all []pending
	for range n {
		all = append(all, p.begin(r))
	}
	p.grew(t, `waiting{route="payments"}`, before+float64(n))
	return all
}

// waited checks how many waits ended in this way, and that nobody waits any more.
func (p *proxy) waited(t *testing.T, results map[string]float64) {
	t.Helper()
	want := map[string]float64{`waiting{route="payments"}`: 0, "buffered_bytes": 0}
	for result, n := range results {
		want[`waits_total{result="`+result+`",route="payments"}`] = n
	}
	p.counted(t, want)
}

func TestWaitersGetTheReplay(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, func(w http.ResponseWriter, r *received) {
			w.Header()["X-Several"] = []string{"b", "a"}
			created(w, r)
		}))
		p := start(t, setup{store: s, upstream: up.url, routes: waiting})
		req := request{key: newKey(), body: `{"amount":100}`, header: []string{"Authorization: Bearer " + unique("a")}}
		owner := p.begin(req)
		g.arrived(t)
		same := p.wait(t, 5, req)
		other, foreign := req, req
		other.body = `{"amount":101}`
		foreign.header = []string{"Authorization: Bearer " + unique("b")}
		reused, strange := p.wait(t, 1, other), p.wait(t, 1, foreign)
		g.open()
		first := owner.wait(t).fresh(t, 201)
		for _, d := range same {
			d.wait(t).replays(t, first)
		}
		reused[0].wait(t).refused(t, 422, "key_reuse")
		strange[0].wait(t).refused(t, 409, "replay_scope")
		up.saw(t, 1)
		p.waited(t, map[string]float64{"replayed": 5, "refused": 2})
		p.logged(t, `"outcome":"replayed"`, `"waited":`)
		p.send(t, req).replays(t, first)
	})
}

func TestWaitersAtAnotherReplica(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		cfg := setup{store: s, upstream: up.url, routes: waiting}
		a, b := start(t, cfg), start(t, cfg)
		req := request{key: newKey(), body: "x"}
		owner := a.begin(req)
		g.arrived(t)
		all := append(b.wait(t, 10, req), a.wait(t, 3, req)...)
		g.open()
		first := owner.wait(t).fresh(t, 201)
		for _, d := range all {
			d.wait(t).replays(t, first)
		}
		up.saw(t, 1)
		b.waited(t, map[string]float64{"replayed": 10})
		a.waited(t, map[string]float64{"replayed": 3})
	})
}

// However many wait for one key, other keys don't notice, and the store hardly does.
func TestFiveHundredWaitersOnOneKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		slow := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if string(r.body) == "slow" {
				slow.pass()
			}
			created(w, r)
		})
		if s.kind == "redis" { // a Redis of its own, whose connections are counted
			server := startProcess(t)
			s = redisVia(server.addr(), 5*time.Second)
			defer func() {
				if n := strings.Count(server.do("client", "list", "type", "normal").(string), "\n"); n > 20 {
					t.Errorf("%d connections to Redis", n)
				}
				if n := strings.Count(server.do("client", "list", "type", "pubsub").(string), "\n"); n != 1 {
					t.Errorf("%d subscriptions", n)
				}
			}()
		}
		p := start(t, setup{store: s, upstream: up.url, routes: waiting})
		req := request{key: newKey(), body: "slow"}
		owner := p.begin(req)
		slow.arrived(t)
		const waiters = 500
		all := p.wait(t, waiters, req)
		claims := `idemproxy_store_duration_seconds_count{op="claim"}`
		before := p.metric(t, claims)
		began := time.Now()
		const others = 50
		for range others {
			p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
		}
		took := time.Since(began)
		t.Logf("with %d waiters: %v for each of %d other keys", waiters, took/others, others)
		if took > patience { // on a quiet machine a tenth of a second
			t.Errorf("%d other keys took %v", others, took)
		}
		if asked := p.metric(t, claims) - before - others; asked > 5+took.Seconds() {
			t.Errorf("the waiters asked the store %v times in %v", asked, took)
		}
		slow.open()
		first := owner.wait(t).fresh(t, 201)
		for _, d := range all {
			d.wait(t).replays(t, first)
		}
		up.executed(t, "slow", 1)
		p.waited(t, map[string]float64{"replayed": waiters})
	})
}

// A key that is freed goes to one who waits, as often as it is freed.
func TestAFreedKeyIsTakenOverByOneWaiter(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		var running, most atomic.Int32
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			g.pass()
			running.Add(-1)
			if r.n <= 4 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			created(w, r)
		})
		cfg := setup{store: s, upstream: up.url, routes: waiting}
		replicas := []*proxy{start(t, cfg)}
		if s.shared {
			replicas = append(replicas, start(t, cfg))
		}
		req := request{key: newKey(), body: "x"}
		all := []pending{replicas[0].begin(req)}
		g.arrived(t)
		for _, p := range replicas {
			all = append(all, p.wait(t, 6, req)...)
		}
		g.open()
		var first *response
		released, replayed := 0, 0
		var rest []*response
		for _, d := range all {
			switch res := d.wait(t); {
			case res.status == 429:
				released++
			case res.get("X-Idempotent-Replay") == "":
				first = res.fresh(t, 201)
			default:
				rest = append(rest, res)
			}
		}
		for _, res := range rest {
			res.replays(t, first)
			replayed++
		}
		if released != 4 || replayed != len(all)-5 {
			t.Errorf("%d released, %d replayed of %d", released, replayed, len(all))
		}
		if most.Load() != 1 {
			t.Errorf("%d executions at once", most.Load())
		}
		up.saw(t, 5)
	})
}

// An owner that dies is not waited for beyond its lease.
func TestWaitersOfAnOwnerThatDies(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		for _, policy := range []string{"hold", "release"} {
			g := newGate(t)
			up := newUpstream(t, held(g, created))
			cfg := setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, in_flight: wait, wait_timeout: 60s, lease: 2s, on_unknown_outcome: ` + policy + `}`}
			owner, other := start(t, cfg), start(t, cfg)
			req := request{key: newKey(), body: "x"}
			owner.begin(req)
			g.arrived(t)
			all := other.wait(t, 5, req)
			owner.kill()
			g.open()
			if policy == "hold" {
				for _, d := range all {
					d.wait(t).refused(t, 409, "outcome_unknown")
				}
				up.saw(t, 1)
				continue
			}
			var first *response
			var rest []*response
			for _, d := range all {
				if res := d.wait(t); res.get("X-Idempotent-Replay") == "" {
					first = res.fresh(t, 201)
				} else {
					rest = append(rest, res)
				}
			}
			for _, res := range rest {
				res.replays(t, first)
			}
			if len(rest) != 4 {
				t.Errorf("%d replays", len(rest))
			}
			up.saw(t, 2)
			other.waited(t, map[string]float64{"took_over": 1, "replayed": 4})
		}
	})
}

// Who leaves leaves nothing; who waits too long is refused as without waiting.
func TestWaitersThatLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, text(429, "later")))
		p := start(t, setup{store: s, upstream: up.url, routes: waiting + `
  - {name: impatient, path: /impatient, in_flight: wait, wait_timeout: 300ms}`})
		req := request{key: newKey(), body: "x"}
		owner := p.begin(req)
		g.arrived(t)
		var callers []*caller
		for range 5 {
			c := p.dial(t)
			if _, err := c.Write(req.bytes()); err != nil {
				t.Fatal(err)
			}
			callers = append(callers, c)
		}
		p.grew(t, `waiting{route="payments"}`, 5)
		for _, c := range callers {
			c.Close()
		}
		p.counted(t, map[string]float64{`waiting{route="payments"}`: 0, `waits_total{result="left",route="payments"}`: 5})

		slow := request{target: "/impatient", key: newKey(), body: "x"}
		second := p.begin(slow)
		g.arrived(t)
		res := p.send(t, slow)
		res.refused(t, 409, "in_progress")
		if res.get("Retry-After") != "1" || res.get("X-Should-Retry") != "true" {
			t.Errorf("no word about retrying:\n%s", res)
		}
		p.counted(t, map[string]float64{`waits_total{result="timed_out",route="impatient"}`: 1})

		g.open()
		owner.wait(t)
		second.wait(t)
		up.answers(created)
		p.send(t, req).fresh(t, 201) // nobody who left has claimed it
		up.saw(t, 3)
		p.waited(t, nil)
	})
}

// A proxy that ends sends those who wait to another at once, and ends what it executes.
func TestTerminationEndsWaiting(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: waiting, server: "shutdown_grace: 15s"})
		req := request{key: newKey(), body: "x"}
		owner := p.begin(req)
		g.arrived(t)
		all := p.wait(t, 5, req)
		p.terminate()
		for _, d := range all {
			d.wait(t).refused(t, 409, "in_progress")
		}
		g.open()
		owner.wait(t).fresh(t, 201)
		p.ended()
	})
}

// What tells of the end may break; that costs seconds.
func TestWaitersSurviveTheirRedis(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*testing.T, *redisProcess){
		"restarted":            func(_ *testing.T, s *redisProcess) { s.kill(); s.start() },
		"subscriptions killed": func(_ *testing.T, s *redisProcess) { s.do("client", "kill", "type", "pubsub") },
		"all killed": func(_ *testing.T, s *redisProcess) {
			s.do("client", "kill", "type", "normal")
			s.do("client", "kill", "type", "pubsub")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startProcess(t, "--appendonly", "yes", "--appendfsync", "always")
			g := newGate(t)
			up := newUpstream(t, held(g, created))
			cfg := setup{store: redisVia(server.addr(), 5*time.Second), upstream: up.url, routes: waiting}
			a, b := start(t, cfg), start(t, cfg)
			req := request{key: newKey(), body: "x"}
			owner := a.begin(req)
			g.arrived(t)
			all := append(a.wait(t, 3, req), b.wait(t, 3, req)...)
			trouble(t, server)
			g.open()
			first := owner.wait(t).fresh(t, 201)
			for _, d := range all {
				d.wait(t).replays(t, first)
			}
			up.saw(t, 1)
			b.waited(t, map[string]float64{"replayed": 3})

			again := request{key: newKey(), body: "y"} // and then all is as it was
			a.twice(t, again, 201)
		})
	}
}

// A user that may not subscribe waits all the same, and the log says so once.
func TestWaitersWithoutSubscriptions(t *testing.T) {
	t.Parallel()
	server := startProcess(t)
	server.do("acl", "setuser", "worker", "on", ">secret", "~*", "+@all", "-@pubsub", "resetchannels")
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	s := redisVia(server.addr(), 5*time.Second, "username: worker", "password: secret")
	cfg := setup{store: s, upstream: up.url, routes: waiting}
	a, b := start(t, cfg), start(t, cfg)
	req := request{key: newKey(), body: "x"}
	owner := a.begin(req)
	g.arrived(t)
	all := b.wait(t, 3, req)
	b.logged(t, "the store tells nothing of other replicas")
	g.open()
	first := owner.wait(t).fresh(t, 201)
	for _, d := range all {
		d.wait(t).replays(t, first)
	}
	if n := strings.Count(b.log.String(), "the store tells nothing"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	up.saw(t, 1)
}

// Those who wait take no room from those who are served, and not too much of their own.
func TestWaitersLeaveRoom(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if len(r.body) > 1 {
				g.pass()
			}
			created(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: limited(strings.ReplaceAll(waiting, "path: /pay", "path: /pay, max_request_body: 64KiB"), "max_concurrent: 4, max_buffered_bytes: 256KiB")})
		req := request{key: newKey(), body: strings.Repeat("x", 30<<10)}
		owner := p.begin(req)
		g.arrived(t)
		var all []pending
		for range 4 { // one after the other: until it waits, each counts as being served
			all = append(all, p.wait(t, 1, req)...)
		}
		p.send(t, req).refused(t, 409, "in_progress") // too many wait, or with too large bodies
		for range 3 {
			p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
		}
		g.open()
		first := owner.wait(t).fresh(t, 201)
		for _, d := range all {
			d.wait(t).replays(t, first)
		}
		p.waited(t, map[string]float64{"replayed": 4, "no_room": 1})
		up.executed(t, req.body, 1)
	})
}

// Over HTTP/2, too.
func TestWaitersOverHTTP2(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	p := start(t, setup{store: memory(), upstream: up.url, routes: waiting})
	client, key := bothClients(t)["h2c"], newKey()
	ask := func() <-chan *http.Response {
		answer := make(chan *http.Response, 1)
		go func() { answer <- p.ask(t.Context(), t, client, key, "x") }()
		return answer
	}
	owner := ask()
	g.arrived(t)
	waiter := ask()
	p.grew(t, `waiting{route="payments"}`, 1)
	ctx, leave := context.WithCancel(t.Context())
	gone, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/pay", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	gone.Header.Set("Idempotency-Key", key)
	left := make(chan error, 1)
	go func() { _, err := client.Do(gone); left <- err }()
	p.grew(t, `waiting{route="payments"}`, 2)
	leave()
	if err := receive(t, "end of the caller that left", left); err == nil {
		t.Error("who left was answered")
	}
	p.counted(t, map[string]float64{`waiting{route="payments"}`: 1, `waits_total{result="left",route="payments"}`: 1})
	g.open()
	if res := receive(t, "answer", owner); res.StatusCode != 201 || res.Header.Get("X-Idempotent-Replay") != "" {
		t.Errorf("the first answer: %v", res)
	}
	if res := receive(t, "answer", waiter); res.StatusCode != 201 || res.Header.Get("X-Idempotent-Replay") != "true" {
		t.Errorf("the answer to who waited: %v", res)
	}
	up.saw(t, 1)
}

// A double click is executed once however short its window is, also where nobody tells
// those who wait; and the window takes its place among the caller's keys no longer.
func TestWaitersForAWindow(t *testing.T) {
	t.Parallel()
	server := startProcess(t)
	server.do("acl", "setuser", "worker", "on", ">secret", "~*", "+@all", "-@pubsub", "resetchannels")
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	s := redisVia(server.addr(), 5*time.Second, "username: worker", "password: secret")
	cfg := setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, in_flight: wait, wait_timeout: 60s, lease: 3s, max_live_keys_per_scope: 1, missing_header: derive, key_from: [{fingerprint: 3s}]}`}
	a, b := start(t, cfg), start(t, cfg)
	req := request{body: "click"}
	owner := a.begin(req)
	g.arrived(t)
	all := b.wait(t, 3, req)
	claims := b.metric(t, `idemproxy_store_duration_seconds_count{op="claim"}`)
	b.grew(t, `store_duration_seconds_count{op="claim"}`, claims+3) // when questions are seconds apart
	g.open()
	first := owner.wait(t).fresh(t, 201)
	for _, d := range all {
		d.wait(t).replays(t, first)
	}
	up.saw(t, 1)
	eventually(t, "room", func() bool { return b.send(t, request{body: "another"}).status == 201 })
}
