package dedup_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
)

func waits(r *dedup.Rule) { r.InFlight, r.WaitTimeout = dedup.InFlightWait, time.Hour }

func waitsReleasing(r *dedup.Rule) { waits(r); releaseUnknown(r) }

// A crowd is requests that wait.
type crowd struct {
	sync.Mutex
	sync.WaitGroup
	decisions []dedup.Decision
	claims    chan *dedup.Claim
	at        []time.Duration // when each decision came
}

// await lets n requests wait for the scene's operation.
func (s *scene) await(ctx context.Context, n int) *crowd {
	c := &crowd{claims: make(chan *dedup.Claim, n)}
	for range n {
		c.Go(func() {
			d := s.guard.Await(ctx, s.rule, s.op)
			c.Lock()
			c.decisions, c.at = append(c.decisions, d), append(c.at, time.Since(s.store.start))
			c.Unlock()
			if d.Claim != nil {
				c.claims <- d.Claim
			}
		})
	}
	synctest.Wait()
	return c
}

// replayed checks that all were answered with this body.
func (c *crowd) replayed(s *scene, n int, body string) {
	s.Helper()
	c.Wait()
	if len(c.decisions) != n {
		s.Fatalf("%d decisions of %d", len(c.decisions), n)
	}
	for _, d := range c.decisions {
		if d.Replay == nil || string(d.Replay.Body) != body || d.Claim != nil || d.Rejection != nil || d.InDoubt != nil {
			s.Fatalf("decision %+v (%v), want a replay of %q", d, d.Rejection, body)
		}
	}
}

// refused checks that all were refused for a reason.
func (c *crowd) refused(s *scene, n int, reason dedup.Reason) {
	s.Helper()
	c.Wait()
	if len(c.decisions) != n {
		s.Fatalf("%d decisions of %d", len(c.decisions), n)
	}
	for _, d := range c.decisions {
		if d.Rejection == nil || d.Rejection.Reason != reason || d.Claim != nil || d.Replay != nil || d.InDoubt != nil {
			s.Fatalf("decision %+v (%v), want %s", d, d.Rejection, reason)
		}
	}
}

func TestWaitersGetTheAnswer(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		c := s.await(s.Context(), 500)
		time.Sleep(5 * time.Second)
		s.must(owner.Complete(s.Context(), answer("the answer")))
		synctest.Wait()
		c.replayed(s, 500, "the answer")
		if last := slices.Max(c.at); last != 5*time.Second {
			s.Errorf("the last answer came after %v, the record after 5s", last)
		}
		if asked := len(s.store.at("claim")); asked > 10 { // the owner, one at first, now and then, one in the end
			s.Errorf("500 waiters asked the store %d times", asked)
		}
	})
}

// Each who waits is judged by its own request.
func TestWaitersAreJudgedOneByOne(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		same := s.await(s.Context(), 2)
		op := s.op
		s.op.Fingerprint = dedup.Fingerprint{9}
		reused := s.await(s.Context(), 2)
		s.op = op
		s.op.ReplayScope = dedup.ReplayScope{9}
		foreign := s.await(s.Context(), 2)
		s.must(owner.Complete(s.Context(), answer("the answer")))
		same.replayed(s, 2, "the answer")
		reused.refused(s, 2, dedup.ReasonKeyReuse)
		foreign.refused(s, 2, dedup.ReasonReplayScope)
	})
}

// Whenever the key is free one takes over, and the others go on waiting.
func TestOneWaiterAtATimeTakesOver(t *testing.T) {
	inBubble(t, waitsReleasing, func(s *scene) {
		owner := s.mustClaim()
		c := s.await(s.Context(), 10)
		for round := range 4 {
			if round%2 == 0 {
				s.must(owner.Release(s.Context()))
			} else {
				s.must(owner.Unknown(s.Context()))
			}
			synctest.Wait()
			if len(c.claims) != 1 {
				s.Fatalf("%d claims in round %d", len(c.claims), round)
			}
			owner = <-c.claims
			time.Sleep(2 * s.rule.Lease) // it lives: its lease is renewed
			synctest.Wait()
			if len(c.claims) != 0 {
				s.Fatal("another claims beside the owner")
			}
		}
		s.must(owner.Complete(s.Context(), answer("at last")))
		c.Wait()
		if n := slices.IndexFunc(c.decisions, func(d dedup.Decision) bool { return d.Replay != nil }); len(c.decisions) != 10 || n != 4 {
			s.Fatalf("decisions: %+v", c.decisions)
		}
	})
}

// The end of the lease wakes, even if nobody tells.
func TestAnOwnerThatDiesIsNotWaitedFor(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		s.other(7 * time.Second)
		c := s.await(s.Context(), 5)
		c.refused(s, 5, dedup.ReasonOutcomeUnknown)
		if c.at[0] < 7*time.Second || c.at[4] > 7*time.Second+50*time.Millisecond {
			s.Errorf("answered after %v, the lease was over after 7s", c.at)
		}
	})
	inBubble(t, waitsReleasing, func(s *scene) {
		s.other(7 * time.Second)
		c := s.await(s.Context(), 5)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if len(c.claims) != 1 || len(c.decisions) != 1 || !c.decisions[0].TakenOver {
			s.Fatalf("decisions: %+v", c.decisions)
		}
		s.must((<-c.claims).Complete(s.Context(), answer("after all")))
		c.Wait()
		if len(c.decisions) != 5 || c.decisions[4].Replay == nil {
			s.Fatalf("decisions: %+v", c.decisions)
		}
	})
}

// A renewal by an owner elsewhere prolongs the wait, and a lost notification costs seconds.
func TestNotificationsMayBeLost(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		token := s.other(7 * time.Second)
		s.deafen()
		c := s.await(s.Context(), 5)
		for range 5 {
			time.Sleep(5 * time.Second)
			if _, err := s.store.Store.Renew(s.Context(), s.op.ID, token, 7*time.Second); err != nil {
				s.Fatal(err)
			}
		}
		if len(c.decisions) != 0 {
			s.Fatalf("decisions: %+v", c.decisions)
		}
		r := answer("elsewhere")
		r.Fingerprint, r.ReplayScope = s.op.Fingerprint, s.op.ReplayScope
		if _, err := s.store.Store.Complete(s.Context(), s.op.ID, token, dedup.Completion{TTL: time.Hour, Blob: r.Encode()}); err != nil {
			s.Fatal(err)
		}
		c.replayed(s, 5, "elsewhere")
		if last := slices.Max(c.at); last > 29*time.Second+time.Millisecond {
			s.Errorf("the answer came after %v, the record after 25s", last)
		}
		if asked := len(s.store.at("claim")); asked > 12 {
			s.Errorf("asked %d times in 25 seconds", asked)
		}
	})
}

// deafen keeps the store from telling anything.
func (s *scene) deafen() {
	s.store.watch = func(dedup.ID) (<-chan struct{}, func()) { return nil, func() {} }
}

// Who leaves, asking for the others or not, leaves nothing, and the others stay.
func TestWaitersLeave(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		var watches int
		s.store.watch = func(id dedup.ID) (<-chan struct{}, func()) {
			wake, stop := s.store.Store.Watch(id)
			watches++
			return wake, func() { watches--; stop() }
		}
		ctx, leave := context.WithCancel(s.Context())
		leaving := s.await(ctx, 5)
		staying := s.await(s.Context(), 5)
		if watches != 1 {
			s.Errorf("%d watches for one key", watches)
		}
		leave()
		leaving.refused(s, 5, dedup.ReasonInProgress)
		for _, d := range leaving.decisions {
			if d.Rejection.RetryAfter <= 0 || d.Rejection.RetryAfter > time.Second {
				s.Errorf("RetryAfter %v", d.Rejection.RetryAfter)
			}
		}
		s.must(owner.Complete(s.Context(), answer("the answer")))
		staying.replayed(s, 5, "the answer")
		if watches != 0 {
			s.Errorf("%d watches are left", watches)
		}
	})
}

// A key that becomes free for one who is leaving is free for the next.
func TestWhoLeavesHoldsNoClaim(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		ctx, leave := context.WithCancel(s.Context())
		c := s.await(ctx, 1)
		s.store.onClaim(func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
			leave() // while the claim is under way
			return s.store.Store.Claim(ctx, req)
		})
		s.must(owner.Release(s.Context()))
		c.refused(s, 1, dedup.ReasonInProgress)
		s.store.onClaim(nil)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// A store that fails meanwhile is asked on; a claim that it may have taken is found again
// by the one who waits, and is in doubt when that one leaves.
func TestTheStoreFailsWhileTheyWait(t *testing.T) {
	for name, fails := range map[string]func(*double, context.Context, dedup.ClaimRequest) (dedup.Found, error){
		"not applied": func(_ *double, _ context.Context, _ dedup.ClaimRequest) (dedup.Found, error) {
			return dedup.Found{}, dedup.ErrNotApplied
		},
		"reply lost": func(d *double, ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
			_, _ = d.Store.Claim(ctx, req)
			return dedup.Found{}, errLost
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, waits, func(s *scene) {
				owner := s.mustClaim()
				ctx, leave := context.WithCancel(s.Context())
				c := s.await(ctx, 3)
				s.store.onClaim(func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
					return fails(s.store, ctx, req)
				})
				s.must(owner.Release(s.Context()))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(c.decisions) != 0 {
					s.Fatalf("decisions: %+v", c.decisions)
				}
				s.store.onClaim(nil)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if len(c.claims) != 1 {
					s.Fatalf("%d claims, decisions: %+v", len(c.claims), c.decisions)
				}
				s.must((<-c.claims).Release(s.Context()))
				time.Sleep(time.Minute)
				synctest.Wait()
				leave()
				c.Wait()
			})
		})
	}
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		ctx, leave := context.WithCancel(s.Context())
		s.store.onClaim(func(context.Context, dedup.ClaimRequest) (dedup.Found, error) { return dedup.Found{}, errLost })
		c := s.await(ctx, 1)
		leave()
		c.Wait()
		if d := c.decisions[0]; d.InDoubt == nil || d.Rejection == nil || d.Rejection.Reason != dedup.ReasonInProgress {
			s.Fatalf("decision %+v", d)
		}
		s.must(owner.Release(s.Context()))
	})
}

// What can't be read is told to all.
func TestWaitersForWhatCantBeRead(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		owner := s.mustClaim()
		c := s.await(s.Context(), 3)
		s.store.onClaim(func(context.Context, dedup.ClaimRequest) (dedup.Found, error) {
			return dedup.Found{}, dedup.ErrUnreadable
		})
		s.must(owner.Unknown(s.Context()))
		c.refused(s, 3, dedup.ReasonRecordUnreadable)
	})
}

// Rules with different policies don't decide for each other.
func TestWaitersOfTwoRules(t *testing.T) {
	inBubble(t, waits, func(s *scene) {
		token := s.other(7 * time.Second)
		holding := s.await(s.Context(), 2)
		s.rule = rule(s.T, waitsReleasing)
		releasing := s.await(s.Context(), 2)
		if _, err := s.store.Store.Complete(s.Context(), s.op.ID, token, dedup.Completion{Unknown: true}); err != nil {
			s.Fatal(err)
		}
		s.must((<-releasing.claims).Complete(s.Context(), answer("again")))
		releasing.Wait()
		holding.Wait() // who asked first found the unknown outcome, or the new owner
		if d := releasing.decisions[1]; d.Replay == nil {
			s.Fatalf("decision %+v (%v)", d, d.Rejection)
		}
	})
}
