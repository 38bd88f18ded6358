package dedup_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

// goldenNotes are the files testdata/note-v1-*.bin, written like goldenRecords.
func goldenNotes() map[string]dedup.Note {
	claimed := time.Date(2026, 3, 1, 12, 34, 56, 789e6, time.UTC)
	return map[string]dedup.Note{
		"note-v1-full.bin":  {Origin: dedup.Origin{Route: "payments", Replica: "idemproxy-7d9f-x2x"}, Claimed: claimed},
		"note-v1-empty.bin": {Claimed: time.UnixMilli(0).UTC()},
		"note-v1-long.bin":  {Origin: dedup.Origin{Route: strings.Repeat("r", 200), Replica: strings.Repeat("ä\x00\"", 50)}, Claimed: claimed},
	}
}

func TestNoteIsGolden(t *testing.T) {
	for name, want := range goldenNotes() {
		b := golden(t, name)
		if got, err := dedup.DecodeNote(b); err != nil || got != want {
			t.Errorf("%s decodes to %+v, %v; want %+v", name, got, err, want)
		}
		if got := want.Encode(); !bytes.Equal(got, b) {
			t.Errorf("%s: encoded are\n%q, want\n%q", name, got, b)
		}
	}
	if files, err := filepath.Glob(filepath.Join("testdata", "note-*.bin")); err != nil || len(files) != len(goldenNotes()) {
		t.Errorf("files %v (%v), want all of them tested", files, err)
	}
}

func TestNoteDamaged(t *testing.T) {
	unreadable := func(what string, b []byte) {
		if n, err := dedup.DecodeNote(b); !errors.Is(err, dedup.ErrUnreadable) || n != (dedup.Note{}) {
			t.Errorf("%s: decodes to %+v, %v; want ErrUnreadable", what, n, err)
		}
	}
	for name := range goldenNotes() {
		whole := golden(t, name)
		for n := range whole {
			unreadable(name+" cut", whole[:n])
			for bit := range 8 {
				b := bytes.Clone(whole)
				b[n] ^= 1 << bit
				unreadable(name+" with one bit flipped", b)
			}
		}
		unreadable(name+" and a byte", append(bytes.Clone(whole), 0))
	}
	unreadable("nothing", nil)
	unreadable("a record", golden(t, "record-v2-full.bin"))
}

func FuzzNote(f *testing.F) {
	for name := range goldenNotes() {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := dedup.DecodeNote(b)
		if err != nil {
			return
		}
		if again, err := dedup.DecodeNote(n.Encode()); err != nil || again != n {
			t.Errorf("%+v decodes to %+v, %v", n, again, err)
		}
	})
}

// A claim, an unknown outcome and a record tell which route and which replica they are of;
// an answer too large for the store does so too.
func TestClaimsAndRecordsTellTheirOrigin(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.guard.Replica = "replica-1"
		c := s.mustClaim()
		found, err := s.store.Store.Claim(s.Context(), dedup.ClaimRequest{ID: s.op.ID, Token: dedup.NewToken(), Lease: time.Minute, TTL: time.Hour})
		s.must(err)
		want := dedup.Note{Origin: dedup.Origin{Route: "payments", Replica: "replica-1"}, Claimed: time.Now().UTC()}
		if note, err := dedup.DecodeNote(found.Blob); err != nil || note != want {
			t.Errorf("note %+v, %v; want %+v", note, err, want)
		}
		s.must(c.Complete(s.Context(), answer("ok")))
		if r := s.mustReplay(); r.Origin != want.Origin {
			t.Errorf("record of %+v", r.Origin)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := store.DefaultConfig().Memory
		cfg.MaxBytes = 1000
		m := store.NewMemory(cfg)
		defer m.Close()
		g, r := dedup.NewGuard(m), rule(t, nil)
		g.Replica = "replica-1"
		op := dedup.Operation{ID: dedup.Scope{}.ID("key")}
		if err := g.Begin(t.Context(), r, op).Claim.Complete(t.Context(), answer(strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
		found, err := m.Claim(t.Context(), dedup.ClaimRequest{ID: op.ID, Token: dedup.NewToken(), Lease: time.Minute, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if record, err := dedup.DecodeRecord(found.Blob); err != nil || !record.NotStored || record.Origin.Replica != "replica-1" {
			t.Errorf("record %+v, %v", record, err)
		}
	})
}
