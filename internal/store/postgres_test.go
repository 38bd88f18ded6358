package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// openPostgres opens a store at the URL, under a prefix of its own.
func openPostgres(t *testing.T, url string, change func(*store.Config)) *store.Postgres {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Type = "postgres"
	cfg.KeyPrefix = "idem:" + string(dedup.NewToken()) + ":"
	cfg.Timeout = 10 * time.Second // tests of timeouts set their own; a slow machine is none
	cfg.Postgres.URL = store.Secret(url)
	cfg.Postgres.MaxConns = 4
	if change != nil {
		change(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return bare[*store.Postgres](s)
}

func TestPostgresConforms(t *testing.T) {
	server := storetest.StartPostgres(t)
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Harness {
			prefix := "idem:" + string(dedup.NewToken()) + ":"
			s := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix = prefix })
			peer := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix, c.Postgres.MaxConns = prefix, 1 })
			return storetest.Harness{Store: s, Peer: peer, Plant: func(t *testing.T, id dedup.ID, raw []byte) {
				t.Helper()
				must(t, s.Ping(t.Context())) // makes the table
				server.Exec(`INSERT INTO idempotency_keys (id, format, state, token, lease_until, expires_at, data)
					VALUES ($1, $2, $3, '', now(), now() + interval '1 hour', $4)`, prefix+string(id), 1+len(raw)%2, "xd"[len(raw)%2:][:1], raw) // of no state, or of a later version
			}}
		})
	})
}

// Openers at once, over TCP and socket, and what `idemproxy schema postgres` prints, all
// come to the same table, and none drops what is in it.
func TestPostgresMigrations(t *testing.T) {
	server := storetest.StartPostgres(t)
	var wg sync.WaitGroup
	for i := range 8 {
		s := openPostgres(t, []string{server.URL(), server.SocketURL()}[i%2], func(c *store.Config) { c.Postgres.Table = "public.keys" })
		wg.Go(func() {
			if _, err := s.Claim(t.Context(), request(time.Hour)); err != nil {
				t.Errorf("Claim: %v", err)
			}
		})
	}
	wg.Wait()
	server.Exec(store.Schema("public.keys"))
	if n := server.Query("SELECT count(*) FROM public.keys"); n != 8 {
		t.Errorf("%d of 8 claims in the table", n)
	}
	if n := server.Query("SELECT count(*) FROM keys_versions"); n != 2 {
		t.Errorf("%d versions applied", n)
	}
	t.Run("by hand", func(t *testing.T) {
		s := openPostgres(t, server.URL(), func(c *store.Config) { c.Postgres.Table, c.Postgres.AutoMigrate = "mine", false })
		_, err := s.Claim(t.Context(), request(time.Hour))
		if !errors.Is(err, dedup.ErrNotApplied) || !strings.Contains(err.Error(), "idemproxy schema postgres") {
			t.Fatalf("without a table: error %v", err)
		}
		server.Exec(store.Schema("mine"))
		mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	})
	t.Run("without the right to", func(t *testing.T) {
		server.Exec("CREATE ROLE clerk LOGIN; GRANT SELECT ON keys_versions TO clerk; GRANT SELECT, INSERT, UPDATE, DELETE ON keys TO clerk")
		s := openPostgres(t, strings.Replace(server.URL(), "postgres@", "clerk@", 1), func(c *store.Config) { c.Postgres.Table = "keys" })
		mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	})
}

func TestPostgresPurges(t *testing.T) {
	server := storetest.StartPostgres(t)
	open := func() *store.Postgres {
		return openPostgres(t, server.URL(), func(c *store.Config) { c.Postgres.PurgeInterval = 20 * time.Millisecond })
	}
	a, b := open(), open()
	kept := request(time.Hour)
	mustClaim(t, a, kept, dedup.StateAcquired)
	mustClaim(t, b, request(time.Hour), dedup.StateAcquired)
	server.Exec(`INSERT INTO idempotency_keys (id, state, token, lease_until, expires_at, data)
		SELECT 'old' || n, 'd', '', now(), now() - interval '1 second', '' FROM generate_series(1, 3000) n`)
	mustEnroll(t, a, "scope", kept)
	server.Exec(`INSERT INTO idempotency_keys_members (scope, id, token, expires_at)
		SELECT 'scope', 'old' || n, '', now() - interval '1 second' FROM generate_series(1, 3000) n`)
	for table, want := range map[string]int64{"idempotency_keys": 2, "idempotency_keys_members": 1} {
		eventually(t, "purge", func() error {
			if n := server.Query("SELECT count(*) FROM " + table); n != want {
				return fmt.Errorf("%d rows in %s", n, table)
			}
			return nil
		})
	}
	mustClaim(t, a, kept, dedup.StateAcquired)
}

// Rows that somebody holds are left for later; the others don't wait for them.
func TestPostgresPurgesAroundLockedRows(t *testing.T) {
	t.Parallel()
	server := storetest.StartPostgres(t)
	must(t, openPostgres(t, server.URL(), nil).Ping(t.Context())) // makes the table
	server.Exec("DELETE FROM idempotency_keys")
	server.Exec(`INSERT INTO idempotency_keys (id, state, token, lease_until, expires_at, data)
		SELECT 'old' || n, 'd', '', now(), now() - n * interval '1 second', '' FROM generate_series(1, 1500) n`)
	held := make(chan struct{})
	go func() {
		defer close(held)
		server.Exec("DO $$ BEGIN PERFORM 1 FROM idempotency_keys WHERE id IN ('old1', 'old700', 'old1500') FOR UPDATE; PERFORM pg_sleep(8); END $$")
	}()
	rows := func(n int64) func() error {
		return func() error {
			if got := server.Query("SELECT count(*) FROM idempotency_keys WHERE id LIKE 'old%'"); got != n {
				return fmt.Errorf("%d rows, want %d", got, n)
			}
			return nil
		}
	}
	eventually(t, "lock", func() error {
		if server.Query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0 {
			return errNotYet
		}
		return nil
	})
	for range 3 {
		s := openPostgres(t, server.URL(), func(c *store.Config) { c.Postgres.PurgeInterval = 20 * time.Millisecond })
		must(t, s.Ping(t.Context())) // it purges once it knows the table
	}
	eventually(t, "purge around the held rows", func() error {
		select {
		case <-held:
			t.Fatal("it waited for the held rows")
		default:
		}
		return rows(3)()
	})
	<-held
	eventually(t, "purge of the rest", rows(0))
}

// A standby takes no claims, and the store finds the primary when there is one again.
func TestPostgresReadOnlyIsNotApplied(t *testing.T) {
	server := storetest.StartPostgres(t)
	s := openPostgres(t, server.URL(), nil)
	done := request(time.Hour)
	mustClaim(t, s, done, dedup.StateAcquired)
	mustComplete(t, s, done, []byte("answer"))
	server.Restart("default_transaction_read_only=on")
	_, _ = s.Claim(t.Context(), request(time.Hour)) // on a connection that broke: nobody knows
	_, err := s.Claim(t.Context(), request(time.Hour))
	if !errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("Claim: error %v", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("Ping does not mind")
	}
	server.Restart()
	mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	mustClaim(t, s, done, dedup.StateCompleted)
}

// The store opens while the server is down, fails at once, and works when it is there.
func TestPostgresDownFailsAtOnceAndRecovers(t *testing.T) {
	server := storetest.StartPostgres(t)
	server.Stop()
	s := openPostgres(t, server.URL(), nil)
	start := time.Now()
	for op, err := range eachOp(t.Context(), s, request(time.Hour)) {
		if !errors.Is(err, dedup.ErrNotApplied) {
			t.Errorf("%s: error %v", op, err)
		}
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v to fail", d)
	}
	server.Restart()
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	var wg sync.WaitGroup
	for range 4 { // as many connections, which the restart breaks
		wg.Go(func() { _ = s.Ping(t.Context()) })
	}
	wg.Wait()
	server.Kill()
	server.Restart()
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, []byte("answer"))
}

// Whatever reply is lost, the operation is repeated and does no harm.
func TestPostgresLostRepliesAreHarmless(t *testing.T) {
	server := storetest.StartPostgres(t)
	shim := storetest.StartShim(t, server.Addr())
	s := openPostgres(t, server.URLAt(shim.Addr()), func(c *store.Config) { c.Postgres.MaxConns = 1 })
	warmUp(t, s)
	req := request(time.Hour)
	shim.LoseReplies("taken AS", 1)
	mustClaim(t, s, req, dedup.StateAcquired)
	shim.LoseReplies("changed AS", 1)
	mustComplete(t, s, req, []byte("answer"))
	mustClaim(t, s, req, dedup.StateCompleted)
	for _, sql := range []string{"enrolled AS", "DELETE FROM"} {
		shim.LoseReplies(sql, 1)
		mustEnroll(t, s, "scope", req)
		must(t, s.Dismiss(t.Context(), "scope", req.ID, req.Token))
	}
	shim.Cut()
	mustClaim(t, s, req, dedup.StateCompleted)
}

// Each operation is one round trip.
func TestPostgresOperationsAreOneRoundTrip(t *testing.T) {
	server := storetest.StartPostgres(t)
	shim := storetest.StartShim(t, server.Addr())
	s := openPostgres(t, server.URLAt(shim.Addr()), func(c *store.Config) { c.Postgres.MaxConns = 1 })
	warmUp(t, s)
	req := request(time.Hour)
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"Claim", func() error { return errOf(s.Claim(t.Context(), req)) }},
		{"Renew", func() error { return errOf(s.Renew(t.Context(), req.ID, req.Token, time.Hour)) }},
		{"Complete", func() error {
			return errOf(s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: []byte("x")}))
		}},
		{"replay", func() error { return errOf(s.Claim(t.Context(), req)) }},
		{"Release", func() error { return errOf(s.Release(t.Context(), req.ID, req.Token)) }},
		{"Enroll", func() error {
			return errOf(s.Enroll(t.Context(), dedup.Enrolment{Scope: "scope", ID: req.ID, Token: req.Token, TTL: time.Hour, Limit: 10}))
		}},
		{"Dismiss", func() error { return s.Dismiss(t.Context(), "scope", req.ID, req.Token) }},
	} {
		before := shim.Trips()
		must(t, op.run())
		if n := shim.Trips() - before; n != 1 {
			t.Errorf("%s: %d round trips, want 1", op.name, n)
		}
	}
}

// A replay waits for nobody's row lock.
func TestPostgresReplaysTakeNoLock(t *testing.T) {
	server := storetest.StartPostgres(t)
	s := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix, c.Timeout = "idem:", 2*time.Second })
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, []byte("answer"))
	server.Exec("CREATE TABLE hold (x int)")
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Exec("DO $$ BEGIN PERFORM 1 FROM idempotency_keys FOR UPDATE; INSERT INTO hold VALUES (1); PERFORM pg_sleep(4); END $$")
	}()
	eventually(t, "lock", func() error {
		if server.Query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	mustClaim(t, s, req, dedup.StateCompleted)
	<-done
}
