package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// enroll makes the entry the one member of its scope, for the time of its claim.
func enroll(t *testing.T, s dedup.Store, scope dedup.ScopeID, req dedup.ClaimRequest) time.Duration {
	t.Helper()
	wait, err := s.Enroll(t.Context(), dedup.Enrolment{Scope: scope, ID: req.ID, Token: req.Token, TTL: req.TTL, Limit: 1})
	must(t, err)
	return wait
}

func mustEnroll(t *testing.T, s dedup.Store, scope dedup.ScopeID, req dedup.ClaimRequest) {
	t.Helper()
	if wait := enroll(t, s, scope, req); wait != 0 {
		t.Fatalf("Enroll: refused for %v", wait)
	}
}

// Members take room while they are there, and no longer.
func TestMemoryMembersTakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := store.DefaultConfig().Memory
		cfg.MaxBytes, cfg.CleanupInterval = 100*store.EntryOverhead, time.Minute
		s := store.NewMemory(cfg)
		defer s.Close()
		n := 0
		for ; ; n++ {
			req := request(time.Hour)
			_, err := s.Enroll(t.Context(), dedup.Enrolment{Scope: dedup.ScopeID(fmt.Sprint(n % 3)), ID: req.ID, Token: req.Token, TTL: time.Hour})
			if err != nil {
				if !isNotApplied(err) || n == 0 {
					t.Fatalf("after %d: %v", n, err)
				}
				break
			}
		}
		if _, bytes := s.Usage(); n > 100 || bytes > cfg.MaxBytes {
			t.Errorf("%d members take %v of %v", n, bytes, cfg.MaxBytes)
		}
		time.Sleep(time.Hour)
		mustEnroll(t, s, "scope", request(time.Minute)) // room is made when it is needed
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, bytes := s.Usage(); bytes != 0 {
			t.Errorf("nobody is there, and takes %v", bytes)
		}
		mustEnroll(t, s, "scope", request(time.Hour))
		must(t, s.Close())
		if _, bytes := s.Usage(); bytes != 0 {
			t.Errorf("closed, and takes %v", bytes)
		}
	})
}

// membersIn counts what the file has of its register.
func membersIn(t *testing.T, path string) (n int) {
	t.Helper()
	inside(t, path, func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"members", "members expiry", "members count"} {
			n += tx.Bucket([]byte(bucket)).Stats().KeyN
		}
		return nil
	})
	return n
}

// A member is there after a restart, and its room is free when its time is over.
func TestFileMembersLastAndArePurged(t *testing.T) {
	path := newFile(t)
	s := openFile(t, path, nil)
	kept, brief := request(time.Hour), request(time.Hour)
	brief.TTL = time.Millisecond
	mustEnroll(t, s, "kept", kept)
	mustEnroll(t, s, "brief", brief)
	must(t, s.Close())
	s = openFile(t, path, nil)
	if enroll(t, s, "kept", request(time.Hour)) == 0 {
		t.Error("the member is forgotten")
	}
	mustEnroll(t, s, "kept", kept)
	eventually(t, "purge", func() error {
		time.Sleep(600 * time.Millisecond) // in which it looks once
		must(t, s.Close())
		n := membersIn(t, path)
		s = openFile(t, path, nil)
		if n != 3 {
			return errNotYet
		}
		return nil
	})
	must(t, s.Dismiss(t.Context(), "kept", kept.ID, kept.Token))
	must(t, s.Close())
	if n := membersIn(t, path); n != 0 {
		t.Errorf("nobody is there, and the file has %d keys", n)
	}
}

// A file from before there were members gets what it lacks.
func TestFileWithoutARegister(t *testing.T) {
	path := newFile(t)
	must(t, openFile(t, path, nil).Close())
	inside(t, path, func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"members", "members expiry", "members count"} {
			if err := tx.DeleteBucket([]byte(bucket)); err != nil {
				return err
			}
		}
		return nil
	})
	mustEnroll(t, openFile(t, path, nil), "scope", request(time.Hour))
}

// The set of a scope lives in Redis as long as its last member, whatever becomes of it.
func TestRedisMembersExpire(t *testing.T) {
	server := storetest.StartRedis(t)
	s := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = "idem:" })
	first, last := request(time.Hour), request(2*time.Hour)
	mustEnroll(t, s, "scope", first)
	must(t, errOf(s.Enroll(t.Context(), dedup.Enrolment{Scope: "scope", ID: last.ID, Token: last.Token, TTL: last.TTL})))
	if ttl := server.Client().PTTL(t.Context(), "idem:q:scope").Val(); ttl <= time.Hour || ttl > 2*time.Hour {
		t.Errorf("the set lives %v", ttl)
	}
	must(t, s.Dismiss(t.Context(), "scope", first.ID, first.Token))
	must(t, s.Dismiss(t.Context(), "scope", last.ID, last.Token))
	if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("nobody is there, and Redis has %d keys", n)
	}
	server.Client().Set(t.Context(), "idem:q:scope", "somebody else's", 0)
	_, err := s.Enroll(t.Context(), dedup.Enrolment{Scope: "scope", ID: last.ID, Token: last.Token, TTL: last.TTL})
	if !errors.Is(err, dedup.ErrUnreadable) || !errors.Is(s.Dismiss(t.Context(), "scope", last.ID, last.Token), dedup.ErrUnreadable) {
		t.Errorf("another type: error %v", err)
	}
}

// However many new keys a scope has at once, others find a connection.
func TestPostgresABusyScopeLeavesConnections(t *testing.T) {
	server := storetest.StartPostgres(t)
	s := openPostgres(t, server.URL(), func(c *store.Config) { c.Postgres.MaxConns, c.Timeout = 4, 20*time.Second })
	mustEnroll(t, s, "scope", request(time.Hour))
	conn, err := pgx.Connect(t.Context(), server.URL())
	must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	must(t, err)
	must(t, errOf(tx.Exec(t.Context(), "LOCK TABLE idempotency_keys_members")))

	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range 40 {
		busy.Go(func() {
			req := request(time.Hour)
			_, _ = s.Enroll(ctx, dedup.Enrolment{Scope: "scope", ID: req.ID, Token: req.Token, TTL: time.Hour, Limit: 1})
		})
	}
	eventually(t, "somebody waits", func() error {
		if server.Query("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0 {
			return errNotYet
		}
		return nil
	})
	soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for range 8 {
		if _, err := s.Claim(soon, request(time.Hour)); err != nil {
			t.Fatalf("Claim beside a busy scope: %v", err)
		}
	}
	cancel()
	busy.Wait()
	must(t, tx.Rollback(t.Context()))
	mustEnroll(t, s, "another", request(time.Hour))
}
