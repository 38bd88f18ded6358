package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// A claim is its owner's as long as the owner renews it, and no longer.

// bothOutcomes are routes for which only the policy differs.
func bothOutcomes(lease time.Duration) string {
	return fmt.Sprintf(`
  - {name: hold, path: /hold, lease: %v}
  - {name: release, path: /release, lease: %v, on_unknown_outcome: release}`, lease, lease)
}

// everywhere sends a request to each replica until the answer is no longer "in progress".
func everywhere(t *testing.T, r request, replicas ...*proxy) (answers []*response) {
	t.Helper()
	for _, p := range replicas {
		eventually(t, "no longer in progress", func() bool {
			res := p.send(t, r)
			if problemOf(res).Code == "in_progress" {
				return false
			}
			answers = append(answers, res)
			return true
		})
	}
	return answers
}

// A request that runs five times as long as its lease keeps its key, under both policies,
// against every replica.
func TestFaultALeaseIsRenewedWhileTheRequestRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		conf := setup{store: s, upstream: up.url, routes: bothOutcomes(steady)}
		p := start(t, conf)
		other := p
		if s.shared {
			other = start(t, conf)
		}
		hold, release := request{target: "/hold", key: newKey(), body: "x"}, request{target: "/release", key: newKey(), body: "x"}
		running := []pending{p.begin(hold), p.begin(release)}
		g.arrived(t)
		g.arrived(t)
		never(t, 5*steady, func() {
			for _, at := range []*proxy{p, other} {
				at.send(t, hold).refused(t, 409, "in_progress")
				at.send(t, release).refused(t, 409, "in_progress")
			}
		})
		g.open()
		for i, req := range []request{hold, release} {
			first := running[i].wait(t).fresh(t, 201)
			other.send(t, req).replays(t, first)
			up.ran(t, req.key, 1)
		}
		p.counted(t, map[string]float64{`lost_leases_total{route="hold"}`: 0, `lost_leases_total{route="release"}`: 0})
	})
}

// An owner is killed. When its lease is over, its outcome is unknown: held, or taken over
// and executed again, as the rule says.
func TestFaultTheOwnerIsKilled(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		conf := setup{store: shared, upstream: up.url, routes: bothOutcomes(brief)}
		owner, a, b := start(t, conf), start(t, conf), start(t, conf)
		hold, release := request{target: "/hold", key: newKey(), body: "x"}, request{target: "/release", key: newKey(), body: "x"}
		owner.begin(hold)
		owner.begin(release)
		g.arrived(t)
		g.arrived(t)
		owner.kill()
		up.does(answers201)

		for _, res := range everywhere(t, hold, a, b) {
			res.refused(t, 409, "outcome_unknown")
		}
		answers := everywhere(t, release, a, b)
		first := answers[0].fresh(t, 201)
		answers[1].replays(t, first)
		if string(first.body) != `{"execution":3}` {
			t.Errorf("the successor's answer is %q", first.body)
		}
		g.open() // the first execution ends now, and nobody hears it
		never(t, 2*brief, func() {
			for _, p := range []*proxy{a, b} {
				p.send(t, hold).refused(t, 409, "outcome_unknown")
				p.send(t, release).replays(t, first)
			}
		})
		up.ran(t, hold.key, 1)
		up.ran(t, release.key, 2)
		a.grew(t, `conflicts_total{reason="outcome_unknown",route="hold"}`, 1)
		a.counted(t, map[string]float64{`unknown_outcomes_total{cause="lease",route="release"}`: 1})
	})
}

// An owner is paused past its lease, and taken over. When it wakes up, its caller gets
// what it has, and the record is its successor's.
func TestFaultAPausedOwnerIsTakenOver(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		conf := setup{store: shared, upstream: up.url, routes: bothOutcomes(brief)}
		owner, successor := start(t, conf), start(t, conf)
		req := request{target: "/release", key: newKey(), body: "x"}
		late := owner.begin(req)
		g.arrived(t)
		resume := owner.pause()
		up.does(answers201)
		second := everywhere(t, req, successor)[0].fresh(t, 201)
		if string(second.body) != `{"execution":2}` {
			t.Fatalf("the successor's answer is %q", second.body)
		}
		g.open()
		resume()
		first := late.wait(t).fresh(t, 201)
		if string(first.body) != `{"execution":1}` {
			t.Errorf("the old owner's caller got %q", first.body)
		}
		never(t, brief, func() {
			successor.send(t, req).replays(t, second)
			owner.send(t, req).replays(t, second)
		})
		up.ran(t, req.key, 2)
		owner.counted(t, map[string]float64{`lost_leases_total{route="release"}`: 1})
		owner.logged(t, `"outcome":"executed"`, `"lease_lost":true`)
		successor.counted(t, map[string]float64{
			`lost_leases_total{route="release"}`:                    0,
			`unknown_outcomes_total{cause="lease",route="release"}`: 1,
		})
	})
}

// The successor still runs when the old owner wakes up: the old one's end does not end the
// successor's claim.
func TestFaultAPausedOwnerWakesUpWhileItsSuccessorRuns(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g, g2 := newGate(t), newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		conf := setup{store: shared, upstream: up.url, routes: bothOutcomes(steady)}
		owner, successor, third := start(t, conf), start(t, conf), start(t, conf)
		// One ends with an answer, one unknown, one with an answer that frees its key.
		ends := map[string]act{"answer": answers201, "cut": raw(""), "released": raw("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")}
		reqs, late := map[string]request{}, map[string]pending{}
		for name, end := range ends {
			reqs[name] = request{target: "/release", key: newKey(), body: name}
			up.does(gated(g, end))
			late[name] = owner.begin(reqs[name])
			g.arrived(t)
		}
		resume := owner.pause()
		up.does(gated(g2, answers201))
		running := map[string]pending{}
		for name, req := range reqs {
			eventually(t, "taken over", func() bool {
				d := successor.begin(req)
				select {
				case <-g2.arrivals:
					running[name] = d
					return true
				case got := <-d:
					if got.err != nil || problemOf(got.res).Code != "in_progress" {
						t.Fatalf("%v, %v", got.res, got.err)
					}
					return false
				case <-time.After(patience):
					return false
				}
			})
		}
		g.open()
		resume()
		for name, d := range late {
			want := map[string]int{"answer": 201, "cut": 502, "released": 429}[name]
			if res := d.wait(t); res.status != want || res.get(replayHeader) != "" {
				t.Errorf("%s: the old owner's caller got\n%s", name, res)
			}
		}
		never(t, brief, func() {
			for _, req := range reqs {
				third.send(t, req).refused(t, 409, "in_progress")
			}
		})
		g2.open()
		for name, d := range running {
			second := d.wait(t).fresh(t, 201)
			third.send(t, reqs[name]).replays(t, second)
			owner.send(t, reqs[name]).replays(t, second)
			up.ran(t, reqs[name].key, 2)
		}
		owner.counted(t, map[string]float64{`lost_leases_total{route="release"}`: 3})
	})
}

// An owner is cut off from the store for longer than its lease, while its request runs.
func TestFaultAPartitionLongerThanTheLease(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		k := newShim(t, s.addr)
		g := newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		owner := start(t, setup{store: s.via(k.addr, time.Second), upstream: up.url, routes: bothOutcomes(brief)})
		other := start(t, setup{store: s, upstream: up.url, routes: bothOutcomes(brief)})
		hold, release := request{target: "/hold", key: newKey(), body: "x"}, request{target: "/release", key: newKey(), body: "x"}
		lateHold, lateRelease := owner.begin(hold), owner.begin(release)
		g.arrived(t)
		g.arrived(t)
		up.does(answers201)
		k.hold()
		everywhere(t, hold, other)[0].refused(t, 409, "outcome_unknown")
		second := everywhere(t, release, other)[0].fresh(t, 201)
		owner.grew(t, `store_failures_total{op="renew"}`, 1)
		k.cut()
		k.resume()

		g.open()
		first := lateHold.wait(t).fresh(t, 201)
		other.send(t, hold).replays(t, first) // nobody has taken it over, so its record counts
		if old := lateRelease.wait(t).fresh(t, 201); bytes.Equal(old.body, second.body) {
			t.Errorf("the old owner's caller got its successor's answer")
		}
		other.send(t, release).replays(t, second)
		owner.send(t, release).replays(t, second)
		up.ran(t, hold.key, 1)
		up.ran(t, release.key, 2)
		owner.counted(t, map[string]float64{`lost_leases_total{route="hold"}`: 1, `lost_leases_total{route="release"}`: 1})
	})
}

// Renewals get lost, again and again, with their replies or without. The lease holds.
func TestFaultALeaseSurvivesLostRenewals(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, routes: bothOutcomes(6 * time.Second)})
		p.twice(t, request{target: "/hold", key: newKey()}, 201)
		hold, release := request{target: "/hold", key: newKey(), body: "x"}, request{target: "/release", key: newKey(), body: "x"}
		d1, g1 := running(t, p, up, hold)
		d2, g2 := running(t, p, up, release)
		losses := 0
		never(t, 8*time.Second, func() {
			lost := k.lose(false)
			select {
			case <-lost:
				losses++
				time.Sleep(1500 * time.Millisecond) // never two in a row of one claim
			case <-time.After(3 * time.Second):
			}
			direct.send(t, hold).refused(t, 409, "in_progress")
			direct.send(t, release).refused(t, 409, "in_progress")
		})
		if losses == 0 {
			t.Error("no reply was lost")
		}
		g1.open()
		g2.open()
		direct.settled(t, hold).replays(t, d1.wait(t).fresh(t, 201))
		direct.settled(t, release).replays(t, d2.wait(t).fresh(t, 201))
		up.ran(t, hold.key, 1)
		up.ran(t, release.key, 1)
		p.counted(t, map[string]float64{`lost_leases_total{route="hold"}`: 0, `lost_leases_total{route="release"}`: 0})
	})
}

// A request may run longer than its rule's ttl: its claim doesn't expire while it runs.
func TestFaultARequestLongerThanItsTTL(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newWireUpstream(t, gated(g, answers201))
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 2s, ttl: 3s}`})
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		never(t, 7*time.Second, func() { p.send(t, req).refused(t, 409, "in_progress") })
		g.open()
		first := running.wait(t).fresh(t, 201)
		if res := p.send(t, req); res.get(replayHeader) != "" { // unless the machine took a second for that
			res.replays(t, first)
		}
		up.ran(t, req.key, 1)
	})
}
