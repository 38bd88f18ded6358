package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// openFile opens a store in a file; the test closes it at its end, or earlier.
func openFile(t testing.TB, path string, change func(*store.Config)) *store.File {
	t.Helper()
	s, err := store.Open(t.Context(), fileConfig(path, change))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return bare[*store.File](s)
}

func fileConfig(path string, change func(*store.Config)) store.Config {
	cfg := store.DefaultConfig()
	cfg.Type = "file"
	cfg.Timeout = 10 * time.Second // a slow disk is no fault here
	cfg.File.Path = path
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "folder", "idemproxy.db") }

func TestFileConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path := newFile(t)
		s := &reopened{openFile(t, path, nil)}
		return storetest.Harness{Store: s, Plant: func(t *testing.T, id dedup.ID, raw []byte) {
			t.Helper()
			must(t, s.Close())
			inside(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("entries")).Put([]byte(id), raw) })
			s.Store = openFile(t, path, nil)
		}}
	})
}

// reopened is a store that may be closed and opened again between operations.
type reopened struct{ dedup.Store }

// inside opens the file as bbolt does, while no store has it.
func inside(t *testing.T, path string, do func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	must(t, err)
	must(t, db.Update(do))
	must(t, db.Close())
}

func TestFileKeepsEverythingWhenItIsReopened(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	claimed, recorded, unknown := request(time.Hour), request(time.Hour), request(time.Hour)
	claimed.Note = []byte("note")
	mustClaim(t, s, claimed, dedup.StateAcquired)
	mustClaim(t, s, recorded, dedup.StateAcquired)
	mustComplete(t, s, recorded, []byte("answer"))
	mustClaim(t, s, unknown, dedup.StateAcquired)
	_, err := s.Complete(t.Context(), unknown.ID, unknown.Token, dedup.Completion{Unknown: true})
	must(t, err)
	must(t, s.Close())

	s = openFile(t, path, nil)
	mustClaim(t, s, claimed, dedup.StateAcquired) // still ours
	claimed.Token = dedup.NewToken()
	if found := mustClaim(t, s, claimed, dedup.StateInProgress); string(found.Blob) != "note" {
		t.Errorf("the note is %q", found.Blob)
	}
	if found := mustClaim(t, s, recorded, dedup.StateCompleted); string(found.Blob) != "answer" {
		t.Errorf("the record is %q", found.Blob)
	}
	unknown.Token = dedup.NewToken()
	mustClaim(t, s, unknown, dedup.StateUnknown)
}

func TestFileIsForOneProcess(t *testing.T) {
	path := newFile(t)
	openFile(t, path, nil)
	start := time.Now()
	_, err := store.Open(t.Context(), fileConfig(path, nil))
	if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("the second one: error %v", err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestFileDamagedEntriesAreUnreadableAndStay(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	reqs := make([]dedup.ClaimRequest, 8)
	for i := range reqs {
		reqs[i] = request(time.Hour)
		mustClaim(t, s, reqs[i], dedup.StateAcquired)
		mustComplete(t, s, reqs[i], []byte("answer"))
	}
	must(t, s.Close())
	inside(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("entries"))
		get := func(i int) []byte { return append([]byte(nil), b.Get([]byte(reqs[i].ID))...) }
		flipped := func(i, at int) []byte {
			v := get(i)
			v[(at+len(v))%len(v)] ^= 1
			return v
		}
		for i, v := range [][]byte{{}, []byte("x"), flipped(2, 0), flipped(3, 8), flipped(4, -1), get(5)[:20], get(7)} {
			if err := b.Put([]byte(reqs[i].ID), v); err != nil {
				return err
			}
		}
		return nil
	})
	s = openFile(t, path, nil)
	for i, req := range reqs[:7] {
		for range 2 {
			for op, err := range eachOp(t.Context(), s, req) {
				if op == "Claim" {
					_, err = s.Claim(t.Context(), req)
				}
				if op != "Ping" && op != "Enroll" && op != "Dismiss" && !errors.Is(err, dedup.ErrUnreadable) {
					t.Errorf("%s of damaged entry %d: error %v", op, i, err)
				}
			}
		}
	}
	mustClaim(t, s, reqs[7], dedup.StateCompleted)
}

// A file that lost its end, which no power cut does to what was synced, is an error and
// no crash.
func TestFileCutShortIsAnError(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	var reqs []dedup.ClaimRequest
	for range 50 {
		req := request(time.Hour)
		mustClaim(t, s, req, dedup.StateAcquired)
		mustComplete(t, s, req, make([]byte, 20_000))
		reqs = append(reqs, req)
	}
	must(t, s.Close())
	must(t, os.Truncate(path, 400_000))
	again, err := store.Open(t.Context(), fileConfig(path, nil))
	if err != nil {
		return // it may be noticed at once
	}
	defer again.Close()
	failed := 0
	for _, req := range reqs {
		found, err := again.Claim(t.Context(), req)
		if err != nil {
			failed++
		} else if found.State != dedup.StateCompleted {
			t.Fatalf("an entry in the lost part is found as %d", found.State)
		}
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
}

func TestFilePurgesAndUsesTheRoomAgain(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	size := func() int64 {
		info, err := os.Stat(path)
		must(t, err)
		return info.Size()
	}
	round := func() {
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				req := request(time.Hour)
				mustClaim(t, s, req, dedup.StateAcquired)
				_, err := s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: 20 * time.Millisecond, Blob: make([]byte, 10_000)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(1200 * time.Millisecond) // two looks of the purge
	}
	round()
	round()
	before := size()
	for range 3 {
		round()
	}
	if after := size(); after > before {
		t.Errorf("the file grew from %d to %d bytes", before, after)
	}
	must(t, s.Close())
	inside(t, path, func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"entries", "expiry"} {
			if n := tx.Bucket([]byte(bucket)).Stats().KeyN; n != 0 {
				t.Errorf("%d left in %s", n, bucket)
			}
		}
		return nil
	})
}

// At its limit the file takes no new claims; replays work, and what is claimed can end.
func TestFileFull(t *testing.T) {
	s := openFile(t, newFile(t), func(c *store.Config) { c.File.MaxSize = 1 << 20 })
	var last dedup.ClaimRequest
	var err error
	var n int
	for ; n < 1000; n++ {
		req := request(time.Hour)
		req.Note = make([]byte, 10_000)
		if _, err = s.Claim(t.Context(), req); err != nil {
			break
		}
		last = req
	}
	wantRefused(t, err, dedup.ErrStoreFull)
	wantRefused(t, s.Ping(t.Context()), dedup.ErrStoreFull)
	mustComplete(t, s, last, make([]byte, 1<<20))
	mustClaim(t, s, last, dedup.StateCompleted)
	if n < 20 {
		t.Errorf("only %d claims fit", n)
	}
}

// Concurrent callers share transactions, and so the syncs of the disk.
func TestFileGroupsCommits(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	const callers, each = 64, 20
	start := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if _, err := s.Claim(t.Context(), request(time.Hour)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	must(t, s.Close())
	inside(t, path, func(tx *bbolt.Tx) error {
		n := tx.ID()
		t.Logf("%d claims in %v (%.0f a second) and %d transactions", callers*each, took, callers*each/took.Seconds(), n)
		if n > callers*each/4 {
			t.Errorf("%d transactions for %d claims", n, callers*each)
		}
		return nil
	})
}

func TestFileCallersWhoGiveUp(t *testing.T) {
	s := openFile(t, newFile(t), nil)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
			defer cancel()
			req := request(time.Hour)
			_, err := s.Claim(ctx, req)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Claim: %v", err)
			}
			if errors.Is(err, dedup.ErrNotApplied) {
				req.Token = dedup.NewToken()
				if _, err := s.Claim(t.Context(), req); err != nil {
					t.Error(err)
				} else if v, err := s.Release(t.Context(), req.ID, req.Token); err != nil || v != dedup.Applied {
					t.Errorf("a claim that was not applied is there: verdict %d, error %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

// fileClaimer is the environment variable that makes the test binary a process that claims
// in the file it names, and tells on standard output what was acknowledged.
const fileClaimer = "IDEMPROXY_TEST_FILE_CLAIMER"

func claimForever(path string) {
	s, err := store.Open(context.Background(), fileConfig(path, nil))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range 16 {
		go func() {
			for {
				req := request(time.Hour)
				if _, err := s.Claim(context.Background(), req); err != nil {
					continue
				}
				fmt.Printf("claim %s %s\n", req.ID, req.Token)
				if _, err := s.Complete(context.Background(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: []byte(req.ID)}); err == nil {
					fmt.Printf("done %s %s\n", req.ID, req.Token)
				}
			}
		}()
	}
	select {}
}
