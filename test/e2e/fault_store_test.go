package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Between the proxy and its store everything may get lost or come late: a command, or the
// reply to one that was applied.

// throughShim starts two proxies on one store, the first by way of a shim, with a request
// behind them: the scripts are known to Redis then.
func throughShim(t *testing.T, s storage, timeout time.Duration, conf setup) (k *shim, p, direct *proxy) {
	t.Helper()
	k = newShim(t, s.addr)
	conf.store = s.via(k.addr, timeout)
	p = start(t, conf)
	conf.store = s
	direct = start(t, conf)
	return k, p, direct
}

// The reply to a claim is lost after it was applied. It is recognised when it is repeated:
// the caller does not meet itself.
func TestFaultTheReplyOfAClaimIsLost(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, 5*time.Second, setup{upstream: up.url, routes: bothOutcomes(30 * time.Second)})
		for _, target := range []string{"/hold", "/release"} {
			p.twice(t, request{target: target, key: newKey()}, 201)
			req := request{target: target, key: newKey(), body: "x"}
			lost := k.lose(false)
			first := p.send(t, req).fresh(t, 201)
			receive(t, "loss of the reply", lost)
			up.ran(t, req.key, 1)
			direct.send(t, req).replays(t, first)
			p.send(t, req).replays(t, first)
			up.ran(t, req.key, 1)
		}
		p.counted(t, map[string]float64{`store_failures_total{op="claim"}`: 0})
	})
}

// The reply to a claim never comes. The caller is refused in time, nothing is sent, and
// the key is not held for a lease: the claim is taken back.
func TestFaultTheReplyOfAClaimNeverComes(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, routes: payments})
		p.twice(t, request{key: newKey()}, 201)
		req := request{key: newKey(), body: "x"}
		lost := k.lose(true)
		began := time.Now()
		p.send(t, req).refused(t, 503, "store_unavailable")
		quickly(t, began)
		receive(t, "loss of the reply", lost)
		up.ran(t, req.key, 0)
		first := direct.settled(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.ran(t, req.key, 1)
		p.counted(t, map[string]float64{`store_failures_total{op="claim"}`: 1})
	})
}

// The reply to a completion is lost, with its connection or in silence. The completion
// counts, and is recognised when it is repeated.
func TestFaultTheReplyOfACompletionIsLost(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, routes: payments})
		p.twice(t, request{key: newKey()}, 201)
		for _, stall := range []bool{false, true} {
			g := newGate(t)
			up.does(gated(g, answers201))
			req := request{key: newKey(), body: "x"}
			running := p.begin(req)
			g.arrived(t)
			lost := k.lose(stall)
			g.open()
			receive(t, "loss of the reply", lost)
			first := running.wait(t).fresh(t, 201)
			direct.send(t, req).replays(t, first)
			p.send(t, req).replays(t, first)
			up.ran(t, req.key, 1)
			never(t, time.Second, func() { direct.send(t, req).replays(t, first) }) // the repeated one changes nothing
		}
		p.counted(t, map[string]float64{
			`store_failures_total{op="complete"}`:                    1,
			`unknown_outcomes_total{cause="store",route="payments"}`: 0,
			`lost_leases_total{route="payments"}`:                    0,
		})
	})
}

// The same for the two other ends of a claim: unknown, and released.
func TestFaultTheReplyOfAnotherEndIsLost(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, routes: bothOutcomes(30 * time.Second)})
		p.twice(t, request{target: "/hold", key: newKey()}, 201)
		for _, stall := range []bool{false, true} {
			for target, end := range map[string]act{"/hold": raw(""), "/release": raw("")} {
				g := newGate(t)
				up.does(gated(g, end))
				req := request{target: target, key: newKey(), body: "x"}
				running := p.begin(req)
				g.arrived(t)
				lost := k.lose(stall)
				g.open()
				receive(t, "loss of the reply", lost)
				running.wait(t).refused(t, 502, "upstream_failed")
				up.does(answers201)
				if target == "/hold" {
					direct.send(t, req).refused(t, 409, "outcome_unknown")
					up.ran(t, req.key, 1)
					continue
				}
				first := direct.send(t, req).fresh(t, 201)
				never(t, 500*time.Millisecond, func() { direct.send(t, req).replays(t, first) }) // the repeated release frees nobody else's
				up.ran(t, req.key, 2)
			}
		}
	})
}

// The store accepts connections and never answers, for longer than a lease. Callers are
// refused in time and nothing is sent. When it goes on, it applies what it was sent in
// that time; no key is stuck by that.
func TestFaultTheStoreAcceptsAndNeverAnswers(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		const timeout = 500 * time.Millisecond
		k, p, direct := throughShim(t, s, timeout, setup{upstream: up.url, routes: bothOutcomes(brief)})
		p.twice(t, request{target: "/hold", key: newKey()}, 201)
		k.hold()
		var reqs []request
		for i := range 40 {
			reqs = append(reqs, request{target: []string{"/hold", "/release"}[i%2], key: newKey(), body: "x"})
		}
		for _, wave := range [][]request{reqs[:1], reqs[1:]} { // one alone, and many at once
			began := time.Now()
			var all []pending
			for _, req := range wave {
				all = append(all, p.begin(req))
			}
			for _, d := range all {
				d.wait(t).refused(t, 503, "store_unavailable")
			}
			quickly(t, began)
		}
		if ready, alive := p.probe("/readyz"), p.probe("/healthz"); ready != 503 || alive != 200 {
			t.Errorf("readyz %d, healthz %d; want 503 and 200", ready, alive)
		}
		p.grew(t, `store_failures_total{op="claim"}`, 40)
		time.Sleep(2 * brief) // so that no claim is alive when it is applied
		for _, req := range reqs {
			up.ran(t, req.key, 0)
		}
		k.resume()

		for _, req := range reqs {
			var first *response
			eventually(t, "free", func() bool {
				first = direct.send(t, req)
				code := problemOf(first).Code
				return code != "in_progress" && code != "outcome_unknown" // for a moment, until it is withdrawn
			})
			first.fresh(t, 201)
			up.ran(t, req.key, 1)
		}
		for _, req := range reqs {
			if res := p.settled(t, req); res.status != 201 || res.get(replayHeader) != "true" {
				t.Errorf("the retry got\n%s", res)
			}
			up.ran(t, req.key, 1)
		}
		p.waitReady()
	})
}

// The store is cut off again and again, at any moment. Nobody is executed twice.
func TestFaultTheConnectionsAreCutAgainAndAgain(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 5m}`})
		stop := make(chan struct{})
		cutter := make(chan struct{})
		go func() {
			defer close(cutter)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(5+i%20) * time.Millisecond):
					k.cut()
				}
			}
		}()
		firsts := map[string]*response{}
		reqs := make([]request, 60)
		for i := range reqs {
			reqs[i] = request{key: newKey(), body: fmt.Sprint("body ", i)}
			for _, d := range []pending{p.begin(reqs[i]), p.begin(reqs[i])} {
				switch res := d.wait(t); {
				case res.status == 201 && res.get(replayHeader) == "":
					if firsts[reqs[i].key] != nil {
						t.Fatal("a second fresh answer")
					}
					firsts[reqs[i].key] = res
				case res.status != 201 && res.status != 409 && res.status != 503:
					t.Fatalf("the caller got\n%s", res)
				}
			}
		}
		close(stop)
		<-cutter
		for _, req := range reqs {
			res := direct.settled(t, req)
			if first := firsts[req.key]; first != nil {
				res.replays(t, first)
			} else if res.status != 201 {
				t.Errorf("the retry got\n%s", res)
			}
			up.ran(t, req.key, 1)
		}
		p.counted(t, map[string]float64{`unknown_outcomes_total{cause="store",route="payments"}`: 0})
	})
}

// One slow connection to the store, and many callers. They share it; who gets no turn in time
// is refused; nobody is lost, nobody is executed twice, and it passes.
func TestFaultThePoolIsExhausted(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		k := newShim(t, s.addr)
		one := map[string]string{"redis": "pool_size: 1", "postgres": "max_conns: 1"}[s.kind]
		up := newWireUpstream(t, answers201)
		p := start(t, setup{store: s.via(k.addr, 500*time.Millisecond, one), upstream: up.url, routes: payments})
		p.twice(t, request{key: newKey()}, 201)
		k.slow(100 * time.Millisecond)
		reqs := make([]request, 40)
		all := make([]pending, len(reqs))
		for i := range reqs {
			reqs[i] = request{key: newKey(), body: "x"}
			all[i] = p.begin(reqs[i])
		}
		firsts := map[string]*response{}
		for i, d := range all {
			res := d.wait(t)
			if res.status == 503 {
				res.refused(t, 503, "store_unavailable")
				up.ran(t, reqs[i].key, 0)
				continue
			}
			firsts[reqs[i].key] = res.fresh(t, 201)
		}
		if len(firsts) == 0 {
			t.Error("all were refused")
		}
		k.slow(0)
		for _, req := range reqs {
			res := p.settled(t, req)
			if first := firsts[req.key]; first != nil {
				res.replays(t, first)
			} else if res.status != 201 {
				t.Errorf("the retry got\n%s", res)
			}
			up.ran(t, req.key, 1)
		}
	})
}

// A store has room for a claim and none for its record. That the request was executed is
// remembered all the same, in a small record, so that it never runs again.
func TestFaultARecordThatDoesNotFit(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 8<<10)
	up := newWireUpstream(t, raw(fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s", len(large), large)))
	p := start(t, setup{store: storage{yaml: "type: memory, memory: {max_bytes: 64KiB}"}, upstream: up.url, routes: payments})
	req := request{key: newKey(), body: "x"}
	if res := p.send(t, req).fresh(t, 201); string(res.body) != large {
		t.Errorf("%d bytes came through, want %d", len(res.body), len(large))
	}
	p.send(t, req).refused(t, 409, "response_not_stored")
	up.ran(t, req.key, 1)
	up.does(answers201)
	p.twice(t, request{key: newKey(), body: "x"}, 201) // what fits is kept
	p.send(t, req).refused(t, 409, "response_not_stored")
	up.ran(t, req.key, 1)
}
