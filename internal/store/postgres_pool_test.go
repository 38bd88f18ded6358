package store_test

import (
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// Behind PgBouncer in transaction mode each statement may run on another connection.
func TestPostgresConformsBehindPgBouncer(t *testing.T) {
	server := storetest.StartPostgres(t)
	url := storetest.StartPgBouncer(t, server)
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Harness {
			return storetest.Harness{Store: openPostgres(t, url, nil), Deaf: true} // see Postgres.WarnOfWatch
		})
	})
}

// A server that answers no more costs the timeout, and what was sent stays open.
func TestPostgresThatNeverAnswersCostsTheTimeout(t *testing.T) {
	server := storetest.StartPostgres(t)
	s := openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix, c.Timeout, c.Postgres.MaxConns = "idem:", 2*time.Second, 1 })
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	release := make(chan struct{})
	go func() {
		defer close(release)
		server.Exec("DO $$ BEGIN PERFORM 1 FROM idempotency_keys FOR UPDATE; PERFORM pg_sleep(6); END $$")
	}()
	eventually(t, "lock", func() error {
		if server.Query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0 {
			return errNotYet
		}
		return nil
	})
	start := time.Now()
	_, err := s.Renew(t.Context(), req.ID, req.Token, time.Hour)
	if d := time.Since(start); err == nil || isNotApplied(err) || d > 4*time.Second {
		t.Errorf("Renew: after %v error %v", d, err)
	}
	<-release
	mustComplete(t, s, req, []byte("answer"))
}
