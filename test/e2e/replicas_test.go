package e2e

import (
	"testing"
	"time"
)

// These tests have several processes on one store.

func TestFiftyCallersAtTwoReplicas(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, routes: payments}
		replicas := []*proxy{start(t, s), start(t, s)}
		req := request{key: newKey(), body: `{"amount":100}`}

		const callers = 50
		answers := make(chan result, callers)
		for i := range callers {
			d := replicas[i%2].begin(req)
			go func() { answers <- <-d }()
		}
		var first *response
		refused := 0
		for range callers {
			got := receive(t, "answer", answers)
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.res.status == 201 {
				if first != nil {
					t.Fatal("a second 201")
				}
				first = got.res.fresh(t, 201)
				continue
			}
			got.res.refused(t, 409, "in_progress")
			if refused++; refused == callers-1 {
				g.open() // all others were refused while the one ran
			}
		}
		if first == nil || refused != callers-1 {
			t.Fatalf("%d were refused, want %d; the one that ran: %v", refused, callers-1, first)
		}
		up.saw(t, 1)

		var again []pending
		for i := range callers {
			again = append(again, replicas[i%2].begin(req))
		}
		for _, d := range again {
			d.wait(t).replays(t, first)
		}
		up.saw(t, 1)
	})
}

// Nothing is delivered before it is recorded: who has an answer finds it everywhere.
func TestAnAnswerIsRecordedBeforeItIsDelivered(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newUpstream(t, created)
		s := setup{store: shared, upstream: up.url, routes: payments}
		a, b := start(t, s), start(t, s)
		for i := range 50 {
			req := request{key: newKey(), body: "x"}
			first := a.send(t, req).fresh(t, 201)
			b.send(t, req).replays(t, first)
			up.saw(t, i+1)
		}
	})
}

func TestReplayAfterARestart(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newUpstream(t, created)
		s := setup{store: shared, upstream: up.url, routes: payments}
		a, b := start(t, s), start(t, s)
		req := request{key: newKey(), body: "x"}
		first := a.send(t, req).fresh(t, 201)
		a.restart()
		a.send(t, req).replays(t, first)
		b.kill()
		c := start(t, s)
		c.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

// The only process of its kind ends, and is killed; what it recorded is there again.
func TestReplayAfterTheEndOfTheOnlyProcess(t *testing.T) {
	eachLasting(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x"}
		first := p.twice(t, req, 201)
		p.restart()
		p.send(t, req).replays(t, first)
		p.kill()
		p.again()
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

// A replica that dies leaves an outcome that nobody knows.
func TestTheDeathOfAnOwner(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, routes: `
  - {name: hold, path: /hold, lease: 1s, ttl: 6s}
  - {name: release, path: /release, lease: 1s, on_unknown_outcome: release}`}
		owner, other := start(t, s), start(t, s)
		hold := request{target: "/hold", key: newKey(), body: "x"}
		release := request{target: "/release", key: newKey(), body: "x"}
		owner.begin(hold)
		owner.begin(release)
		g.arrived(t)
		g.arrived(t)
		other.send(t, hold).refused(t, 409, "in_progress")
		other.send(t, release).refused(t, 409, "in_progress")
		owner.kill()
		g.open()

		eventually(t, "held as unknown", func() bool {
			res := other.send(t, hold)
			if res.status == 409 && problemOf(res).Code == "in_progress" {
				return false
			}
			res.refused(t, 409, "outcome_unknown")
			return true
		})
		up.saw(t, 2)

		var first *response
		eventually(t, "taken over", func() bool {
			first = other.send(t, release)
			return first.status != 409
		})
		first.fresh(t, 201)
		other.send(t, release).replays(t, first)
		up.saw(t, 3)

		eventually(t, "free after its TTL", func() bool { return other.send(t, hold).status == 201 })
		up.saw(t, 4)
	})
}

// An owner that wakes up late must not overwrite what came after it.
func TestALateOwnerChangesNothing(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 1s, on_unknown_outcome: release}`}
		owner, other := start(t, s), start(t, s)
		req := request{key: newKey(), body: "x"}

		late := owner.begin(req)
		g.arrived(t)
		resume := owner.pause()
		up.answers(created)
		var second *response
		eventually(t, "taken over", func() bool {
			second = other.send(t, req)
			return second.status != 409
		})
		second.fresh(t, 201)
		g.open()
		resume()
		late.wait(t) // the contract doesn't say with what
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			other.send(t, req).replays(t, second)
			owner.send(t, req).replays(t, second)
		}
		up.saw(t, 2)
	})
}

// Nor may it end the claim of the one that came after it, whatever its own request came to.
func TestALateOwnerEndsNoClaim(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		for name, answer := range map[string]handler{"executed": created, "released": text(429, "later"), "dropped": dropped()} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				first, second := newGate(t), newGate(t)
				up := newUpstream(t, held(first, answer))
				s := setup{store: shared, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 1s, on_unknown_outcome: release}`}
				owner, other := start(t, s), start(t, s)
				req := request{key: newKey(), body: "x"}

				late := owner.begin(req)
				first.arrived(t)
				resume := owner.pause()
				up.answers(held(second, created))
				var next pending
				eventually(t, "taken over", func() bool {
					next = other.begin(req)
					select {
					case <-second.arrivals:
						return true
					case got := <-next:
						if got.err != nil {
							t.Fatal(got.err)
						}
						got.res.refused(t, 409, "in_progress")
						return false
					}
				})
				first.open()
				resume()
				late.wait(t) // the contract doesn't say with what
				for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					other.send(t, req).refused(t, 409, "in_progress")
					owner.send(t, req).refused(t, 409, "in_progress")
				}
				second.open()
				answer := next.wait(t).fresh(t, 201)
				other.send(t, req).replays(t, answer)
				owner.send(t, req).replays(t, answer)
				up.saw(t, 2)
			})
		}
	})
}

// With hold, what a paused owner did is still recorded by it if nobody else could act.
func TestAPausedOwnerRecordsWhenItWakes(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 1s}`}
		owner, other := start(t, s), start(t, s)
		req := request{key: newKey(), body: "x"}
		late := owner.begin(req)
		g.arrived(t)
		resume := owner.pause()
		eventually(t, "held as unknown", func() bool {
			return problemOf(other.send(t, req)).Code == "outcome_unknown"
		})
		g.open()
		resume()
		first := late.wait(t).fresh(t, 201)
		// Recorded or unknown, never executed again.
		if again := other.send(t, req); again.status == 201 {
			again.replays(t, first)
		} else {
			again.refused(t, 409, "outcome_unknown")
		}
		up.saw(t, 1)
	})
}
