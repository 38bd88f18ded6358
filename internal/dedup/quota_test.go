package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
)

// atMost bounds the live keys of a scope, for records that live an hour.
func atMost(limit int) func(*dedup.Rule) {
	return func(r *dedup.Rule) { r.MaxLiveKeysPerScope, r.TTL = limit, time.Hour }
}

// inScope runs f with a scene whose rule has a quota; key names the next operation.
func inScope(t *testing.T, change func(*dedup.Rule), f func(s *scene, key func(name any))) {
	t.Helper()
	inBubble(t, change, func(s *scene) {
		s.op.Scope = dedup.Scope{}.Name()
		f(s, func(name any) { s.op.ID = dedup.Scope{}.ID(dedup.Key(fmt.Sprint(name))) })
	})
}

// TestQuotaOffAsksForNothing: whatever becomes of a key.
func TestQuotaOffAsksForNothing(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.must(s.mustClaim().Release(s.Context()))
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		s.mustReplay()
		synctest.Wait()
		if n := len(s.store.at("enroll")) + len(s.store.at("dismiss")); n != 0 {
			t.Errorf("%d calls of the register", n)
		}
	})
}

// TestQuotaRefusesNewKeysOnly: what lives in a full scope is answered as ever, by one
// round trip.
func TestQuotaRefusesNewKeysOnly(t *testing.T) {
	inScope(t, atMost(3), func(s *scene, key func(any)) {
		key("done")
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		key("unknown")
		s.must(s.mustClaim().Unknown(s.Context()))
		key("running")
		running := s.mustClaim()
		synctest.Wait()
		before := len(s.store.at("enroll"))

		key("done")
		s.mustReplay()
		s.op.Fingerprint[0]++
		s.mustReject(dedup.ReasonKeyReuse)
		s.op.Fingerprint[0]--
		key("unknown")
		s.mustReject(dedup.ReasonOutcomeUnknown)
		key("running")
		s.mustReject(dedup.ReasonInProgress)
		if n := len(s.store.at("enroll")) - before; n != 0 {
			t.Errorf("%d enrolments of keys that live", n)
		}

		key("new")
		for range 2 { // the key stays free: the second is refused for the same reason
			r := s.mustReject(dedup.ReasonTooManyKeys)
			wantRejection(t, r, dedup.ReasonTooManyKeys, "(3)")
			if r.RetryAfter != time.Minute || r.Err != nil {
				t.Errorf("retry after %v, cause %v", r.RetryAfter, r.Err)
			}
		}
		s.op.Scope = dedup.Scope{Version: "another"}.Name()
		s.must(s.mustClaim().Release(s.Context()))
		s.op.Scope = dedup.Scope{}.Name()
		s.mustReject(dedup.ReasonTooManyKeys)
		s.must(running.Release(s.Context()))
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestQuotaRetryAfter is until the first key expires, between a second and a minute.
func TestQuotaRetryAfter(t *testing.T) {
	inScope(t, atMost(1), func(s *scene, key func(any)) {
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		key("new")
		for _, tc := range []struct{ after, want time.Duration }{
			{0, time.Minute},
			{59 * time.Minute, time.Minute},
			{15 * time.Second, 45 * time.Second},
			{44500 * time.Millisecond, time.Second},
		} {
			time.Sleep(tc.after)
			if got := s.mustReject(dedup.ReasonTooManyKeys).RetryAfter; got != tc.want {
				t.Errorf("retry after %v, want %v", got, tc.want)
			}
		}
		time.Sleep(500 * time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestQuotaCountsARecordFromItsCompletion, and a claim for as long as it is renewed.
func TestQuotaCountsARecordFromItsCompletion(t *testing.T) {
	inScope(t, func(r *dedup.Rule) { r.MaxLiveKeysPerScope, r.TTL, r.Lease = 1, time.Minute, 30*time.Second }, func(s *scene, key func(any)) {
		long := s.mustClaim()
		key("new")
		time.Sleep(3 * time.Minute)
		s.mustReject(dedup.ReasonTooManyKeys)
		s.must(long.Complete(s.Context(), answer("ok")))
		time.Sleep(59 * time.Second)
		s.mustReject(dedup.ReasonTooManyKeys)
		time.Sleep(time.Second)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestQuotaCountsWhatTheRegisterLost as soon as it is completed.
func TestQuotaCountsWhatTheRegisterLost(t *testing.T) {
	inScope(t, atMost(1), func(s *scene, key func(any)) {
		var e dedup.Enrolment
		s.store.enroll = func(ctx context.Context, now dedup.Enrolment) (time.Duration, error) {
			e = now
			return s.store.Store.Enroll(ctx, now)
		}
		first := s.mustClaim()
		s.must(s.store.Store.Dismiss(s.Context(), e.Scope, e.ID, e.Token))
		s.must(first.Complete(s.Context(), answer("ok")))
		synctest.Wait()
		key("new")
		s.mustReject(dedup.ReasonTooManyKeys)
	})
}

// TestQuotaCountsATakeoverOnce, and lets it into a full scope: the key is there already.
func TestQuotaCountsATakeoverOnce(t *testing.T) {
	inScope(t, func(r *dedup.Rule) { atMost(2)(r); releaseUnknown(r) }, func(s *scene, key func(any)) {
		s.store.failRenewals(true)
		lost := s.mustClaim()
		time.Sleep(time.Minute)
		s.store.failRenewals(false)
		successor := s.mustClaim()
		key("second")
		second := s.mustClaim()
		key("third")
		s.mustReject(dedup.ReasonTooManyKeys)
		if err := lost.Release(s.Context()); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("release: %v, want ErrFenced", err)
		}
		s.mustReject(dedup.ReasonTooManyKeys) // the late owner took nothing from its successor

		s.must(second.Complete(s.Context(), answer("ok")))
		s.must(successor.Release(s.Context()))
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		synctest.Wait()

		key("old") // from before there was a quota, or somebody died before it was enrolled
		s.other(time.Minute)
		time.Sleep(time.Minute)
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
	})
}

// TestQuotaWhenTheRegisterFails: nothing is sent, and whatever became of the enrolment,
// both it and the claim are taken back.
func TestQuotaWhenTheRegisterFails(t *testing.T) {
	unreadable := fmt.Errorf("enroll: %w", dedup.ErrUnreadable)
	for name, tc := range map[string]struct {
		applied bool
		err     error
		want    dedup.Reason
	}{
		"lost, applied":     {true, errLost, "store_unavailable"},
		"lost, not applied": {false, errLost, "store_unavailable"},
		"full":              {false, fmt.Errorf("%w: %w", dedup.ErrNotApplied, dedup.ErrStoreFull), "store_unavailable"},
		"unreadable":        {false, unreadable, "record_unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			inScope(t, atMost(1), func(s *scene, key func(any)) {
				s.store.enroll = func(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
					if tc.applied {
						_, _ = s.store.Store.Enroll(ctx, e)
					}
					return 0, tc.err
				}
				d := s.begin()
				s.store.enroll = nil
				wantRejection(t, d.Rejection, tc.want, "nothing was sent on")
				if d.Claim != nil || d.InDoubt == nil || !errors.Is(d.Rejection, tc.err) {
					t.Fatalf("decision %+v, want a claim in doubt", d)
				}
				s.must(d.InDoubt.Withdraw(context.Background()))
				key("another")
				s.must(s.mustClaim().Release(s.Context()))
				key("key")
				s.must(s.mustClaim().Release(s.Context()))
				if n := len(s.store.at("renew")); n != 0 {
					t.Errorf("%d renewals of a claim that nobody has", n)
				}
			})
		})
	}
}

// TestQuotaPassesWhenTheRegisterFails: under pass-through a claim that can't be counted is
// one all the same, and its request executed once.
func TestQuotaPassesWhenTheRegisterFails(t *testing.T) {
	passing := func(r *dedup.Rule) { atMost(1)(r); r.OnStoreFailure = dedup.StorePassThrough }
	inScope(t, passing, func(s *scene, _ func(any)) {
		s.store.enroll = func(context.Context, dedup.Enrolment) (time.Duration, error) { return 0, errLost }
		claim := s.mustClaim()
		s.mustReject(dedup.ReasonInProgress)
		s.must(claim.Complete(s.Context(), answer("ok")))
		s.mustReplay()
	})
}

// TestQuotaWhenTheReleaseFails: a refused key whose claim may still be there is taken back
// later; one that was freed and can't be dismissed is tried again.
func TestQuotaWhenTheReleaseFails(t *testing.T) {
	inScope(t, atMost(1), func(s *scene, key func(any)) {
		first := s.mustClaim()
		key("new")
		s.store.release = func(context.Context, dedup.ID, dedup.Token) (dedup.Verdict, error) { return 0, errLost }
		d := s.begin()
		s.store.release = nil
		wantRejection(t, d.Rejection, dedup.ReasonTooManyKeys, "")
		if d.InDoubt == nil {
			t.Fatal("there is nothing to withdraw")
		}
		s.must(d.InDoubt.Withdraw(context.Background()))
		s.mustReject(dedup.ReasonTooManyKeys)

		s.store.dismiss = func(context.Context, dedup.ScopeID, dedup.ID, dedup.Token) error { return errLost }
		if err := first.Release(s.Context()); !errors.Is(err, errLost) {
			t.Errorf("release: %v", err)
		}
		s.store.dismiss = nil
		s.mustReject(dedup.ReasonTooManyKeys)
		s.must(first.Persist(s.Context(), first.Release))
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestQuotaAnsweredAfterTheLease: by then another may execute.
func TestQuotaAnsweredAfterTheLease(t *testing.T) {
	inScope(t, atMost(1), func(s *scene, _ func(any)) {
		s.store.enroll = func(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
			time.Sleep(s.rule.Lease)
			return s.store.Store.Enroll(ctx, e)
		}
		d := s.begin()
		s.store.enroll = nil
		wantRejection(t, d.Rejection, dedup.ReasonStoreUnavailable, "")
		if d.Claim != nil || d.InDoubt == nil {
			t.Fatalf("decision %+v, want a claim in doubt", d)
		}
		s.must(d.InDoubt.Withdraw(context.Background()))
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestQuotaOfManyAtOnce: exactly as many as there may be.
func TestQuotaOfManyAtOnce(t *testing.T) {
	inScope(t, atMost(10), func(s *scene, key func(any)) {
		decisions := make(chan dedup.Decision, 50)
		var wg sync.WaitGroup
		for i := range 50 {
			key(i)
			op := s.op
			wg.Go(func() { decisions <- s.guard.Begin(s.Context(), s.rule, op) })
		}
		wg.Wait()
		close(decisions)
		claims := 0
		for d := range decisions {
			if d.Claim == nil {
				wantRejection(t, d.Rejection, dedup.ReasonTooManyKeys, "")
				continue
			}
			claims++
			s.must(d.Claim.Release(s.Context()))
		}
		if claims != 10 {
			t.Errorf("%d are executed, want 10", claims)
		}
	})
}

// TestQuotaInAnyOrder plays random lives of keys, and compares with those that live.
func TestQuotaInAnyOrder(t *testing.T) {
	const limit, keys, steps = 3, 6, 60
	for seed := range uint64(200) {
		// Renewals come at the same instants as all else.
		inScope(t, func(r *dedup.Rule) { atMost(limit)(r); r.Lease = 9 * time.Minute }, func(s *scene, key func(any)) {
			random := rand.New(rand.NewPCG(seed, 5))
			claims := map[int]*dedup.Claim{} // that are held
			expiry := map[int]time.Time{}    // of keys that live
			for step := range steps {
				time.Sleep(time.Duration(random.IntN(20)) * time.Minute)
				k := random.IntN(keys)
				c := claims[k]
				if c == nil {
					live := 0
					for _, end := range expiry {
						if time.Now().Before(end) {
							live++
						}
					}
					free := !time.Now().Before(expiry[k])
					key(k)
					d := s.begin()
					refused := d.Rejection != nil && d.Rejection.Reason == dedup.ReasonTooManyKeys
					if (d.Claim != nil) != (free && live < limit) || refused != (free && live >= limit) {
						t.Fatalf("seed %d, step %d: %d live, key is free: %v; decision %+v (%v)", seed, step, live, free, d, d.Rejection)
					}
					if d.Claim != nil {
						claims[k], expiry[k] = d.Claim, time.Now().Add(24*time.Hour) // as long as it is held
					}
					continue
				}
				delete(claims, k)
				switch random.IntN(2) {
				case 0:
					s.must(c.Complete(s.Context(), answer("ok")))
					expiry[k] = time.Now().Add(time.Hour)
				case 1:
					s.must(c.Release(s.Context()))
					delete(expiry, k)
				}
				synctest.Wait()
			}
			for _, c := range claims {
				s.must(c.Release(s.Context()))
			}
		})
	}
}
