package storetest

import (
	"sync"
	"sync/atomic"

	"idemproxy/internal/dedup"
)

// contenders is how many goroutines fight for one ID.
const contenders = 64

// claimCases say who gets a claim.
func claimCases() []testCase {
	return []testCase{
		{"one of many acquires", oneOfManyAcquires},
		{"one of many takes over", oneOfManyTakesOver},
		{"own claim is recognised when repeated", ownClaimRepeated},
		{"repeated claim renews the lease", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			again := req
			again.Lease = long
			s.claim(again, dedup.StateAcquired)
			s.claim(usurper(req), dedup.StateInProgress)
		}},
		{"takeover leaves a living claim alone", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			found := s.claim(usurper(req), dedup.StateInProgress)
			s.within("LeaseLeft", found.LeaseLeft, long)
			s.complete(req, "kept", dedup.Applied)
		}},
		{"takeover leaves a record alone", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "kept", dedup.Applied)
			s.claim(usurper(req), dedup.StateCompleted)
			s.recorded(req, "kept")
		}},
		{"takeover of a free ID is an ordinary claim", func(s *subject) {
			s.claim(usurper(request()), dedup.StateAcquired)
		}},
		{"IDs are independent", func(s *subject) {
			a, b := request(), request()
			b.Token = a.Token
			s.claim(a, dedup.StateAcquired)
			s.claim(b, dedup.StateAcquired)
			s.release(a, dedup.Applied)
			s.claim(rival(b), dedup.StateInProgress)
		}},
		{"release frees at once", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.release(req, dedup.Applied)
			s.release(req, dedup.Gone)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"release of a record is fenced", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "kept", dedup.Applied)
			s.release(req, dedup.Fenced)
			s.recorded(req, "kept")
		}},
		{"release of an unknown outcome is fenced", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.release(req, dedup.Fenced)
			s.claim(rival(req), dedup.StateUnknown)
		}},
	}
}

func oneOfManyAcquires(s *subject) {
	contend(s, request(), rival, dedup.StateAcquired)
}

func oneOfManyTakesOver(s *subject) {
	req := request()
	old := req
	old.Lease = short
	s.claim(old, dedup.StateAcquired)
	s.Advance(past)
	contend(s, req, usurper, dedup.StateTakenOver)
	s.complete(old, "late", dedup.Fenced)
}

// contend lets many claim at once: one must get what it wants, the rest must see it
// working.
func contend(s *subject, req dedup.ClaimRequest, as func(dedup.ClaimRequest) dedup.ClaimRequest, want dedup.State) {
	s.Helper()
	var winners atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range contenders {
		mine := as(req)
		wg.Go(func() {
			<-start
			found, err := s.Store.Claim(s.Context(), mine)
			switch {
			case err != nil:
				s.Errorf("Claim: %v", err)
			case found.State == want:
				winners.Add(1)
			case found.State != dedup.StateInProgress:
				s.Errorf("loser found %s, want in progress", stateName(found.State))
			case found.LeaseLeft <= 0 || found.LeaseLeft > req.Lease:
				s.Errorf("loser was told a lease of %v, want more than 0 and at most %v", found.LeaseLeft, req.Lease)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := winners.Load(); n != 1 {
		s.Fatalf("%d of %d were the one, want 1", n, contenders)
	}
}

func ownClaimRepeated(s *subject) {
	req := request()
	req.Lease = short
	s.claim(req, dedup.StateAcquired)
	s.claim(req, dedup.StateAcquired)
	s.Advance(past)
	s.claim(rival(req), dedup.StateUnknown)
	s.claim(req, dedup.StateAcquired) // its lease was over, but nobody took over
	s.Advance(past)
	successor := usurper(req)
	successor.Lease = long
	s.claim(successor, dedup.StateTakenOver)
	s.claim(req, dedup.StateInProgress) // now it is somebody else's
	s.claim(successor, dedup.StateAcquired)
}
