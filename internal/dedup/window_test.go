package dedup_test

import (
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
)

// TestWindow: an operation with a TTL of its own, here shorter than the rule's lease,
// counts for it from its completion, and as long as it runs.
func TestWindow(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.op.TTL = 5 * time.Second
		claim := s.mustClaim()
		for range 9 { // three leases
			time.Sleep(10 * time.Second)
			synctest.Wait()
			s.mustReject(dedup.ReasonInProgress)
		}
		s.must(claim.Complete(s.Context(), &dedup.Record{Status: 201}))
		time.Sleep(5*time.Second - time.Millisecond)
		s.mustReplay()
		time.Sleep(time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestWindowThatIsWaitedFor: who waits finds the record of a window, however short it is and
// even if nobody tells that it is there.
func TestWindowThatIsWaitedFor(t *testing.T) {
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second} {
		inBubble(t, waits, func(s *scene) {
			s.op.TTL = window
			s.deafen()
			owner := s.mustClaim()
			c := s.await(s.Context(), 3)
			time.Sleep(9*time.Second + time.Millisecond)
			s.must(owner.Complete(s.Context(), answer("the answer")))
			for range 4 {
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if len(c.claims) > 0 {
					t.Errorf("executed again, with a window of %v", window)
					s.must((<-c.claims).Complete(s.Context(), answer("another")))
				}
			}
			c.replayed(s, 3, "the answer")
		})
	}
}

// TestQuotaOfWindows: a window takes a place in its scope for as long as it is open, or for
// a lease, and not for the TTL of the rule.
func TestQuotaOfWindows(t *testing.T) {
	inScope(t, atMost(2), func(s *scene, key func(any)) {
		s.op.TTL = time.Minute
		for click := range 2 {
			key(click)
			s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		}
		synctest.Wait()
		key("new")
		time.Sleep(time.Minute - time.Millisecond)
		s.mustReject(dedup.ReasonTooManyKeys)
		time.Sleep(time.Millisecond)
		s.must(s.mustClaim().Release(s.Context()))
	})
}

// TestWindowOfAnUnknownOutcome: it is held as long as a claim lives without renewal, which
// is the lease at least, and not for the TTL of the rule.
func TestWindowOfAnUnknownOutcome(t *testing.T) {
	for window, held := range map[time.Duration]time.Duration{5 * time.Second: 30 * time.Second, time.Minute: time.Minute} {
		inBubble(t, nil, func(s *scene) {
			s.op.TTL = window
			s.must(s.mustClaim().Unknown(s.Context()))
			time.Sleep(held - time.Millisecond)
			s.mustReject(dedup.ReasonOutcomeUnknown)
			time.Sleep(time.Millisecond)
			s.must(s.mustClaim().Release(s.Context()))
		})
	}
}
