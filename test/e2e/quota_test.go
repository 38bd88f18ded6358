package e2e

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// These tests fill scopes: max_live_keys_per_scope.

// tooMany checks the refusal of a new key, and returns how long the caller is to wait.
func (r *response) tooMany(t *testing.T) time.Duration {
	t.Helper()
	r.refused(t, 429, "too_many_keys")
	seconds, err := strconv.Atoi(r.get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("Retry-After %q, want 1 to 60 seconds", r.get("Retry-After"))
	}
	ms, err := strconv.Atoi(r.get("retry-after-ms"))
	if err != nil || ms < 1000 || ms > 60_000 || ms/1000 != seconds {
		t.Errorf("retry-after-ms %q beside Retry-After %q", r.get("retry-after-ms"), r.get("Retry-After"))
	}
	if got := r.get("x-should-retry"); got != "true" {
		t.Errorf("x-should-retry %q, want true", got)
	}
	return time.Duration(ms) * time.Millisecond
}

func TestQuotaRefusesNewKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if string(r.body) == "held" {
				g.pass()
			}
			created(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, identity_header: X-Account, max_live_keys_per_scope: 3}`})
		alice, bob := []string{"X-Account: alice"}, []string{"X-Account: bob"}

		req := request{key: newKey(), body: "1", header: alice}
		first := p.send(t, req).fresh(t, 201)
		p.send(t, request{key: newKey(), body: "2", header: alice}).fresh(t, 201)
		held := request{key: newKey(), body: "held", header: alice}
		running := p.begin(held)
		g.arrived(t)

		refused := request{key: newKey(), body: "4", header: alice}
		p.send(t, refused).tooMany(t)
		p.send(t, refused).tooMany(t) // it left nothing behind
		p.send(t, request{key: newKey(), body: "5", header: alice}).tooMany(t)
		up.saw(t, 3)

		p.send(t, req).replays(t, first)
		p.send(t, held).refused(t, 409, "in_progress")
		other := req
		other.body = `{"amount":2}`
		p.send(t, other).refused(t, 422, "key_reuse")
		p.send(t, request{key: req.key, body: "1", header: bob}).fresh(t, 201)

		g.open()
		answer := running.wait(t).fresh(t, 201)
		p.send(t, held).replays(t, answer)
		p.send(t, refused).tooMany(t)
		up.saw(t, 4)
		if n := p.metric(t, `idemproxy_rejects_total{reason="too_many_keys",route="payments"}`); n != 4 {
			t.Errorf("%v refusals are counted, want 4", n)
		}
	})
}

func TestQuotaOffAsksForNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		for range 5 {
			p.twice(t, request{key: newKey()}, 201)
		}
		for _, op := range []string{"enroll", "dismiss"} {
			if n := p.metric(t, `idemproxy_store_duration_seconds_count{op="`+op+`"}`); n != 0 {
				t.Errorf("%v times %s without a quota", n, op)
			}
		}
	})
}

// A key whose time is over leaves its place, and so does one that was freed.
func TestQuotaPlacesAreFreed(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if string(r.body) == "busy" {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			created(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: freed, path: /freed, max_live_keys_per_scope: 1, scope_by_route: true}
  - {name: brief, path: /brief, max_live_keys_per_scope: 2, scope_by_route: true, ttl: 8s, lease: 3s}`})
		for range 3 {
			p.send(t, request{target: "/freed", key: newKey(), body: "busy"}).fresh(t, 429)
		}
		p.twice(t, request{target: "/freed", key: newKey()}, 201)
		p.send(t, request{target: "/freed", key: newKey()}).tooMany(t)

		began := time.Now()
		for range 2 {
			p.send(t, request{target: "/brief", key: newKey()}).fresh(t, 201)
		}
		next := request{target: "/brief", key: newKey()}
		if wait := p.send(t, next).tooMany(t); wait > 8*time.Second {
			t.Errorf("wait %v, longer than any key lives", wait)
		}
		eventually(t, "room", func() bool { return p.send(t, next).status == 201 })
		if took := time.Since(began); took < 8*time.Second {
			t.Errorf("there was room after %v", took)
		}
	})
}

func TestQuotaOfManyAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		const callers, limit = 50, 10
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, tenant_header: X-Tenant, max_live_keys_per_scope: 10}`})
		var all []pending
		for range callers {
			all = append(all, p.begin(request{key: newKey(), header: []string{"X-Tenant: acme"}}))
		}
		for range limit {
			g.arrived(t)
		}
		eventually(t, "refusals", func() bool {
			return p.metric(t, `idemproxy_rejects_total{reason="too_many_keys",route="payments"}`) == callers-limit
		})
		g.open()
		fresh := 0
		for _, one := range all {
			if res := one.wait(t); res.status == 201 {
				fresh++
			} else {
				res.tooMany(t)
			}
		}
		if fresh != limit {
			t.Errorf("%d are executed, want %d", fresh, limit)
		}
		up.saw(t, limit)
	})
}

// Replicas count together, and a replica that dies leaves what it held: unknown outcomes,
// which are live keys.
func TestQuotaAcrossReplicas(t *testing.T) {
	s := sharedRedis(t)
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	cfg := setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, max_live_keys_per_scope: 2, lease: 1s}`}
	a, b := start(t, cfg), start(t, cfg)
	lost := request{key: newKey()}
	a.begin(lost)
	g.arrived(t)
	second := b.begin(request{key: newKey()})
	g.arrived(t)
	b.send(t, request{key: newKey()}).tooMany(t)
	a.kill()
	g.open()
	second.wait(t).fresh(t, 201)
	eventually(t, "lease over", func() bool { return b.send(t, lost).get("x-should-retry") == "false" })
	b.send(t, lost).refused(t, 409, "outcome_unknown")
	b.send(t, request{key: newKey()}).tooMany(t)
}
