package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"idemproxy/internal/dedup"
)

// quotaCases say who is a member of a scope.
func quotaCases() []testCase {
	return []testCase{
		{"no more members than the limit", func(s *subject) {
			scope := newScope()
			first := enrolment(scope, 2)
			s.enroll(first)
			s.enroll(enrolment(scope, 2))
			s.within("wait", s.enrolls(enrolment(scope, 2)), long)
			s.within("wait of the same again", s.enrolls(enrolment(scope, 1)), long)
			s.enroll(enrolment(scope, 3))
		}},
		{"a member is one member", func(s *subject) {
			scope := newScope()
			e := enrolment(scope, 1)
			s.enroll(e)
			s.enroll(e)
			successor := e
			successor.Token = dedup.NewToken()
			s.enroll(successor)
			s.full(enrolment(scope, 1))
		}},
		{"without a limit nobody is refused, and everybody counts", func(s *subject) {
			scope := newScope()
			for range 3 {
				s.enroll(enrolment(scope, 0))
			}
			s.full(enrolment(scope, 3))
			s.enroll(enrolment(scope, 4))
		}},
		{"scopes are independent", func(s *subject) {
			a, b := enrolment(newScope(), 1), enrolment(newScope(), 1)
			b.ID, b.Token = a.ID, a.Token
			s.enroll(a)
			s.enroll(b)
			s.dismiss(a)
			s.full(enrolment(b.Scope, 1))
			s.enroll(enrolment(a.Scope, 1))
		}},
		{"a dismissed member leaves its place", func(s *subject) {
			scope := newScope()
			e := enrolment(scope, 1)
			s.dismiss(e) // it is none yet
			s.enroll(e)
			s.dismiss(e)
			s.dismiss(e)
			s.enroll(enrolment(scope, 1))
			s.dismiss(e)
			s.full(enrolment(scope, 1))
		}},
		{"nobody dismisses what is another's by now", func(s *subject) {
			scope := newScope()
			e := enrolment(scope, 1)
			s.enroll(e)
			successor := e
			successor.Token = dedup.NewToken()
			s.enroll(successor)
			s.dismiss(e)
			s.full(enrolment(scope, 1))
			s.dismiss(successor)
			s.enroll(enrolment(scope, 1))
		}},
		{"members leave when their time is over", func(s *subject) {
			scope := newScope()
			brief := enrolment(scope, 2)
			brief.TTL = life
			s.enroll(brief)
			s.enroll(enrolment(scope, 2))
			s.within("wait", s.enrolls(enrolment(scope, 2)), life)
			s.Advance(life + past)
			s.enroll(enrolment(scope, 2))
			s.full(enrolment(scope, 2))
			s.full(brief) // it is none any more
		}},
		{"the wait is for the first to leave", func(s *subject) {
			scope := newScope()
			for _, ttl := range []time.Duration{long, long / 2, 2 * long} {
				e := enrolment(scope, 0)
				e.TTL = ttl
				s.enroll(e)
			}
			s.within("wait", s.enrolls(enrolment(scope, 3)), long/2)
			s.within("time since", long/2-s.enrolls(enrolment(scope, 3))+time.Millisecond, long/4)
		}},
		{"a member's time begins anew, and only a successor's is shorter", func(s *subject) {
			scope := newScope()
			e := enrolment(scope, 1)
			e.TTL = life
			s.enroll(e)
			e.TTL, e.Limit = long, 0
			s.enroll(e)
			s.Advance(life + past)
			s.full(enrolment(scope, 1))
			e.TTL = short
			s.enroll(e)
			s.Advance(past)
			s.full(enrolment(scope, 1)) // a renewal that comes late ends nothing early
			e.Token = dedup.NewToken()
			s.enroll(e)
			s.Advance(past)
			s.enroll(enrolment(scope, 1))
		}},
		{"a century as a member is not over at once", func(s *subject) {
			scope := newScope()
			e := enrolment(scope, 1)
			e.TTL = 100 * 365 * 24 * time.Hour
			s.enroll(e)
			s.within("wait", s.enrolls(enrolment(scope, 1)), e.TTL)
		}},
		{"the register knows nothing of entries", func(s *subject) {
			req, scope := request(), newScope()
			e := dedup.Enrolment{Scope: scope, ID: req.ID, Token: req.Token, TTL: long, Limit: 1}
			s.enroll(e)
			s.claim(req, dedup.StateAcquired)
			s.dismiss(e)
			s.complete(req, "kept", dedup.Applied)
			s.enroll(enrolment(scope, 1))
			s.recorded(req, "kept")
		}},
		{"as many of many as there is room for", asManyAsThereIsRoomFor},
		{"places that come and go are never too many", placesComeAndGo},
	}
}

// newScope names a scope that nobody has had before.
func newScope() dedup.ScopeID { return dedup.ScopeID(newID()) }

// enrolment is one of an ID that nobody has had before, for long.
func enrolment(scope dedup.ScopeID, limit int) dedup.Enrolment {
	return dedup.Enrolment{Scope: scope, ID: newID(), Token: dedup.NewToken(), TTL: long, Limit: limit}
}

// enrolls enrolls and returns what the store says.
func (s *subject) enrolls(e dedup.Enrolment) time.Duration {
	s.Helper()
	wait, err := s.Store.Enroll(s.Context(), e)
	if err != nil {
		s.Fatalf("Enroll: %v", err)
	}
	return wait
}

// enroll enrolls and expects that it is a member.
func (s *subject) enroll(e dedup.Enrolment) {
	s.Helper()
	if wait := s.enrolls(e); wait != 0 {
		s.Fatalf("Enroll: refused for %v, want a place", wait)
	}
}

// full expects that there is no place.
func (s *subject) full(e dedup.Enrolment) {
	s.Helper()
	if wait := s.enrolls(e); wait <= 0 {
		s.Fatalf("Enroll: a place, want none")
	}
}

func (s *subject) dismiss(e dedup.Enrolment) {
	s.Helper()
	if err := s.Store.Dismiss(s.Context(), e.Scope, e.ID, e.Token); err != nil {
		s.Fatalf("Dismiss: %v", err)
	}
}

// asManyAsThereIsRoomFor lets many compete at once, some of whose time is over.
func asManyAsThereIsRoomFor(s *subject) {
	const limit = 10
	scope := newScope()
	for range limit {
		gone := enrolment(scope, 0)
		gone.TTL = short
		s.enroll(gone)
	}
	s.Advance(past)
	var members atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range contenders {
		wg.Go(func() {
			e := enrolment(scope, limit)
			<-start
			switch wait, err := s.Store.Enroll(s.Context(), e); {
			case err != nil:
				s.Errorf("Enroll: %v", err)
			case wait == 0:
				members.Add(1)
			case wait < 0 || wait > long:
				s.Errorf("refused for %v", wait)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := members.Load(); n != limit {
		s.Fatalf("%d of %d are members, want %d", n, contenders, limit)
	}
}

// placesComeAndGo lets members leave while others come in.
func placesComeAndGo(s *subject) {
	const limit, workers, turns = 3, 8, 12
	scope := newScope()
	var members, most atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range turns {
				e := enrolment(scope, limit)
				wait, err := s.Store.Enroll(s.Context(), e)
				if err != nil {
					s.Errorf("Enroll: %v", err)
					return
				}
				if wait > 0 {
					continue
				}
				n := members.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				members.Add(-1) // before the store knows
				if err := s.Store.Dismiss(s.Context(), scope, e.ID, e.Token); err != nil {
					s.Errorf("Dismiss: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > limit {
		s.Errorf("%d members at once, want at most %d", n, limit)
	}
	for range limit {
		s.enroll(enrolment(scope, limit))
	}
	s.full(enrolment(scope, limit))
}
