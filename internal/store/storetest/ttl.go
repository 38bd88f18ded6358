package storetest

import (
	"time"

	"idemproxy/internal/dedup"
)

// life is a TTL within which a test does a few operations, and after which it looks
// again: long enough for a slow machine.
const life = 600 * time.Millisecond

// ttlCases say how long entries live, and that nothing but its owner's end of a claim
// changes that.
func ttlCases() []testCase {
	return []testCase{
		{"claim expires", func(s *subject) {
			req := request()
			req.TTL = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.renew(req, long, dedup.Gone)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"record expires", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.completeWith(req, dedup.Completion{TTL: short, Blob: []byte("brief")}, dedup.Applied)
			s.Advance(past)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"record lives from its completion", func(s *subject) {
			req := request()
			req.TTL = life
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "outlives the claim", dedup.Applied)
			s.Advance(life + past)
			s.recorded(req, "outlives the claim")
		}},
		{"losers don't stretch a claim", func(s *subject) {
			s.expiresDespite(func(req dedup.ClaimRequest) {
				s.claim(rival(req), dedup.StateInProgress)
				s.claim(usurper(req), dedup.StateInProgress)
				s.renew(rival(req), long, dedup.Fenced)
				s.complete(rival(req), "intruder's", dedup.Fenced)
			})
		}},
		{"renewals don't stretch a claim", func(s *subject) {
			s.expiresDespite(func(req dedup.ClaimRequest) {
				s.renew(req, short, dedup.Applied)
			})
		}},
		{"a claim doesn't expire before its renewed lease", func(s *subject) {
			req := request()
			req.TTL = life
			s.claim(req, dedup.StateAcquired)
			s.renew(req, long, dedup.Applied)
			s.Advance(life + past)
			s.claim(rival(req), dedup.StateInProgress)
			s.renew(req, short, dedup.Applied)
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "late", dedup.Applied)
			s.recorded(req, "late")
		}},
		{"repeated claims don't stretch a claim", func(s *subject) {
			s.expiresDespite(func(req dedup.ClaimRequest) {
				req.TTL = long
				s.claim(req, dedup.StateAcquired)
			})
		}},
		{"unknown outcome keeps the claim's expiry", func(s *subject) {
			s.expiresDespite(func(req dedup.ClaimRequest) {
				s.completeWith(req, dedup.Completion{Unknown: true, TTL: long, Blob: []byte("unused")}, dedup.Applied)
				s.claim(rival(req), dedup.StateUnknown)
			})
		}},
		{"takeover starts a new life", func(s *subject) {
			req := request()
			req.TTL = life
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			successor := usurper(req)
			successor.TTL = long
			s.claim(successor, dedup.StateTakenOver)
			s.Advance(life + past)
			s.complete(successor, "answer", dedup.Applied)
		}},
		{"replays don't stretch a record", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.completeWith(req, dedup.Completion{TTL: life, Blob: []byte("answer")}, dedup.Applied)
			first := s.recorded(req, "answer").TTLLeft
			s.within("TTLLeft", first, life)
			s.within("TTLLeft of the second replay", s.recorded(req, "answer").TTLLeft, first)
			s.claim(req, dedup.StateCompleted)
			s.Advance(life + past)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"less than a millisecond is a millisecond", func(s *subject) {
			req := request()
			req.Lease, req.TTL = 0, time.Nanosecond
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"a century is not over at once", func(s *subject) {
			req := request()
			req.Lease, req.TTL = 100*365*24*time.Hour, 100*365*24*time.Hour
			s.claim(req, dedup.StateAcquired)
			s.within("LeaseLeft", s.claim(rival(req), dedup.StateInProgress).LeaseLeft, req.Lease)
			s.completeWith(req, dedup.Completion{TTL: req.TTL, Blob: []byte("kept")}, dedup.Applied)
			s.within("TTLLeft", s.recorded(req, "kept").TTLLeft, req.TTL)
		}},
	}
}

// expiresDespite claims for a while, lets something happen, and expects the ID to be free
// when the while is over.
func (s *subject) expiresDespite(something func(req dedup.ClaimRequest)) {
	s.Helper()
	req := request()
	req.TTL = life
	s.claim(req, dedup.StateAcquired)
	something(req)
	s.Advance(life + past)
	s.claim(rival(req), dedup.StateAcquired)
}
