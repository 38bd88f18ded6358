package storetest

import (
	"bytes"
	"slices"
	"time"

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
				s.seen(req, dedup.StateInProgress)
				s.list(dedup.ListRequest{Limit: 10, MaxBlob: 10})
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

func listsAll(s *subject) {
	const n = 60
	want := map[dedup.ID]dedup.State{}
	for i := range n {
		req := request()
		req.Note = []byte("note")
		s.claim(req, dedup.StateAcquired)
		want[req.ID] = dedup.StateInProgress
		switch i % 3 {
		case 1:
			s.complete(req, "answer", dedup.Applied)
			want[req.ID] = dedup.StateCompleted
		case 2:
			s.abandon(req, dedup.Applied)
			want[req.ID] = dedup.StateUnknown
		}
	}
	for _, limit := range []int{1, 7, n, 10 * n} {
		got := s.list(dedup.ListRequest{Limit: limit, MaxBlob: 1000})
		if len(got) != n {
			s.Fatalf("%d listed by %d at a time, want %d", len(got), limit, n)
		}
		for id, e := range got {
			blob := "note"
			if e.State == dedup.StateCompleted {
				blob = "answer"
			}
			if e.State != want[id] || string(e.Blob) != blob || e.Token == "" {
				s.Errorf("listed %+v, want %s with %q", e, stateName(want[id]), blob)
			}
			s.within("TTLLeft", e.TTLLeft, long)
		}
	}
}

func listsSome(s *subject) {
	unknown, small, large := request(), request(), request()
	for _, req := range []dedup.ClaimRequest{unknown, small, large} {
		s.claim(req, dedup.StateAcquired)
	}
	s.abandon(unknown, dedup.Applied)
	s.complete(small, "small", dedup.Applied)
	blob := make([]byte, 5000)
	for i := range blob {
		blob[i] = byte(i * i >> 3) // not to be compressed to nothing
	}
	s.completeWith(large, dedup.Completion{TTL: long, Blob: blob}, dedup.Applied)
	if got := s.list(dedup.ListRequest{Limit: 2, Only: dedup.StateUnknown}); len(got) != 1 || got[unknown.ID].State != dedup.StateUnknown {
		s.Errorf("unknown are %v", got)
	}
	got := s.list(dedup.ListRequest{Limit: 2, Only: dedup.StateCompleted, MaxBlob: 150})
	if len(got) != 2 || string(got[small.ID].Blob) != "small" {
		s.Errorf("completed are %v", got)
	}
	if e := got[large.ID]; len(e.Blob) != 0 || e.Size <= 150 || e.Unreadable {
		s.Errorf("the large one has %d bytes here, size %d", len(e.Blob), e.Size)
	}
}

// trailCases say what the audit trail keeps.
func trailCases() []testCase {
	return []testCase{
		{"trail tells what came after a position", func(s *subject) {
			_, begin := s.told("")
			s.tell("before")
			s.awaitTold(begin, 1)
			_, start := s.told("")
			s.tell("one")
			s.tell("two")
			got, at := s.awaitTold(start, 2)
			if !slices.Equal(got, []string{"one", "two"}) {
				s.Fatalf("told %q", got)
			}
			if again, same := s.told(at); len(again) != 0 || same != at {
				s.Errorf("told %q again, at %q after %q", again, same, at)
			}
			s.tell("three")
			if got, _ := s.awaitTold(at, 1); !slices.Equal(got, []string{"three"}) {
				s.Errorf("told %q", got)
			}
			if got := s.list(dedup.ListRequest{Limit: 10}); len(got) != 0 {
				s.Errorf("the trail is listed: %v", got)
			}
		}},
		{"trail that is empty", func(s *subject) {
			entries, at := s.told("")
			if len(entries) != 0 || at == "" {
				s.Fatalf("told %q, at %q", entries, at)
			}
			s.told(at)
			s.tell("first")
			if got, _ := s.awaitTold(at, 1); !slices.Equal(got, []string{"first"}) {
				s.Errorf("told %q", got)
			}
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

// list reads all pages, and expects no entry twice.
func (s *subject) list(req dedup.ListRequest) map[dedup.ID]dedup.Entry {
	s.Helper()
	all := map[dedup.ID]dedup.Entry{}
	for range 10_000 {
		page, err := s.Store.List(s.Context(), req)
		if err != nil {
			s.Fatalf("List: %v", err)
		}
		for _, e := range page.Entries {
			if _, twice := all[e.ID]; twice {
				s.Errorf("%s is listed twice", e.ID)
			}
			all[e.ID] = e
		}
		if page.Next == "" {
			return all
		}
		req.Cursor = page.Next
	}
	s.Fatal("the list has no end")
	return nil
}

func (s *subject) tell(entry string) {
	s.Helper()
	if err := s.Store.Tell(s.Context(), []byte(entry)); err != nil {
		s.Fatalf("Tell: %v", err)
	}
}

func (s *subject) told(after string) (entries []string, at string) {
	s.Helper()
	got, at, err := s.Store.Told(s.Context(), after)
	if err != nil {
		s.Fatalf("Told: %v", err)
	}
	for _, e := range got {
		entries = append(entries, string(e))
	}
	return entries, at
}

// awaitTold reads the trail until there are n entries after a position, as each of them is
// told once.
func (s *subject) awaitTold(after string, n int) (entries []string, at string) {
	s.Helper()
	for range 200 {
		more, next := s.told(after)
		entries, after = append(entries, more...), next
		if len(entries) >= n {
			return entries, after
		}
		s.Advance(100 * time.Millisecond)
	}
	s.Fatalf("told %q, want %d", entries, n)
	return nil, ""
}
