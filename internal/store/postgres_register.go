package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"idemproxy/internal/dedup"
)

// sqlEnrollLock comes before sqlEnroll, as a statement of its own: only the next one sees
// what was done while this one waited. The register is no more than a count, so that no
// commit of it waits for the disk, and the lock is held for a moment only.
const sqlEnrollLock = `SELECT set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock($1::bigint)`

// sqlEnroll takes scope, id, token, TTL in ms, limit or 0. It answers 0, or the ms to wait.
const sqlEnroll = `
WITH present AS MATERIALIZED (
  SELECT count(*) AS n, min(expires_at) AS first, coalesce(bool_or(id = $2::text), false) AS known
  FROM MEMBERS WHERE $5::bigint > 0 AND scope = $1::text AND expires_at > clock_timestamp()
), enrolled AS (
  INSERT INTO MEMBERS AS old (scope, id, token, expires_at)
  SELECT $1::text, $2::text, $3::text, clock_timestamp() + $4::bigint * interval '1 millisecond'
  FROM present WHERE $5::bigint = 0 OR known OR n < $5::bigint
  ON CONFLICT (scope, id) DO UPDATE SET token = excluded.token, expires_at =
    CASE WHEN old.token = excluded.token THEN greatest(old.expires_at, excluded.expires_at) ELSE excluded.expires_at END
  RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM enrolled) THEN 0
  ELSE greatest(1, ceil(extract(epoch FROM first - clock_timestamp()) * 1000)) END::bigint FROM present`

// sqlDismiss takes scope, id, token.
const sqlDismiss = `DELETE FROM MEMBERS WHERE scope = $1::text AND id = $2::text AND token = $3::text`

// sqlPurgeMembers is sqlPurge for members.
const sqlPurgeMembers = `
DELETE FROM MEMBERS WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM MEMBERS WHERE expires_at <= now() ORDER BY expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED))`

// Enroll is dedup.Store's. New members of one scope come in one after the other; nobody
// else waits for them.
func (p *Postgres) Enroll(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
	p.enrolls.Store(true)
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var wait int64
	scope := p.prefix + string(e.Scope)
	if e.Limit > 0 {
		if err := p.scopes.take(ctx, scope); err != nil {
			return 0, fmt.Errorf("enroll key: %w", notApplied(err))
		}
		defer p.scopes.give(scope)
	}
	err := p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var batch pgx.Batch // one round trip, and one transaction
		if e.Limit > 0 {
			batch.Queue(sqlEnrollLock, p.scopeLock(scope))
		}
		batch.Queue(p.statements.enroll, scope, string(e.ID), string(e.Token), millis(e.TTL), e.Limit)
		results := conn.SendBatch(ctx, &batch)
		if e.Limit > 0 {
			if _, err := results.Exec(); err != nil {
				_ = results.Close()
				return err
			}
		}
		err := results.QueryRow().Scan(&wait)
		if failed := results.Close(); err == nil {
			err = failed // to commit
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	return time.Duration(wait) * time.Millisecond, nil
}

// Dismiss is dedup.Store's.
func (p *Postgres) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	err := p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, p.statements.dismiss, p.prefix+string(scope), string(id), string(token))
		return err
	})
	if err != nil {
		return fmt.Errorf("dismiss key: %w", err)
	}
	return nil
}

// scopeLock is the advisory lock of a scope. Two that share one only wait for each other.
func (p *Postgres) scopeLock(scope string) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("idemproxy members " + p.table.members + scope))
	return int64(hash.Sum64())
}

// turns lets one at a time through, of those who want the same. Who waits for the lock of a
// scope holds a connection: without turns a busy scope would soon hold all of the pool.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// A turn is taken by who has sent to it.
type turn struct {
	taken chan struct{}
	users int // who have it, or wait for it
}

// take waits for the turn. On an error it is not taken.
func (t *turns) take(ctx context.Context, of string) error {
	t.mu.Lock()
	this := t.of[of]
	if this == nil {
		this = &turn{taken: make(chan struct{}, 1)}
		if t.of == nil {
			t.of = make(map[string]*turn)
		}
		t.of[of] = this
	}
	this.users++
	t.mu.Unlock()
	select {
	case this.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.leave(of)
		return ctx.Err()
	}
}

func (t *turns) give(of string) {
	t.mu.Lock()
	<-t.of[of].taken
	t.mu.Unlock()
	t.leave(of)
}

func (t *turns) leave(of string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[of].users--; t.of[of].users == 0 {
		delete(t.of, of)
	}
}
