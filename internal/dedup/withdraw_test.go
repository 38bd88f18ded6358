package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// inDoubt begins over a store whose claim fails by f, and returns the claim in doubt.
func (s *scene) inDoubt(f func(req dedup.ClaimRequest)) *dedup.Claim {
	s.Helper()
	s.store.claim = func(_ context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
		f(req)
		return dedup.Found{}, errLost
	}
	d := s.begin()
	s.store.claim = nil
	wantRejection(s, d.Rejection, dedup.ReasonStoreUnavailable, "")
	if d.InDoubt == nil {
		s.Fatal("there is nothing to withdraw")
	}
	return d.InDoubt
}

// apply takes a claim as the store does with a command whose reply nobody gets.
func (s *scene) apply(req dedup.ClaimRequest) {
	if found, err := s.store.Store.Claim(context.Background(), req); err != nil || found.State != dedup.StateAcquired {
		s.Errorf("claim: %+v, %v", found, err)
	}
}

// TestWithdrawFreesAClaimWhoseReplyWasLost, at once: the caller's retry must not meet its
// own claim for the length of a lease.
func TestWithdrawFreesAClaimWhoseReplyWasLost(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.inDoubt(s.apply)
		s.mustReject(dedup.ReasonInProgress)
		done := make(chan error)
		go func() { done <- c.Withdraw(context.Background()) }()
		time.Sleep(time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
		s.must(<-done)
		if n := len(s.store.at("renew")); n != 0 {
			t.Errorf("%d renewals of a claim that nobody executes", n)
		}
	})
}

// TestWithdrawFreesAClaimThatIsAppliedLate: after the first release found nothing.
func TestWithdrawFreesAClaimThatIsAppliedLate(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		var late dedup.ClaimRequest
		c := s.inDoubt(func(req dedup.ClaimRequest) { late = req })
		time.AfterFunc(500*time.Millisecond, func() { s.apply(late) })
		done := make(chan error)
		go func() { done <- c.Withdraw(context.Background()) }()
		time.Sleep(900 * time.Millisecond)
		s.mustReject(dedup.ReasonInProgress)
		s.must(<-done)
		s.must(s.mustClaim().Release(s.Context()))
		if got := time.Since(s.store.start); got != time.Second {
			t.Errorf("withdrawn after %v", got)
		}
	})
}

// TestWithdrawWaitsForTheStore: while the store is down it goes on, also after the lease,
// for the claim may be applied when the store comes back.
func TestWithdrawWaitsForTheStore(t *testing.T) {
	for _, down := range []time.Duration{10 * time.Second, time.Hour} {
		inBubble(t, nil, func(s *scene) {
			var late dedup.ClaimRequest
			c := s.inDoubt(func(req dedup.ClaimRequest) { late = req })
			time.AfterFunc(down, func() { s.apply(late) })
			s.store.release = func(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
				if time.Since(s.store.start) < down {
					return 0, errLost
				}
				return s.store.Store.Release(ctx, id, token)
			}
			s.must(c.Withdraw(context.Background()))
			if got := time.Since(s.store.start); got < down || got > down+4*time.Second {
				t.Errorf("withdrawn after %v", got)
			}
			s.must(s.mustClaim().Release(s.Context()))
		})
	}
}

// TestWithdrawalsTakeTurns: however many claims are in doubt, a store that is away is asked
// by few at once, and all are withdrawn when it is back.
func TestWithdrawalsTakeTurns(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		const claims, down = 1000, 10 * time.Minute
		var asking, most atomic.Int32
		s.store.release = func(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
			defer asking.Add(-1)
			most.Store(max(most.Load(), asking.Add(1)))
			if time.Since(s.store.start) < down {
				time.Sleep(500 * time.Millisecond)
				return 0, errLost
			}
			return s.store.Store.Release(ctx, id, token)
		}
		ops := make([]dedup.Operation, claims)
		var wg sync.WaitGroup
		for i := range ops {
			s.op.ID = dedup.Scope{}.ID(dedup.Key(fmt.Sprint("key", i)))
			ops[i] = s.op
			c := s.inDoubt(s.apply)
			wg.Go(func() { _ = c.Withdraw(context.Background()) })
		}
		wg.Wait()
		if got := time.Since(s.store.start); got > down+5*time.Second {
			t.Errorf("withdrawn after %v", got)
		}
		if most.Load() > 8 {
			t.Errorf("%d asked at once", most.Load())
		}
		for _, op := range ops {
			s.op = op
			s.must(s.mustClaim().Release(s.Context()))
		}
	})
}

// TestWithdrawTouchesNobodyElse: who claimed the key meanwhile keeps it.
func TestWithdrawTouchesNobodyElse(t *testing.T) {
	for _, completed := range []bool{false, true} {
		inBubble(t, nil, func(s *scene) {
			c := s.inDoubt(func(dedup.ClaimRequest) {})
			owner := s.mustClaim()
			if completed {
				s.must(owner.Complete(s.Context(), answer("ok")))
			}
			if err := c.Withdraw(context.Background()); !errors.Is(err, dedup.ErrFenced) {
				t.Errorf("withdraw: %v, want ErrFenced", err)
			}
			if !completed {
				s.mustReject(dedup.ReasonInProgress)
				s.must(owner.Complete(s.Context(), answer("ok")))
			}
			if got := s.mustReplay(); string(got.Body) != "ok" || owner.LeaseLost() {
				t.Errorf("replay %q, lease lost: %v", got.Body, owner.LeaseLost())
			}
		})
	}
}

// TestWithdrawAndAnOwnerBetween: the key is claimed between the two releases.
func TestWithdrawAndAnOwnerBetween(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.inDoubt(s.apply)
		done := make(chan error)
		go func() { done <- c.Withdraw(context.Background()) }()
		time.Sleep(500 * time.Millisecond)
		owner := s.mustClaim()
		if err := <-done; !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("withdraw: %v, want ErrFenced", err)
		}
		s.mustReject(dedup.ReasonInProgress)
		s.must(owner.Complete(s.Context(), answer("ok")))
	})
}

func TestWithdrawObeysItsContext(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.inDoubt(s.apply)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		if err := c.Withdraw(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(s.store.start) != 300*time.Millisecond {
			t.Errorf("withdraw: %v after %v", err, time.Since(s.store.start))
		}
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestWithdrawWithAShortLease: the second release comes a second later, lease or not.
func TestWithdrawWithAShortLease(t *testing.T) {
	inBubble(t, func(r *dedup.Rule) { r.Lease = 600 * time.Millisecond }, func(s *scene) {
		var late dedup.ClaimRequest
		c := s.inDoubt(func(req dedup.ClaimRequest) { late = req })
		time.AfterFunc(500*time.Millisecond, func() { s.apply(late) })
		s.must(c.Withdraw(context.Background()))
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestClaimThatIsAnsweredAfterItsLease: by then another may execute, so this one must not.
func TestClaimThatIsAnsweredAfterItsLease(t *testing.T) {
	inBubble(t, releaseUnknown, func(s *scene) {
		slow := func(d time.Duration) func(context.Context, dedup.ClaimRequest) (dedup.Found, error) {
			return func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
				found, err := s.store.Store.Claim(ctx, req)
				time.Sleep(d)
				return found, err
			}
		}
		s.store.claim = slow(29 * time.Second)
		s.must(s.mustClaim().Release(s.Context()))
		s.store.claim = slow(30 * time.Second)
		d := s.begin()
		s.store.claim = nil
		wantRejection(s, d.Rejection, dedup.ReasonStoreUnavailable, "")
		if d.Claim != nil || d.InDoubt == nil {
			t.Fatalf("decision %+v, want a claim in doubt and none to execute", d)
		}
		s.must(d.InDoubt.Withdraw(context.Background()))
		s.must(s.mustClaim().Release(s.Context()))
	})
}
