package storetest

import (
	"bytes"
	"slices"

	"idemproxy/internal/dedup"
)

// inspectCases say what an operator sees and what he can free.
func inspectCases() []testCase {
	return slices.Concat(lookCases(), freeCases(), []testCase{
		{"list has every entry once", listsAll},
		{"list leaves out what is not asked for", listsSome},
		{"list leaves out what is expired or free", func(s *subject) {
			brief, freed, kept := request(), request(), request()
			brief.TTL = short
			for _, req := range []dedup.ClaimRequest{brief, freed, kept} {
				s.claim(req, dedup.StateAcquired)
			}
			s.release(freed, dedup.Applied)
			s.Advance(past)
			if got := s.list(dedup.ListRequest{Limit: 10}); len(got) != 1 || got[kept.ID].State != dedup.StateInProgress {
				s.Errorf("listed %v, want only %s", got, kept.ID)
			}
		}},
		{"list of nothing ends", func(s *subject) {
			if got := s.list(dedup.ListRequest{Limit: 10}); len(got) != 0 {
				s.Errorf("listed %v", got)
			}
		}},
		{"list leaves out what is no entry", func(s *subject) {
			if s.Plant == nil {
				return
			}
			id, kept := newID(), request()
			s.claim(kept, dedup.StateAcquired)
			s.Plant(s.T, id, []byte("something else entirely, and longer than any header of ours is"))
			if got := s.list(dedup.ListRequest{Limit: 10}); len(got) != 1 {
				s.Errorf("listed %v, want only %s", got, kept.ID)
			}
		}},
		{"list and trail of a closed store", func(s *subject) {
			ctx := s.Context()
			if err := s.Store.Close(); err != nil {
				s.Fatal(err)
			}
			_, list := s.Store.List(ctx, dedup.ListRequest{Limit: 1})
			_, _, told := s.Store.Told(ctx, "")
			for op, err := range map[string]error{"List": list, "Told": told, "Tell": s.Store.Tell(ctx, []byte("x"))} {
				s.fails(op, err, dedup.ErrStoreClosed)
			}
		}},
	})
}

func lookCases() []testCase {
	return []testCase{
		{"look at nothing", func(s *subject) {
			if e := s.look(request()); e.State != 0 {
				s.Errorf("found %+v", e)
			}
		}},
		{"look at a claim", func(s *subject) {
			req := request()
			req.Note, req.TTL = []byte("note"), 2*long
			s.claim(req, dedup.StateAcquired)
			e := s.seen(req, dedup.StateInProgress)
			s.within("LeaseLeft", e.LeaseLeft, req.Lease)
			s.within("TTLLeft", e.TTLLeft, req.TTL)
			if string(e.Blob) != "note" || e.Size < 4 || e.Unreadable {
				s.Errorf("found %+v", e)
			}
		}},
		{"look at a claim whose lease is over", func(s *subject) {
			req := request()
			req.Lease, req.Note = short, []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			if e := s.seen(req, dedup.StateUnknown); string(e.Blob) != "note" {
				s.Errorf("found %+v", e)
			}
			s.renew(req, long, dedup.Applied)
			s.seen(req, dedup.StateInProgress)
		}},
		{"look at an unknown outcome", func(s *subject) {
			req := request()
			req.Note = []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			e := s.seen(req, dedup.StateUnknown)
			s.within("TTLLeft", e.TTLLeft, req.TTL)
			if string(e.Blob) != "note" {
				s.Errorf("found %+v", e)
			}
		}},
		{"look at a record", func(s *subject) {
			req, blob := request(), bytes.Repeat([]byte("\x00\xffrecord"), 40_000)
			s.claim(req, dedup.StateAcquired)
			s.completeWith(req, dedup.Completion{TTL: 3 * long, Blob: blob}, dedup.Applied)
			e := s.seen(req, dedup.StateCompleted)
			s.within("TTLLeft", e.TTLLeft, 3*long)
			if !bytes.Equal(e.Blob, blob) || e.Size == 0 {
				s.Errorf("found %d bytes of %d, size %d", len(e.Blob), len(blob), e.Size)
			}
		}},
		{"looks and lists don't stretch a claim", func(s *subject) {
			s.expiresDespite(func(req dedup.ClaimRequest) {
				s.look(req)
				if _, err := s.Store.List(s.Context(), dedup.ListRequest{Limit: 10, MaxBlob: 10}); err != nil { // one page: a life is short
					s.Errorf("List: %v", err)
				}
			})
		}},
	}
}

func freeCases() []testCase {
	return []testCase{
		{"free nothing", func(s *subject) {
			s.free(request(), dedup.StateUnknown, dedup.Gone)
		}},
		{"free a living claim", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.free(req, dedup.StateInProgress, dedup.Applied)
			s.free(req, dedup.StateInProgress, dedup.Gone)
			s.renew(req, long, dedup.Gone)
			successor := rival(req)
			s.claim(successor, dedup.StateAcquired)
			s.renew(req, long, dedup.Fenced)
			s.complete(req, "late", dedup.Fenced)
			s.complete(successor, "answer", dedup.Applied)
			s.recorded(req, "answer")
		}},
		{"free a claim whose lease is over", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.free(req, dedup.StateUnknown, dedup.Applied)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"free a claim whose lease ended meanwhile", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.free(req, dedup.StateInProgress, dedup.Applied)
		}},
		{"free an unknown outcome", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.free(req, dedup.StateUnknown, dedup.Applied)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"free a record", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "answer", dedup.Applied)
			s.free(req, dedup.StateCompleted, dedup.Applied)
			s.claim(rival(req), dedup.StateAcquired)
		}},
		{"free what was taken over meanwhile", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			successor := usurper(req)
			s.claim(successor, dedup.StateTakenOver)
			s.free(req, dedup.StateUnknown, dedup.Fenced)
			s.free(req, dedup.StateInProgress, dedup.Fenced)
			s.complete(successor, "answer", dedup.Applied)
			s.free(req, dedup.StateCompleted, dedup.Fenced)
			s.recorded(req, "answer")
		}},
		{"free what was renewed meanwhile", func(s *subject) {
			req := request()
			req.Lease = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.renew(req, long, dedup.Applied)
			s.free(req, dedup.StateUnknown, dedup.Fenced)
			s.claim(rival(req), dedup.StateInProgress)
		}},
		{"free what was answered meanwhile", func(s *subject) {
			req := request()
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			s.complete(req, "answer", dedup.Applied)
			s.free(req, dedup.StateUnknown, dedup.Fenced)
			s.free(req, dedup.StateInProgress, dedup.Fenced)
			s.recorded(req, "answer")
		}},
		{"free what is expired", func(s *subject) {
			req := request()
			req.TTL = short
			s.claim(req, dedup.StateAcquired)
			s.Advance(past)
			s.free(req, dedup.StateInProgress, dedup.Gone)
		}},
	}
}

// look looks at the entry of a request.
func (s *subject) look(req dedup.ClaimRequest) dedup.Entry {
	s.Helper()
	e, err := s.Store.Look(s.Context(), req.ID)
	if err != nil {
		s.Fatalf("Look: %v", err)
	}
	return e
}

// seen expects a look to find an entry of the request's owner.
func (s *subject) seen(req dedup.ClaimRequest, want dedup.State) dedup.Entry {
	s.Helper()
	e := s.look(req)
	if e.State != want || e.ID != req.ID || e.Token != req.Token {
		s.Fatalf("Look found %+v, want %s", e, stateName(want))
	}
	if listed := s.list(dedup.ListRequest{Limit: 10}); listed[req.ID].State != want {
		s.Fatalf("List has %+v, want %s", listed[req.ID], stateName(want))
	}
	return e
}

func (s *subject) free(req dedup.ClaimRequest, state dedup.State, want dedup.Verdict) {
	s.Helper()
	got, err := s.Store.Free(s.Context(), req.ID, req.Token, state)
	s.verdict("Free", got, err, want)
}
