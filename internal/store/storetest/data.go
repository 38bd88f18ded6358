package storetest

import (
	"bytes"
	"strings"

	"idemproxy/internal/dedup"
)

// dataCases say that a store gives back what it was given.
func dataCases() []testCase {
	return []testCase{
		{"bytes survive", func(s *subject) {
			var every []byte
			for i := range 256 {
				every = append(every, byte(i))
			}
			for _, blob := range []string{string(every), "", "\x00", "\r\n$-1\r\n", strings.Repeat("0123456789abcdef", 1<<16)} {
				req := request()
				req.Note = []byte(blob)
				s.claim(req, dedup.StateAcquired)
				s.noted(req, dedup.StateInProgress, blob)
				s.abandon(req, dedup.Applied)
				s.noted(req, dedup.StateUnknown, blob)
				s.complete(req, blob, dedup.Applied)
				s.recorded(req, blob)
			}
		}},
		{"note is kept through renewal and lease end", func(s *subject) {
			req := request()
			req.Note = []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.renew(req, short, dedup.Applied)
			s.Advance(past)
			s.noted(req, dedup.StateUnknown, "note")
		}},
		{"repeated claim keeps the note", func(s *subject) {
			req := request()
			req.Note = []byte("note")
			s.claim(req, dedup.StateAcquired)
			s.claim(req, dedup.StateAcquired)
			s.noted(req, dedup.StateInProgress, "note")
		}},
		{"the one who takes over brings its own note", func(s *subject) {
			req := request()
			req.Note = []byte("a long note of the old owner")
			s.claim(req, dedup.StateAcquired)
			s.abandon(req, dedup.Applied)
			successor := usurper(req)
			successor.Note = []byte("new")
			s.claim(successor, dedup.StateTakenOver)
			s.noted(req, dedup.StateInProgress, "new")
		}},
		{"record replaces a longer note", func(s *subject) {
			req := request()
			req.Note = bytes.Repeat([]byte("note"), 100)
			s.claim(req, dedup.StateAcquired)
			s.complete(req, "short", dedup.Applied)
			s.recorded(req, "short")
		}},
	}
}

// noted expects a state and the note that goes with it.
func (s *subject) noted(req dedup.ClaimRequest, state dedup.State, note string) {
	s.Helper()
	if found := s.claim(rival(req), state); string(found.Blob) != note {
		s.Fatalf("note is %.60q (%d bytes), want %.60q (%d bytes)", found.Blob, len(found.Blob), note, len(note))
	}
}
