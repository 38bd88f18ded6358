package storetest

import "idemproxy/internal/dedup"

// completeCases say how a claim ends.
//
// Where dedup.Store leaves a choice they choose: of two completions of one token the
// first record stays, with its TTL. An unknown outcome may still become a record by its
// own token, as long as nobody took it over: the answer came after all. A record never
// becomes unknown again.
func completeCases() []testCase {
	return []testCase{
		{"completion is found by everybody", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "answer", dedup.Applied)
			found := s.recorded(req, "answer")
			s.within("TTLLeft", found.TTLLeft, long)
			s.claim(req, dedup.StateCompleted)
		}},
		{"repeated completion keeps the first record", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "first", dedup.Applied)
			s.completeWith(req, dedup.Completion{TTL: 2 * long, Blob: []byte("second")}, dedup.Applied)
			s.within("TTLLeft", s.recorded(req, "first").TTLLeft, long)
		}},
		{"completion without an entry is recorded", func(s *subject) {
			req := request()
			s.complete(req, "not lost", dedup.Gone)
			s.recorded(req, "not lost")
			s.complete(req, "not lost", dedup.Applied)
		}},
		{"completion of an expired claim is recorded", func(s *subject) {
			req := request()
			req.TTL = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.complete(req, "not lost", dedup.Gone)
			s.recorded(req, "not lost")
		}},
		{"unknown outcome is held, and taken over on demand", func(s *subject) {
			req := request()
			req.Note = []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.abandon(req, dedup.Applied)
			if found := s.claim(rival(req), dedup.StateUnknown); string(found.Blob) != "note" {
				s.Fatalf("note is %q, want %q", found.Blob, "note")
			}
			successor := usurper(req)
			s.claim(successor, dedup.StateTakenOver)
			s.everythingFenced(req)
			s.complete(successor, "answer", dedup.Applied)
			s.recorded(req, "answer")
		}},
		{"unknown outcome becomes a record when the answer comes after all", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.complete(req, "late", dedup.Applied)
			s.recorded(req, "late")
		}},
		{"record does not become unknown", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "answer", dedup.Applied)
			s.abandon(req, dedup.Fenced)
			s.recorded(req, "answer")
		}},
		{"own unknown outcome is not a claim any more", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.claim(req, dedup.StateUnknown)
		}},
	}
}
