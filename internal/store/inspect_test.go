package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// listed reads all pages.
func listed(t *testing.T, s dedup.Store, req dedup.ListRequest) map[dedup.ID]dedup.Entry {
	t.Helper()
	all := map[dedup.ID]dedup.Entry{}
	for range 10_000 {
		page, err := s.List(t.Context(), req)
		must(t, err)
		for _, e := range page.Entries {
			all[e.ID] = e
		}
		if req.Cursor = page.Next; page.Next == "" {
			return all
		}
	}
	t.Fatal("the list has no end")
	return nil
}

// A prefix is a prefix, whatever it means in a pattern, and what else lies below it is no
// entry.
func TestRedisListsOnlyItsOwn(t *testing.T) {
	server := storetest.StartRedis(t)
	const prefix = `idem:[a-z]*\?:`
	s := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = prefix })
	other := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = `idem:bcd\?:` })
	longer := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = prefix + "more:" })
	mine := request(time.Hour)
	for _, s := range []dedup.Store{other, longer} {
		mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	}
	mustClaim(t, s, mine, dedup.StateAcquired)
	must(t, s.Ping(t.Context()))
	must(t, s.Tell(t.Context(), []byte("entry")))
	must(t, server.Client().HSet(t.Context(), prefix+string(request(time.Hour).ID), "a", "b").Err())
	must(t, server.Client().Set(t.Context(), prefix+strings.Repeat("/", 43), "x", 0).Err())
	if got := listed(t, s, dedup.ListRequest{Limit: 3}); len(got) != 1 || got[mine.ID].Token != mine.Token {
		t.Errorf("listed %v", got)
	}
}

func TestPostgresListsOnlyItsOwn(t *testing.T) {
	server := storetest.StartPostgres(t)
	open := func(prefix string) *store.Postgres {
		return openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix = prefix })
	}
	s, mine := open("b_%:"), request(time.Hour)
	for _, other := range []dedup.Store{open("a:"), open("b_%:c:"), open("bxx:"), open("c:")} {
		mustClaim(t, other, request(time.Hour), dedup.StateAcquired)
		must(t, other.Tell(t.Context(), []byte("another's")))
	}
	mustClaim(t, s, mine, dedup.StateAcquired)
	must(t, s.Ping(t.Context()))
	for _, limit := range []int{1, 3, 100} {
		if got := listed(t, s, dedup.ListRequest{Limit: limit}); len(got) != 1 || got[mine.ID].Token != mine.Token {
			t.Errorf("listed %v", got)
		}
	}
}

// A cursor of another store, or of nobody, is refused and does no harm.
func TestCursorsOfNobody(t *testing.T) {
	redis := openRedis(t, storetest.StartRedis(t).Addr(), nil)
	memory := openMemory(t, nil)
	for _, cursor := range []string{"x", "-1 a", "64 a", "1000000000000000000000", "- x"} {
		for name, s := range map[string]dedup.Store{"redis": redis, "memory": memory} {
			if _, err := s.List(t.Context(), dedup.ListRequest{Cursor: cursor, Limit: 1}); err == nil && name == "memory" {
				t.Errorf("%s takes the cursor %q", name, cursor)
			}
		}
	}
	if _, _, err := memory.Told(t.Context(), "x"); err == nil {
		t.Error("memory takes the position x")
	}
}

// What can't be decrypted is seen as such, and can be freed.
func TestAnOperatorFreesWhatCantBeRead(t *testing.T) {
	path := newFile(t)
	record := recordIn(t, path, withKeys("a"), "", "answer")
	noted := recordIn(t, path, withKeys("a"), "note", "")
	s := openWhole(t, path, withKeys("b"))
	got := listed(t, s, dedup.ListRequest{Limit: 1, MaxBlob: 1000})
	for id, want := range map[dedup.ID]dedup.State{record.ID: dedup.StateCompleted, noted.ID: dedup.StateInProgress} {
		e, err := s.Look(t.Context(), id)
		must(t, err)
		for _, e := range []dedup.Entry{e, got[id]} {
			if e.State != want || !e.Unreadable || len(e.Blob) > 0 || e.Size == 0 {
				t.Errorf("found %+v, want state %d, unreadable", e, want)
			}
		}
		verdict, err := s.Free(t.Context(), id, e.Token, e.State)
		if err != nil || verdict != dedup.Applied {
			t.Errorf("freed: %v, %v", verdict, err)
		}
	}
}

// Lists don't miss what is there all the while, however much comes and goes.
func TestListsWhileOthersWork(t *testing.T) {
	for name, s := range map[string]dedup.Store{
		"memory": openMemory(t, nil), "file": openFile(t, newFile(t), nil),
		"redis": openRedis(t, storetest.StartRedis(t).Addr(), nil), "postgres": openPostgres(t, storetest.StartPostgres(t).URL(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			var kept []dedup.ID
			for range 50 {
				req := request(time.Hour)
				mustClaim(t, s, req, dedup.StateAcquired)
				kept = append(kept, req.ID)
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						req := request(time.Hour)
						_, _ = s.Claim(t.Context(), req)
						_, _ = s.Release(t.Context(), req.ID, req.Token)
					}
				})
			}
			for range 5 {
				got := listed(t, s, dedup.ListRequest{Limit: 7})
				for _, id := range kept {
					if got[id].State != dedup.StateInProgress {
						t.Errorf("%s is missing of %d", id, len(got))
					}
				}
			}
			close(stop)
			wg.Wait()
		})
	}
}

// The trail is bounded, and a file keeps it.
func TestTrailIsBounded(t *testing.T) {
	path := newFile(t)
	f := openFile(t, path, nil)
	for name, s := range map[string]dedup.Store{"memory": openMemory(t, nil), "file": f, "redis": openRedis(t, storetest.StartRedis(t).Addr(), nil)} {
		_, start, err := s.Told(t.Context(), "")
		must(t, err)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 50 {
					if err := s.Tell(t.Context(), []byte("entry")); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		wg.Wait()
		entries, at, err := s.Told(t.Context(), start)
		must(t, err)
		if len(entries) > dedup.TrailLength || len(entries) < dedup.TrailLength/2 {
			t.Errorf("%s keeps %d", name, len(entries))
		}
		if name == "file" {
			must(t, f.Close())
			s = openFile(t, path, nil)
			must(t, s.Tell(t.Context(), []byte("after")))
			if entries, _, err := s.Told(t.Context(), at); err != nil || fmt.Sprintf("%s", entries) != "[after]" {
				t.Errorf("the file tells %q, %v", entries, err)
			}
		}
	}
}
