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
