package e2e

import (
	"testing"
	"time"
)

// The server of a store is killed, away, paused, and comes back.

// The server of the store is killed between claim and completion, and starts again with what it has on disk.
// The caller gets its answer at once, the record is written when it is back.
func TestFaultTheServerIsKilledBetweenClaimAndCompletion(t *testing.T) {
	eachServer(t, time.Second, func(t *testing.T, s storage, srv server) {
		up := newWireUpstream(t, answers201)
		conf := setup{store: s, upstream: up.url, routes: payments}
		p, other := start(t, conf), start(t, conf)
		old := request{key: newKey(), body: "old"}
		recorded := p.twice(t, old, 201)
		req := request{key: newKey(), body: "x"}
		d, g := running(t, p, up, req)
		srv.kill()
		g.open()
		first := d.wait(t).fresh(t, 201)
		p.send(t, req).refused(t, 503, "store_unavailable")
		up.ran(t, req.key, 1)
		srv.start()
		for _, at := range []*proxy{other, p} {
			at.settled(t, req).replays(t, first)
			at.settled(t, old).replays(t, recorded)
		}
		up.ran(t, req.key, 1)
		up.ran(t, old.key, 1)
		p.grew(t, `store_failures_total{op="complete"}`, 1)
		p.counted(t, map[string]float64{`unknown_outcomes_total{cause="store",route="payments"}`: 0})
		p.waitReady() // by itself
		p.twice(t, request{key: newKey(), body: "y"}, 201)
	})
}

// The same, but the server comes back after the lease: what was not recorded is unknown, and
// is not executed again.
func TestFaultTheServerIsAwayUntilTheLeaseIsOver(t *testing.T) {
	eachServer(t, time.Second, func(t *testing.T, s storage, srv server) {
		up := newWireUpstream(t, answers201)
		conf := setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 600ms}`}
		p, other := start(t, conf), start(t, conf)
		req := request{key: newKey(), body: "x"}
		d, g := running(t, p, up, req)
		srv.kill()
		g.open()
		d.wait(t).fresh(t, 201)
		p.counted(t, map[string]float64{`unknown_outcomes_total{cause="store",route="payments"}`: 1})
		p.logged(t, `"level":"error"`, "never took the end of a claim")
		srv.start()
		other.settled(t, req).refused(t, 409, "outcome_unknown")
		never(t, 2*brief, func() {
			p.settled(t, req).refused(t, 409, "outcome_unknown")
			other.send(t, req).refused(t, 409, "outcome_unknown")
		})
		up.ran(t, req.key, 1)
	})
}

// The processes of the server are stopped for a while: the kernel accepts, nobody answers.
func TestFaultTheServerIsPaused(t *testing.T) {
	eachServer(t, 500*time.Millisecond, func(t *testing.T, s storage, srv server) {
		up := newWireUpstream(t, answers201)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req, next := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
		p.twice(t, request{key: newKey()}, 201)
		d, g := running(t, p, up, req)
		srv.pause()
		began := time.Now()
		p.send(t, next).refused(t, 503, "store_unavailable")
		quickly(t, began)
		g.open()
		first := d.wait(t).fresh(t, 201)
		up.ran(t, next.key, 0)
		srv.resume()
		p.settled(t, req).replays(t, first)
		second := p.settled(t, next)
		if second.status != 201 {
			t.Errorf("the retry got\n%s", second)
		}
		up.ran(t, req.key, 1)
		up.ran(t, next.key, 1)
		p.waitReady()
	})
}

// A real failover of PostgreSQL: its synchronous standby refuses to write while it is one,
// and has everything when it is promoted.
func TestFaultAFailoverOfPostgres(t *testing.T) {
	t.Parallel()
	primary := startPostgresProcess(t, "wal_level=replica")
	standby := standbyOf(t, primary)
	k := newShim(t, primary.addr())
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: postgresVia(k.addr, time.Second), upstream: up.url, routes: payments})
	done, req := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	recorded := p.twice(t, done, 201)
	d, g := running(t, p, up, req)

	k.redirect(standby.addr())
	primary.kill()
	lost := request{key: newKey(), body: "z"}
	p.send(t, lost).refused(t, 503, "store_unavailable")
	p.send(t, done).refused(t, 503, "store_unavailable") // a standby can't be claimed from
	if ready := p.probe("/readyz"); ready != 503 {
		t.Errorf("readyz %d on a standby", ready)
	}
	up.ran(t, lost.key, 0)
	g.open()
	first := d.wait(t).fresh(t, 201)
	standby.exec(t, "SELECT pg_promote()")
	p.settled(t, req).replays(t, first)
	p.settled(t, done).replays(t, recorded)
	p.settled(t, lost).fresh(t, 201)
	p.waitReady()
	for _, r := range []request{done, req, lost} {
		up.ran(t, r.key, 1)
	}
}
