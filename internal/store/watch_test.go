package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// heard expects a value.
func heard(t *testing.T, wake <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s, and who watches was not told", what)
	}
}

// warned expects one warning.
func warned(t *testing.T, warnings <-chan error) error {
	t.Helper()
	select {
	case err := <-warnings:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("no warning")
		return nil
	}
}

// waited claims an ID, and has it waited for from elsewhere.
func waited(t *testing.T, owner, waiter dedup.Store) (dedup.ClaimRequest, <-chan struct{}) {
	t.Helper()
	req := request(time.Hour)
	req.Note = []byte("note")
	mustClaim(t, owner, req, dedup.StateAcquired)
	wake, stop := waiter.Watch(req.ID)
	t.Cleanup(stop)
	heard(t, wake, "the watch came into force")
	wait := req
	wait.Token, wait.Wait = dedup.NewToken(), true
	mustClaim(t, waiter, wait, dedup.StateInProgress)
	return req, wake
}

// A watch whose connection was lost comes into force again, and says so.
func TestRedisWatchesComeBack(t *testing.T) {
	server := storetest.StartRedis(t)
	prefix := func(c *store.Config) { c.KeyPrefix = "idem:watch:" }
	s, peer := openRedis(t, server.Addr(), prefix), openRedis(t, server.Addr(), prefix)
	peer.WarnOfWatch(func(err error) { t.Errorf("warning: %v", err) })
	req, wake := waited(t, s, peer)
	server.Client().Do(t.Context(), "client", "kill", "type", "pubsub")
	heard(t, wake, "the watch came into force again")
	mustComplete(t, s, req, []byte("answer"))
	heard(t, wake, "the claim was completed")
	if n := strings.Count(server.Client().Do(t.Context(), "client", "list", "type", "pubsub").String(), "name="); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// Nobody is told, and the server not bothered, about claims that nobody waits for.
func TestRedisPublishesOnlyWhatIsWaitedFor(t *testing.T) {
	server := storetest.StartRedis(t)
	s := openRedis(t, server.Addr(), nil)
	for range 3 {
		req := request(time.Hour)
		mustClaim(t, s, req, dedup.StateAcquired)
		mustComplete(t, s, req, []byte("answer"))
	}
	req, _ := waited(t, s, s)
	mustComplete(t, s, req, []byte("answer"))
	stats := server.Client().Info(t.Context(), "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_publish:calls=1,") {
		t.Errorf("not one PUBLISH:\n%s", stats)
	}
}

// A user that may not publish or subscribe completes all the same, and is warned once.
func TestRedisWatchWithoutPermission(t *testing.T) {
	server := storetest.StartRedis(t)
	server.Client().Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "+@all", "-@pubsub", "resetchannels")
	s := openRedis(t, server.Addr(), func(c *store.Config) { c.Redis.URL = store.Secret("redis://worker:secret@" + server.Addr()) })
	warnings := make(chan error, 10)
	s.WarnOfWatch(func(err error) { warnings <- err })
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	wake, stop := s.Watch(req.ID)
	defer stop()
	if err := warned(t, warnings); !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("warning %v", err)
	}
	wait := req
	wait.Token, wait.Wait = dedup.NewToken(), true
	mustClaim(t, s, wait, dedup.StateInProgress)
	mustComplete(t, s, req, []byte("answer"))
	heard(t, wake, "the claim was completed in this process")
	time.AfterFunc(time.Second, func() { close(warnings) })
	for err := range warnings {
		t.Errorf("another warning: %v", err)
	}
}

// The same on PostgreSQL, whose listening connection is none of the pool's.
func TestPostgresWatchesComeBack(t *testing.T) {
	server := storetest.StartPostgres(t)
	prefix := func(c *store.Config) { c.KeyPrefix, c.Postgres.MaxConns = "idem:watch:", 1 }
	s, peer := openPostgres(t, server.URL(), prefix), openPostgres(t, server.URL(), prefix)
	peer.WarnOfWatch(func(err error) { t.Errorf("warning: %v", err) })
	req, wake := waited(t, s, peer)
	server.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
	heard(t, wake, "the watch came into force again")
	mustComplete(t, s, req, []byte("answer"))
	heard(t, wake, "the claim was completed")
}

// Behind PgBouncer in transaction mode LISTEN seems to succeed.
func TestPostgresWatchBehindPgBouncer(t *testing.T) {
	server := storetest.StartPostgres(t)
	s := openPostgres(t, storetest.StartPgBouncer(t, server), nil)
	warnings := make(chan error, 10)
	s.WarnOfWatch(func(err error) { warnings <- err })
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	wake, stop := s.Watch(req.ID)
	defer stop()
	if err := warned(t, warnings); !strings.Contains(err.Error(), "PgBouncer") {
		t.Errorf("warning %v", err)
	}
	mustComplete(t, s, req, []byte("answer"))
	heard(t, wake, "the claim was completed in this process")
	if err := s.Close(); err != nil && !errors.Is(err, dedup.ErrStoreClosed) {
		t.Errorf("Close: %v", err)
	}
}

// The owner of a claim without a note is of a version that could not renew or complete what
// somebody waits for: it is waited for without a mark.
func TestClaimsOfEarlierVersionsAreNotMarked(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		server := storetest.StartRedis(t)
		s := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = "idem:" })
		req := request(time.Hour)
		notMarked(t, s, req, func() string {
			v, err := server.Client().GetRange(t.Context(), "idem:"+string(req.ID), 3, 3).Result()
			must(t, err)
			return v
		})
	})
	t.Run("postgres", func(t *testing.T) {
		server := storetest.StartPostgres(t)
		s := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix = "idem:" })
		req := request(time.Hour)
		notMarked(t, s, req, func() string {
			return server.Text("SELECT state FROM idempotency_keys WHERE id = $1", "idem:"+string(req.ID))
		})
	})
}

func notMarked(t *testing.T, s dedup.Store, req dedup.ClaimRequest, state func() string) {
	t.Helper()
	mustClaim(t, s, req, dedup.StateAcquired)
	rival := req
	rival.Token, rival.Wait = dedup.NewToken(), true
	mustClaim(t, s, rival, dedup.StateInProgress)
	if got := state(); got != "p" {
		t.Errorf("its state is %q now, want p", got)
	}
}
