package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

func openMemory(t *testing.T, change func(*store.MemoryConfig)) *store.Memory {
	t.Helper()
	cfg := store.DefaultConfig().Memory
	if change != nil {
		change(&cfg)
	}
	m := store.NewMemory(cfg)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func TestMemoryConforms(t *testing.T) {
	open := func(t *testing.T) storetest.Harness { return storetest.Harness{Store: openMemory(t, nil)} }
	t.Run("bubble", func(t *testing.T) { storetest.RunInBubble(t, open) })
	t.Run("real time", func(t *testing.T) { storetest.Run(t, open) })
}

// request is a claim of an entry nobody has had before.
func request(ttl time.Duration) dedup.ClaimRequest {
	return dedup.ClaimRequest{
		ID:    dedup.ID(dedup.NewToken()) + dedup.ID(dedup.NewToken()[:21]),
		Token: dedup.NewToken(), Lease: time.Hour, TTL: ttl,
	}
}

func mustClaim(t *testing.T, s dedup.Store, req dedup.ClaimRequest, want dedup.State) dedup.Found {
	t.Helper()
	found, err := s.Claim(t.Context(), req)
	if err != nil || found.State != want {
		t.Fatalf("Claim: state %d, error %v; want state %d", found.State, err, want)
	}
	return found
}

func mustComplete(t *testing.T, s dedup.Store, req dedup.ClaimRequest, blob []byte) {
	t.Helper()
	v, err := s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: blob})
	if err != nil || v != dedup.Applied {
		t.Fatalf("Complete: verdict %d, error %v; want applied", v, err)
	}
}

func wantRefused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("error %v; want %v, %v", err, want, dedup.ErrNotApplied)
	}
}

func wantUsage(t *testing.T, m *store.Memory, entries int, bytes dedup.Size) {
	t.Helper()
	if e, b := m.Usage(); e != entries || b != bytes {
		t.Fatalf("usage is %d entries and %d bytes, want %d and %d", e, b, entries, bytes)
	}
}

func TestMemoryRefusesMoreEntriesThanAllowed(t *testing.T) {
	m := openMemory(t, func(c *store.MemoryConfig) { c.MaxEntries = 3 })
	var reqs []dedup.ClaimRequest
	for range 3 {
		reqs = append(reqs, request(time.Hour))
		mustClaim(t, m, reqs[len(reqs)-1], dedup.StateAcquired)
	}
	_, err := m.Claim(t.Context(), request(time.Hour))
	wantRefused(t, err, dedup.ErrStoreFull)
	wantRefused(t, m.Ping(t.Context()), dedup.ErrStoreFull)
	for _, req := range reqs { // what was there is there, and can end
		mustComplete(t, m, req, []byte("answer"))
	}
	extra := request(time.Hour)
	if _, err := m.Release(t.Context(), extra.ID, extra.Token); err != nil {
		t.Fatal(err)
	}
	_, err = m.Complete(t.Context(), extra.ID, extra.Token, dedup.Completion{TTL: time.Hour})
	wantRefused(t, err, dedup.ErrStoreFull)
}

func TestMemoryFullForARecordLeavesTheClaim(t *testing.T) {
	req := request(time.Hour)
	req.Note = []byte("note")
	empty := dedup.Size(len(req.ID) + dedup.TokenLength + store.EntryOverhead)
	m := openMemory(t, func(c *store.MemoryConfig) { c.MaxBytes = empty + 100 })
	mustClaim(t, m, req, dedup.StateAcquired)
	wantUsage(t, m, 1, empty+4)
	_, err := m.Claim(t.Context(), request(time.Hour))
	wantRefused(t, err, dedup.ErrStoreFull)
	wantUsage(t, m, 1, empty+4)

	_, err = m.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: make([]byte, 101)})
	wantRefused(t, err, dedup.ErrStoreFull)
	wantUsage(t, m, 1, empty+4)
	other := req
	other.Token = dedup.NewToken()
	if found := mustClaim(t, m, other, dedup.StateInProgress); string(found.Blob) != "note" {
		t.Fatalf("note is %q", found.Blob)
	}

	mustComplete(t, m, req, make([]byte, 100))
	wantUsage(t, m, 1, empty+100)
	mustClaim(t, m, other, dedup.StateCompleted)
}

func TestMemoryRemovesTheExpiredByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openMemory(t, func(c *store.MemoryConfig) { c.CleanupInterval = time.Minute })
		for i := range 1000 {
			mustClaim(t, m, request(time.Duration(i+1)*time.Second), dedup.StateAcquired)
		}
		time.Sleep(10*time.Minute + time.Second)
		if n, _ := m.Usage(); n != 400 {
			t.Fatalf("%d entries after ten minutes, want 400", n)
		}
		time.Sleep(10 * time.Minute)
		wantUsage(t, m, 0, 0)
	})
}

func TestMemoryTakesRoomFromTheExpiredWhenNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openMemory(t, func(c *store.MemoryConfig) { c.MaxEntries, c.CleanupInterval = 100, 24*time.Hour })
		kept := request(time.Hour)
		mustClaim(t, m, kept, dedup.StateAcquired)
		for range 99 {
			mustClaim(t, m, request(time.Second), dedup.StateAcquired)
		}
		_, err := m.Claim(t.Context(), request(time.Hour))
		wantRefused(t, err, dedup.ErrStoreFull)
		time.Sleep(time.Second)
		if err := m.Ping(t.Context()); err != nil {
			t.Fatalf("Ping: %v", err)
		}
		for range 99 {
			mustClaim(t, m, request(time.Hour), dedup.StateAcquired)
		}
		_, err = m.Claim(t.Context(), request(time.Hour))
		wantRefused(t, err, dedup.ErrStoreFull)
		mustClaim(t, m, kept, dedup.StateAcquired)
	})
}

// A flood of claims never pushes one out, and the count never passes the limit.
func TestMemoryNeverEvicts(t *testing.T) {
	const limit, callers, each = 500, 16, 200
	m := openMemory(t, func(c *store.MemoryConfig) { c.MaxEntries = limit })
	got := make([][]dedup.ClaimRequest, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				req := request(time.Hour)
				if _, err := m.Claim(t.Context(), req); err == nil {
					got[i] = append(got[i], req)
				} else if !errors.Is(err, dedup.ErrStoreFull) {
					t.Errorf("Claim: %v", err)
				}
				if n, _ := m.Usage(); n > limit {
					t.Errorf("%d entries, limit %d", n, limit)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, reqs := range got {
		for _, req := range reqs {
			total++
			mustComplete(t, m, req, []byte("answer"))
		}
	}
	if total != limit {
		t.Fatalf("%d claims acquired, want %d", total, limit)
	}
}

func TestMemoryAccountsForEverythingItGivesBack(t *testing.T) {
	m := openMemory(t, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 300 {
				req := request(time.Hour)
				req.Note = fmt.Appendf(nil, "%d/%d", i, j)
				if found, err := m.Claim(t.Context(), req); err != nil || found.State != dedup.StateAcquired {
					t.Errorf("Claim: state %d, error %v", found.State, err)
				}
				if v, err := m.Release(t.Context(), req.ID, req.Token); err != nil || v != dedup.Applied {
					t.Errorf("Release: verdict %d, error %v", v, err)
				}
			}
		})
	}
	wg.Wait()
	wantUsage(t, m, 0, 0)
}

// The note and the blob are kept as they are given: what has spare capacity is copied, so
// that what is counted is what is held.
func TestMemoryHoldsNoSpareCapacity(t *testing.T) {
	m := openMemory(t, nil)
	req := request(time.Hour)
	mustClaim(t, m, req, dedup.StateAcquired)
	mustComplete(t, m, req, append(make([]byte, 0, 1<<20), "small"...))
	other := req
	other.Token = dedup.NewToken()
	if found := mustClaim(t, m, other, dedup.StateCompleted); cap(found.Blob) > 100 {
		t.Fatalf("5 bytes hold %d", cap(found.Blob))
	}
}

func TestMemoryReplayAllocatesNothing(t *testing.T) {
	m := openMemory(t, nil)
	req := request(time.Hour)
	mustClaim(t, m, req, dedup.StateAcquired)
	mustComplete(t, m, req, make([]byte, 1<<20))
	other := req
	other.Token = dedup.NewToken()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Claim(ctx, other) }); n != 0 {
		t.Fatalf("a replay makes %v allocations, want none", n)
	}
}

func BenchmarkMemoryReplay(b *testing.B) {
	m := store.NewMemory(store.DefaultConfig().Memory)
	defer m.Close()
	req := request(time.Hour)
	_, _ = m.Complete(b.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: make([]byte, 1<<10)})
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = m.Claim(ctx, req)
		}
	})
}

func BenchmarkMemoryClaimComplete(b *testing.B) {
	m := store.NewMemory(store.MemoryConfig{MaxEntries: 1 << 30, MaxBytes: dedup.GiB << 10, CleanupInterval: time.Hour})
	defer m.Close()
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req := request(time.Hour)
			_, _ = m.Claim(ctx, req)
			_, _ = m.Complete(ctx, req.ID, req.Token, dedup.Completion{TTL: time.Hour})
			_, _ = m.Release(ctx, req.ID, req.Token)
		}
	})
}
