package storetest

import (
	"time"

	"idemproxy/internal/dedup"
)

// watchCases say what those who wait for the end of a claim are told, and that a claim
// that is waited for is a claim like any other.
func watchCases() []testCase {
	return []testCase{
		{"every end is told to those who watch", func(s *subject) {
			for name, end := range s.ends() {
				req := request()
				w := s.waitFor(req)
				end(req)
				s.woken(w, "a claim was "+name)
			}
		}},
		{"those who watch in another process are told", func(s *subject) {
			for name, end := range s.ends() {
				req := request()
				req.Note = []byte("note")
				s.claim(req, dedup.StateAcquired)
				w := s.watched(s.Peer, req.ID)
				s.waits(s.Peer, req)
				end(req)
				s.woken(w, "a claim was "+name+" elsewhere")
			}
		}},
		{"all who watch an ID are told", func(s *subject) {
			req := request()
			one := s.waitFor(req)
			two, three := s.watched(s.Store, req.ID), s.watched(s.Peer, req.ID)
			s.complete(req, "answer", dedup.Applied)
			for _, w := range []<-chan struct{}{one, two, three} {
				s.woken(w, "the claim was completed")
			}
		}},
		{"who has stopped watching leaves the others alone", func(s *subject) {
			req := request()
			_, stop := s.Store.Watch(req.ID)
			w := s.waitFor(req)
			stop()
			stop()
			s.complete(req, "answer", dedup.Applied)
			s.woken(w, "the claim was completed")
		}},
		{"a claim that is waited for stays what it is", waitedForStays},
		{"who takes over is waited for, too", func(s *subject) {
			req := request()
			w := s.waitFor(req)
			s.renew(req, short, dedup.Applied)
			s.Advance(past)
			next := usurper(req)
			next.Note = []byte("note")
			s.claim(next, dedup.StateTakenOver)
			s.waits(s.Store, next)
			s.quiet(w)
			s.complete(next, "answer", dedup.Applied)
			s.woken(w, "the successor's claim was completed")
		}},
		{"who waits for what is no claim finds what there is", func(s *subject) {
			done, lost, free := request(), request(), request()
			s.claim(done, dedup.StateAcquired)
			s.complete(done, "done", dedup.Applied)
			s.claim(lost, dedup.StateAcquired)
			s.abandon(lost, dedup.Applied)
			for _, c := range []struct {
				req  dedup.ClaimRequest
				want dedup.State
			}{{done, dedup.StateCompleted}, {lost, dedup.StateUnknown}, {free, dedup.StateAcquired}} {
				waiting := rival(c.req)
				waiting.Wait = true
				s.claim(waiting, c.want)
			}
			s.claim(rival(lost), dedup.StateUnknown)
			s.recorded(done, "done")
		}},
		{"a closed store can be watched, in silence", func(s *subject) {
			if err := s.Store.Close(); err != nil {
				s.Fatalf("Close: %v", err)
			}
			_, stop := s.Store.Watch(newID())
			stop()
		}},
	}
}

func waitedForStays(s *subject) {
	req := request()
	req.Note = []byte("note")
	s.waitFor(req)
	s.within("LeaseLeft", s.waits(s.Store, req).LeaseLeft, long)
	s.noted(req, dedup.StateInProgress, "note")
	s.claim(usurper(req), dedup.StateInProgress)
	s.everythingFenced(rival(req))
	s.claim(req, dedup.StateAcquired)
	s.renew(req, short, dedup.Applied)
	s.Advance(past)
	s.noted(req, dedup.StateUnknown, "note")
	s.renew(req, long, dedup.Applied)
	s.noted(req, dedup.StateInProgress, "note")
	s.abandon(req, dedup.Applied)
	s.noted(req, dedup.StateUnknown, "note")
	s.complete(req, "late", dedup.Applied)
	s.complete(req, "again", dedup.Applied)
	s.recorded(req, "late")

	expiring := request()
	expiring.TTL = short
	s.waitFor(expiring)
	s.Advance(past)
	s.claim(rival(expiring), dedup.StateAcquired)
}

// ends are the ways in which a claim ends.
func (s *subject) ends() map[string]func(dedup.ClaimRequest) {
	return map[string]func(dedup.ClaimRequest){
		"completed":      func(req dedup.ClaimRequest) { s.complete(req, "answer", dedup.Applied) },
		"released":       func(req dedup.ClaimRequest) { s.release(req, dedup.Applied) },
		"marked unknown": func(req dedup.ClaimRequest) { s.abandon(req, dedup.Applied) },
		"freed by an operator": func(req dedup.ClaimRequest) {
			if v, err := s.Store.Free(s.Context(), req.ID, req.Token, dedup.StateInProgress); v != dedup.Applied || err != nil {
				s.Errorf("Free: %v, %v", v, err)
			}
		},
	}
}

// watched returns the channel of a watch that is in force.
func (s *subject) watched(store dedup.Store, id dedup.ID) <-chan struct{} {
	s.Helper()
	w, stop := store.Watch(id)
	s.Cleanup(stop)
	s.woken(w, "the watch came into force")
	return w
}

// waits claims, to wait, what another has.
func (s *subject) waits(store dedup.Store, req dedup.ClaimRequest) dedup.Found {
	s.Helper()
	req = rival(req)
	req.Wait = true
	found, err := store.Claim(s.Context(), req)
	if err != nil || found.State != dedup.StateInProgress {
		s.Fatalf("Claim, to wait: %+v, %v", found, err)
	}
	return found
}

// waitFor claims, and waits for it as another.
func (s *subject) waitFor(req dedup.ClaimRequest) <-chan struct{} {
	s.Helper()
	req.Note = []byte("note")
	s.claim(req, dedup.StateAcquired)
	w := s.watched(s.Store, req.ID)
	s.waits(s.Store, req)
	return w
}

// told expects a value, however slow the machine is.
func (s *subject) woken(w <-chan struct{}, what string) {
	s.Helper()
	if s.Deaf {
		return
	}
	select {
	case <-w:
	case <-time.After(20 * time.Second):
		s.Fatalf("%s, and who watches was not told", what)
	}
}

// quiet takes what may be there, for no reason.
func (s *subject) quiet(w <-chan struct{}) {
	select {
	case <-w:
	default:
	}
}
