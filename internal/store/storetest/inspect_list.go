package storetest

import (
	"slices"
	"time"

	"idemproxy/internal/dedup"
)

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
