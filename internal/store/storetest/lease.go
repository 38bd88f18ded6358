package storetest

import "idemproxy/internal/dedup"

// leaseCases say what a lease is worth, and what an owner may do once it is over.
func leaseCases() []testCase {
	return []testCase{
		{"lease over is an unknown outcome, not a free ID", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.claim(rival(req), dedup.StateUnknown)
			s.claim(rival(req), dedup.StateUnknown)
		}},
		{"renewal sets the lease, longer or shorter", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.renew(req, long, dedup.Applied)
			s.Advance(past)
			s.within("LeaseLeft", s.claim(rival(req), dedup.StateInProgress).LeaseLeft, long)
			s.renew(req, short, dedup.Applied)
			s.Advance(past)
			s.claim(rival(req), dedup.StateUnknown)
		}},
		{"renewal after the lease revives it", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.renew(req, long, dedup.Applied)
			s.claim(usurper(req), dedup.StateInProgress)
		}},
		{"completion after the lease counts", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.complete(req, "late", dedup.Applied)
			s.recorded(req, "late")
		}},
		{"release after the lease counts", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.release(req, dedup.Applied)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"only the owner renews, completes and releases", func(s *subject) {
			req := request()
			req.Note = []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.everythingFenced(rival(req))
			found := s.claim(rival(req), dedup.StateInProgress)
			if string(found.Blob) != "note" {
				s.Fatalf("note is %q, want %q", found.Blob, "note")
			}
			s.complete(req, "mine", dedup.Applied)
			s.everythingFenced(rival(req))
			s.recorded(req, "mine")
		}},
		{"late owner is fenced by the one who took over", lateOwnerFenced},
		{"without an entry everything is gone", func(s *subject) {
			req := request()
			s.renew(req, long, dedup.Gone)
			s.release(req, dedup.Gone)
			s.abandon(req, dedup.Gone)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"renewal of what has ended is fenced", func(s *subject) {
			done, lost := request(), request()
			s.claim(done, dedup.StateAcquired)
			s.complete(done, "done", dedup.Applied)
			s.renew(done, long, dedup.Fenced)
			s.claim(lost, dedup.StateAcquired)
			s.abandon(lost, dedup.Applied)
			s.renew(lost, long, dedup.Fenced)
			s.claim(rival(lost), dedup.StateUnknown)
		}},
	}
}

func lateOwnerFenced(s *subject) {
	old := request()
	old.Lease = short
	s.claim(old, dedup.StateAcquired)
	s.Advance(past)
	successor := usurper(old)
	successor.Lease = long
	s.claim(successor, dedup.StateTakenOver)
	s.everythingFenced(old)
	s.claim(usurper(old), dedup.StateInProgress)
	s.complete(successor, "successor's", dedup.Applied)
	s.everythingFenced(old)
	s.recorded(old, "successor's")
}

// everythingFenced expects that this token can't change the entry.
func (s *subject) everythingFenced(req dedup.ClaimRequest) {
	s.Helper()
	s.renew(req, 2*long, dedup.Fenced)
	s.complete(req, "intruder's", dedup.Fenced)
	s.abandon(req, dedup.Fenced)
	s.release(req, dedup.Fenced)
}
