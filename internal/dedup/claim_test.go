package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

func TestClaimCompletes(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		time.Sleep(5 * time.Minute)
		s.mustReject(dedup.ReasonInProgress)
		record := answer("ok")
		s.must(c.Complete(s.Context(), record))
		want := answer("ok")
		want.Fingerprint, want.ReplayScope, want.Origin = s.op.Fingerprint, s.op.ReplayScope, dedup.Origin{Route: "payments"}
		for range 3 {
			if got := s.mustReplay(); !equalRecords(got, want) {
				t.Errorf("replay %+v, want %+v", got, want)
			}
		}
		s.must(c.Complete(s.Context(), record)) // a repetition
		if got := s.mustReplay(); !equalRecords(got, want) {
			t.Errorf("replay after a repetition %+v, want %+v", got, want)
		}
		s.op.Fingerprint[5]++
		s.mustReject(dedup.ReasonKeyReuse)
		if c.LeaseLost() {
			t.Error("the lease is lost")
		}
	})
}

// TestClaimTTL: a record lives from its completion, an unknown outcome from its claim, and
// neither lives longer for being asked for.
func TestClaimTTL(t *testing.T) {
	const ttl = 24 * time.Hour
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		time.Sleep(time.Hour)
		s.must(c.Complete(s.Context(), answer("ok")))
		time.Sleep(ttl / 2)
		s.mustReplay()
		time.Sleep(ttl/2 - time.Millisecond)
		s.mustReplay()
		time.Sleep(time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
	})
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		time.Sleep(time.Hour)
		s.must(c.Unknown(s.Context()))
		time.Sleep(ttl - time.Hour - time.Millisecond)
		s.mustReject(dedup.ReasonOutcomeUnknown)
		time.Sleep(time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

func TestClaimEndsUnknown(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.must(c.Unknown(s.Context()))
		s.mustReject(dedup.ReasonOutcomeUnknown)
		s.must(c.Unknown(s.Context())) // a repetition
		time.Sleep(time.Hour)
		s.mustReject(dedup.ReasonOutcomeUnknown)
	})
	inBubble(t, releaseUnknown, func(s *scene) {
		c := s.mustClaim()
		s.must(c.Unknown(s.Context()))
		s.must(c.Unknown(s.Context()))
		s.rule.OnUnknownOutcome = dedup.UnknownHold // it is free, not only there to be taken
		next := s.mustClaim()
		s.rule.OnUnknownOutcome = dedup.UnknownRelease
		if err := c.Unknown(s.Context()); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("unknown after another took it: %v", err)
		}
		s.mustReject(dedup.ReasonInProgress)
		s.must(next.Complete(s.Context(), answer("ok")))
	})
}

func TestClaimReleases(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.must(c.Release(s.Context()))
		s.must(c.Release(s.Context())) // a repetition
		next := s.mustClaim()
		if err := c.Release(s.Context()); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("release after another claimed it: %v", err)
		}
		s.mustReject(dedup.ReasonInProgress)
		s.must(next.Complete(s.Context(), answer("ok")))
		if err := next.Release(s.Context()); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("release of a record: %v", err)
		}
		s.mustReplay()
	})
}

// TestClaimIsRenewed at a third of the lease, until it ends, and never after.
func TestClaimIsRenewed(t *testing.T) {
	for name, end := range map[string]func(*dedup.Claim, context.Context) error{
		"complete": func(c *dedup.Claim, ctx context.Context) error { return c.Complete(ctx, answer("ok")) },
		"unknown":  (*dedup.Claim).Unknown,
		"release":  (*dedup.Claim).Release,
	} {
		for _, fails := range []bool{false, true} {
			inBubble(t, nil, func(s *scene) {
				if fails {
					s.store.complete = func(context.Context, dedup.ID, dedup.Token, dedup.Completion) (dedup.Verdict, error) {
						return 0, errLost
					}
					s.store.release = func(context.Context, dedup.ID, dedup.Token) (dedup.Verdict, error) { return 0, errLost }
				}
				s.store.onRenew(func(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
					if id != s.op.ID || lease != 30*time.Second {
						t.Errorf("renews %s for %v", id, lease)
					}
					return s.store.Store.Renew(ctx, id, token, lease)
				})
				c := s.mustClaim()
				time.Sleep(35 * time.Second)
				if err := end(c, s.Context()); (err != nil) != fails || fails && !errors.Is(err, errLost) {
					t.Errorf("%s: %v", name, err)
				}
				time.Sleep(time.Hour)
				if got, want := s.store.at("renew"), []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}; !slices.Equal(got, want) {
					t.Errorf("%s: renewals at %v, want %v", name, got, want)
				}
				if c.LeaseLost() {
					t.Errorf("%s: the lease is lost", name)
				}
			})
		}
	}
}

// TestClaimOutlivesItsTTL: the claim of a running request doesn't expire.
func TestClaimOutlivesItsTTL(t *testing.T) {
	inBubble(t, func(r *dedup.Rule) { r.TTL = time.Minute }, func(s *scene) {
		c := s.mustClaim()
		for range 60 {
			time.Sleep(7 * time.Second)
			s.mustReject(dedup.ReasonInProgress)
		}
		s.must(c.Complete(s.Context(), answer("ok")))
		s.mustReplay()
	})
}

// TestClaimLosesItsLease when renewals fail to its end; then others see its outcome as
// unknown, and it may still complete, since nobody took it.
func TestClaimLosesItsLease(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		time.Sleep(15 * time.Second)
		s.store.failRenewals(true)
		time.Sleep(24 * time.Second) // 39s: the renewal at 10s lives until 40s
		if c.LeaseLost() {
			t.Error("the lease is lost too early")
		}
		s.mustReject(dedup.ReasonInProgress)
		time.Sleep(time.Second)
		if !c.LeaseLost() {
			t.Error("the lease is not lost")
		}
		s.mustReject(dedup.ReasonOutcomeUnknown)
		time.Sleep(2 * time.Second)
		renewals := s.store.at("renew")
		want := []time.Duration{10 * time.Second}
		for at := 20 * time.Second; at <= 42*time.Second; at += 3 * time.Second {
			want = append(want, at)
		}
		if !slices.Equal(renewals, want) {
			t.Errorf("renewals at %v, want %v", renewals, want)
		}

		s.store.failRenewals(false)
		time.Sleep(time.Minute)
		s.mustReject(dedup.ReasonInProgress) // it is renewed again
		if !c.LeaseLost() {
			t.Error("that the lease was lost is forgotten")
		}
		s.store.failRenewals(true)
		time.Sleep(time.Minute)
		s.must(c.Complete(s.Context(), answer("late")))
		if got := s.mustReplay(); string(got.Body) != "late" {
			t.Errorf("replay %q", got.Body)
		}
	})
}

// TestClaimRemembersThatItWasLost though it was renewed again before anybody asked: it
// could have been taken over.
func TestClaimRemembersThatItWasLost(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.store.failRenewals(true)
		time.Sleep(32 * time.Second)
		s.store.failRenewals(false)
		time.Sleep(time.Minute)
		if !c.LeaseLost() {
			t.Error("the lease is not lost")
		}
		s.must(c.Complete(s.Context(), answer("ok")))
	})
}

// TestClaimThatEndsAfterItsLease knows that it did, though no renewal said so yet.
func TestClaimThatEndsAfterItsLease(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration
		lost  bool
	}{{30*time.Second - 1, false}, {30 * time.Second, true}} {
		inBubble(t, nil, func(s *scene) {
			s.store.onRenew(func(ctx context.Context, _ dedup.ID, _ dedup.Token, _ time.Duration) (dedup.Verdict, error) {
				time.Sleep(time.Hour)
				return 0, errLost
			})
			c := s.mustClaim()
			time.Sleep(tc.after)
			s.must(c.Complete(s.Context(), answer("late")))
			time.Sleep(2 * time.Hour)
			if c.LeaseLost() != tc.lost {
				t.Errorf("ended after %v: lease lost %v, want %v", tc.after, c.LeaseLost(), tc.lost)
			}
		})
	}
}

// TestClaimSurvivesAShortOutage: renewals that fail for less than the lease lose nothing.
func TestClaimSurvivesAShortOutage(t *testing.T) {
	inBubble(t, releaseUnknown, func(s *scene) {
		c := s.mustClaim()
		for range 20 {
			s.store.failRenewals(true)
			time.Sleep(19 * time.Second)
			s.mustReject(dedup.ReasonInProgress)
			s.store.failRenewals(false)
			time.Sleep(13 * time.Second)
			s.mustReject(dedup.ReasonInProgress)
		}
		if c.LeaseLost() {
			t.Error("the lease is lost")
		}
		s.must(c.Complete(s.Context(), answer("ok")))
	})
}

// TestClaimIsFencedOnceTakenOver: an owner that wakes late changes nothing.
func TestClaimIsFencedOnceTakenOver(t *testing.T) {
	late := map[string]func(*dedup.Claim, context.Context) error{
		"complete": func(c *dedup.Claim, ctx context.Context) error { return c.Complete(ctx, answer("late")) },
		"unknown":  (*dedup.Claim).Unknown,
		"release":  (*dedup.Claim).Release,
	}
	for name, end := range late {
		for _, completed := range []bool{false, true} {
			inBubble(t, releaseUnknown, func(s *scene) {
				old := s.mustClaim()
				s.store.failRenewals(true)
				time.Sleep(30 * time.Second)
				next := s.mustClaim()
				s.store.failRenewals(false)
				if completed {
					s.must(next.Complete(s.Context(), answer("next")))
				}
				if err := end(old, s.Context()); !errors.Is(err, dedup.ErrFenced) {
					t.Errorf("%s: %v, want ErrFenced", name, err)
				}
				if !old.LeaseLost() {
					t.Errorf("%s: the lease is not lost", name)
				}
				if !completed {
					s.mustReject(dedup.ReasonInProgress)
					s.must(next.Complete(s.Context(), answer("next")))
				}
				if got := s.mustReplay(); string(got.Body) != "next" {
					t.Errorf("%s: replay %q", name, got.Body)
				}
				if next.LeaseLost() {
					t.Errorf("%s: the new owner's lease is lost", name)
				}
			})
		}
	}
}

// TestClaimStopsRenewingWhatIsNotItsOwn: a renewal that is fenced, or finds nothing, is
// the last one.
func TestClaimStopsRenewingWhatIsNotItsOwn(t *testing.T) {
	for _, verdict := range []dedup.Verdict{dedup.Fenced, dedup.Gone} {
		inBubble(t, nil, func(s *scene) {
			c := s.mustClaim()
			s.store.onRenew(func(context.Context, dedup.ID, dedup.Token, time.Duration) (dedup.Verdict, error) {
				return verdict, nil
			})
			time.Sleep(10*time.Second - 1)
			if c.LeaseLost() {
				t.Error("the lease is lost too early")
			}
			time.Sleep(1)
			synctest.Wait()
			if !c.LeaseLost() {
				t.Errorf("verdict %d: the lease is not lost", verdict)
			}
			time.Sleep(time.Hour)
			if got := s.store.at("renew"); len(got) != 1 {
				t.Errorf("verdict %d: renewals at %v", verdict, got)
			}
			s.must(c.Release(s.Context()))
		})
	}
}

// TestClaimEndsDuringARenewal: the renewal that is under way has no say any more.
func TestClaimEndsDuringARenewal(t *testing.T) {
	for _, verdict := range []dedup.Verdict{dedup.Applied, dedup.Fenced, 0} {
		inBubble(t, nil, func(s *scene) {
			s.store.onRenew(func(context.Context, dedup.ID, dedup.Token, time.Duration) (dedup.Verdict, error) {
				time.Sleep(time.Minute)
				if verdict == 0 {
					return 0, errLost
				}
				return verdict, nil
			})
			c := s.mustClaim()
			time.Sleep(11 * time.Second)
			s.must(c.Complete(s.Context(), answer("ok")))
			time.Sleep(time.Hour)
			if got := s.store.at("renew"); len(got) != 1 || c.LeaseLost() {
				t.Errorf("verdict %d: renewals at %v, lease lost: %v", verdict, got, c.LeaseLost())
			}
			s.mustReplay()
		})
	}
}

// TestClaimCompletesOverAFullStore: what does not fit is remembered as not stored.
func TestClaimCompletesOverAFullStore(t *testing.T) {
	cfg := store.MemoryConfig{MaxEntries: 10, MaxBytes: 4 * dedup.KiB, CleanupInterval: time.Hour}
	inBubbleOf(t, cfg, nil, func(s *scene) {
		c := s.mustClaim()
		record := answer(string(bytes.Repeat([]byte("x"), 8<<10)))
		s.must(c.Complete(s.Context(), record))
		wantRejection(t, s.mustReject(dedup.ReasonResponseNotStored), dedup.ReasonResponseNotStored, "status 201")
		if got := s.store.at("complete"); len(got) != 2 {
			t.Errorf("%d completions, want the large and the small one", len(got))
		}
		if record.NotStored || len(record.Body) != 8<<10 || len(record.Header) == 0 {
			t.Error("the record, which is still to be delivered, was changed")
		}
		s.op.Fingerprint[0]++
		s.mustReject(dedup.ReasonKeyReuse)
		s.op.Fingerprint[0]--
		s.op.ReplayScope[0]++
		s.mustReject(dedup.ReasonReplayScope)
		time.Sleep(24 * time.Hour)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestClaimOverAStoreThatTakesNothing keeps the claim, and tells.
func TestClaimOverAStoreThatTakesNothing(t *testing.T) {
	for _, notStored := range []bool{false, true} {
		inBubble(t, nil, func(s *scene) {
			c := s.mustClaim()
			s.store.complete = func(context.Context, dedup.ID, dedup.Token, dedup.Completion) (dedup.Verdict, error) {
				return 0, dedup.ErrStoreFull
			}
			record := answer("")
			record.NotStored = notStored
			if err := c.Complete(s.Context(), record); !errors.Is(err, dedup.ErrStoreFull) {
				t.Errorf("complete: %v", err)
			}
			if got, want := len(s.store.at("complete")), map[bool]int{false: 2, true: 1}[notStored]; got != want {
				t.Errorf("%d completions, want %d", got, want)
			}
			s.mustReject(dedup.ReasonInProgress)
			time.Sleep(30 * time.Second)
			s.mustReject(dedup.ReasonOutcomeUnknown)
		})
	}
}

// TestClaimOverOtherFailures: only a full store gets a smaller record.
func TestClaimOverOtherFailures(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.store.complete = func(context.Context, dedup.ID, dedup.Token, dedup.Completion) (dedup.Verdict, error) {
			return 0, errLost
		}
		if err := c.Complete(s.Context(), answer("ok")); !errors.Is(err, errLost) || len(s.store.at("complete")) != 1 {
			t.Errorf("complete: %v, %d completions", err, len(s.store.at("complete")))
		}
		s.store.complete = nil
		s.must(c.Complete(s.Context(), answer("ok")))
		s.mustReplay()
	})
}

// TestClaimCompletesAfterItsEntryIsGone: the answer is not lost.
func TestClaimCompletesAfterItsEntryIsGone(t *testing.T) {
	inBubble(t, func(r *dedup.Rule) { r.TTL = time.Minute }, func(s *scene) {
		c := s.mustClaim()
		s.store.failRenewals(true)
		time.Sleep(time.Minute)
		s.must(c.Complete(s.Context(), answer("late")))
		if got := s.mustReplay(); string(got.Body) != "late" {
			t.Errorf("replay %q", got.Body)
		}
	})
}
