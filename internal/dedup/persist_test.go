package dedup_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// completions makes Complete do what f says.
func (s *scene) completions(f func(apply func() (dedup.Verdict, error)) (dedup.Verdict, error)) {
	s.store.complete = func(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
		return f(func() (dedup.Verdict, error) { return s.store.Store.Complete(ctx, id, token, c) })
	}
}

// complete is one way to end the claim, for Persist.
func complete(c *dedup.Claim, r *dedup.Record) func(context.Context) error {
	return func(ctx context.Context) error { return c.Complete(ctx, r) }
}

func TestPersistSucceedsAtOnce(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.must(c.Persist(s.Context(), complete(c, answer("ok"))))
		if got := s.store.at("complete"); !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("completions at %v", got)
		}
		s.mustReplay()
	})
}

// TestPersistRetries with pauses that grow from 50ms to 2s.
func TestPersistRetries(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.completions(func(apply func() (dedup.Verdict, error)) (dedup.Verdict, error) {
			if time.Since(s.store.start) < 10*time.Second {
				return 0, errLost
			}
			return apply()
		})
		s.must(c.Persist(s.Context(), complete(c, answer("ok"))))
		at := s.store.at("complete")
		for i := 1; i < len(at); i++ {
			if got, want := at[i]-at[i-1], min(50*time.Millisecond<<(i-1), 2*time.Second); got != want {
				t.Errorf("pause %d is %v, want %v", i, got, want)
			}
		}
		if last := at[len(at)-1]; last < 10*time.Second || last > 12*time.Second {
			t.Errorf("completed after %v", last)
		}
		if got := s.mustReplay(); string(got.Body) != "ok" {
			t.Errorf("replay %q", got.Body)
		}
	})
}

// TestPersistRecognisesItsOwnCompletion whose reply was lost.
func TestPersistRecognisesItsOwnCompletion(t *testing.T) {
	for name, end := range map[string]func(*dedup.Claim) func(context.Context) error{
		"complete": func(c *dedup.Claim) func(context.Context) error { return complete(c, answer("ok")) },
		"unknown":  func(c *dedup.Claim) func(context.Context) error { return c.Unknown },
	} {
		inBubble(t, nil, func(s *scene) {
			c, lost := s.mustClaim(), 3
			s.completions(func(apply func() (dedup.Verdict, error)) (dedup.Verdict, error) {
				verdict, err := apply()
				if lost--; lost >= 0 {
					return 0, errLost
				}
				return verdict, err
			})
			s.must(c.Persist(s.Context(), end(c)))
			if got := len(s.store.at("complete")); got != 4 || c.LeaseLost() {
				t.Errorf("%s: %d completions, lease lost: %v", name, got, c.LeaseLost())
			}
		})
	}
}

// TestPersistEndsWithTheLease: until the lease would end and no longer, counted from
// before the claim, or its last renewal, was sent.
func TestPersistEndsWithTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		slowClaim time.Duration // how long the store takes to claim
		runs      time.Duration // how long the request runs
		slowRenew time.Duration // how long the store takes to renew
		want      time.Duration // when Persist gives up
	}{
		"at once":              {want: 30 * time.Second},
		"before a renewal":     {runs: 9 * time.Second, want: 30 * time.Second},
		"after renewals":       {runs: 65 * time.Second, want: 90 * time.Second},
		"after a slow claim":   {slowClaim: 4 * time.Second, runs: time.Second, want: 30 * time.Second},
		"after a slow renewal": {runs: 15 * time.Second, slowRenew: 3 * time.Second, want: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *scene) {
				s.store.claim = func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
					time.Sleep(tc.slowClaim)
					return s.store.Store.Claim(ctx, req)
				}
				s.store.onRenew(func(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
					time.Sleep(tc.slowRenew)
					return s.store.Store.Renew(ctx, id, token, lease)
				})
				c := s.mustClaim()
				time.Sleep(tc.runs)
				s.completions(func(func() (dedup.Verdict, error)) (dedup.Verdict, error) { return 0, errLost })
				if err := c.Persist(s.Context(), complete(c, answer("ok"))); !errors.Is(err, errLost) {
					t.Errorf("persist: %v, want the store's error", err)
				}
				if got := time.Since(s.store.start); got != tc.want {
					t.Errorf("gave up after %v, want %v", got, tc.want)
				}
				at := s.store.at("complete")
				if last := at[len(at)-1]; last < tc.want-2*time.Second {
					t.Errorf("tried for the last time after %v", last)
				}
				s.store.claim = nil
				time.Sleep(5 * time.Second)
				s.mustReject(dedup.ReasonOutcomeUnknown)
			})
		})
	}
}

// TestPersistObeysItsContext: a store that hangs is left when the lease is over, and
// everything when the program ends.
func TestPersistObeysItsContext(t *testing.T) {
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		if err := c.Persist(s.Context(), hang); !errors.Is(err, context.DeadlineExceeded) || time.Since(s.store.start) != 30*time.Second {
			t.Errorf("persist: %v after %v", err, time.Since(s.store.start))
		}
		s.must(c.Release(s.Context()))
	})
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		ctx, cancel := context.WithCancel(s.Context())
		time.AfterFunc(3*time.Second, cancel)
		fail := func(context.Context) error { return errLost }
		if err := c.Persist(ctx, fail); !errors.Is(err, errLost) || time.Since(s.store.start) != 3*time.Second {
			t.Errorf("persist: %v after %v", err, time.Since(s.store.start))
		}
		s.must(c.Release(s.Context()))
	})
}

// TestPersistStopsWhenFenced: an operator freed the key, and another has it now.
func TestPersistStopsWhenFenced(t *testing.T) {
	for name, end := range map[string]func(*dedup.Claim, context.Context) error{
		"complete": func(c *dedup.Claim, ctx context.Context) error { return c.Complete(ctx, answer("late")) },
		"unknown":  (*dedup.Claim).Unknown,
		"release":  (*dedup.Claim).Release,
	} {
		inBubble(t, nil, func(s *scene) {
			var token dedup.Token
			s.store.claim = func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
				token = req.Token
				return s.store.Store.Claim(ctx, req)
			}
			old := s.mustClaim()
			if _, err := s.store.Store.Release(s.Context(), s.op.ID, token); err != nil {
				t.Fatal(err)
			}
			next := s.mustClaim()
			err := old.Persist(s.Context(), func(ctx context.Context) error { return end(old, ctx) })
			if !errors.Is(err, dedup.ErrFenced) || time.Since(s.store.start) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(s.store.start))
			}
			if !old.LeaseLost() {
				t.Errorf("%s: the lease is not lost", name)
			}
			s.must(next.Complete(s.Context(), answer("next")))
			if got := s.mustReplay(); string(got.Body) != "next" {
				t.Errorf("%s: replay %q", name, got.Body)
			}
		})
	}
}

// TestPersistAfterTheLease gives up at once.
func TestPersistAfterTheLease(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.store.failRenewals(true)
		time.Sleep(31 * time.Second)
		tried := 0
		before := time.Now()
		err := c.Persist(s.Context(), func(ctx context.Context) error { tried++; return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || tried != 1 || time.Since(before) != 0 {
			t.Errorf("persist: %v, tried %d times in %v", err, tried, time.Since(before))
		}
		s.must(c.Release(s.Context()))
	})
}
