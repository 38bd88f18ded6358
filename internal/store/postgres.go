package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"idemproxy/internal/dedup"
)

// Postgres is the dedup.Store in one table of a PostgreSQL database (12 and later), and a
// second one for the members of scopes, shared by all replicas of the program, also behind
// PgBouncer in transaction mode.
//
// Each operation is one statement and its own transaction; no transaction and no
// connection is held between them. Leases and expiries are measured by the server's
// clock. What is acknowledged is as durable as the server's synchronous_commit makes it; a
// failover to an asynchronous replica can lose the last of it.
type Postgres struct {
	pool        *pgxpool.Pool
	table       pgTable
	statements  pgStatements
	prefix      string
	timeout     time.Duration
	autoMigrate bool
	life        context.Context // ends with Close
	end         context.CancelFunc
	background  sync.WaitGroup
	closed      atomic.Bool
	migrated    atomic.Bool
	enrolls     atomic.Bool // it has members to purge
	scopes      turns       // of those who enroll
	mu          sync.Mutex
	migration   *pgMigration // under way, behind mu
	watchers    watchers
	listenAs    func() (*pgx.ConnConfig, error) // how to connect outside the pool
}

// NewPostgres opens a Postgres. It connects when it is used, so it succeeds while the
// server is down. It fails if a file that cfg names can't be read or makes no sense. The
// cfg must be valid otherwise.
func NewPostgres(ctx context.Context, cfg Config) (*Postgres, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	pool, err := newPGPool(life, cfg)
	if err != nil {
		end()
		return nil, err
	}
	table := newPGTable(cfg.Postgres.Table)
	p := &Postgres{
		pool: pool, table: table, statements: newPGStatements(table), prefix: cfg.KeyPrefix,
		timeout: cfg.Timeout, autoMigrate: cfg.Postgres.AutoMigrate, life: life, end: end,
	}
	p.listenAs = func() (*pgx.ConnConfig, error) { return pgListenConfig(cfg) }
	p.watchers.start = sync.OnceFunc(func() { p.background.Go(p.listen) })
	p.background.Go(func() { p.purgeEvery(cfg.Postgres.PurgeInterval) })
	return p, nil
}

// Claim is dedup.Store's.
func (p *Postgres) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	var found dedup.Found
	err := p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var code int32
		var left int64
		var data []byte
		err := queryRow(ctx, conn, p.statements.claim, []any{&code, &left, &data},
			p.key(req.ID), string(req.Token), millis(req.Lease), millis(req.TTL), req.Takeover, bytesArg(req.Note), req.Wait)
		if err == nil {
			found, err = pgFoundState(code, time.Duration(left)*time.Millisecond, data)
		}
		return err
	})
	if err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	return found, nil
}

// pgFoundState reads the answer of sqlClaim.
func pgFoundState(code int32, left time.Duration, data []byte) (dedup.Found, error) {
	switch code {
	case pgAcquired:
		return dedup.Found{State: dedup.StateAcquired}, nil
	case pgTakenOver:
		return dedup.Found{State: dedup.StateTakenOver}, nil
	case pgInProgress:
		return dedup.Found{State: dedup.StateInProgress, LeaseLeft: left, Blob: data}, nil
	case pgUnknown:
		return dedup.Found{State: dedup.StateUnknown, Blob: data}, nil
	case pgCompleted:
		return dedup.Found{State: dedup.StateCompleted, TTLLeft: left, Blob: data}, nil
	default:
		return dedup.Found{}, dedup.ErrUnreadable
	}
}

// Renew is dedup.Store's.
func (p *Postgres) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	return p.own(ctx, "renew lease", p.statements.renew, p.key(id), string(token), millis(lease))
}

// Complete is dedup.Store's.
func (p *Postgres) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	defer p.watchers.wake(id)
	if c.Unknown {
		return p.own(ctx, "complete claim", p.statements.abandon, p.key(id), string(token))
	}
	return p.own(ctx, "complete claim", p.statements.complete, p.key(id), string(token), millis(c.TTL), bytesArg(c.Blob))
}

// Release is dedup.Store's.
func (p *Postgres) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	defer p.watchers.wake(id)
	return p.own(ctx, "release claim", p.statements.release, p.key(id), string(token))
}

// own runs a statement that only the owner of a claim gets applied.
func (p *Postgres) own(ctx context.Context, verb, sql string, args ...any) (verdict dedup.Verdict, err error) {
	err = p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var code int32
		if err := queryRow(ctx, conn, sql, []any{&code}, args...); err != nil {
			return err
		}
		switch code {
		case pgApplied:
			verdict = dedup.Applied
		case pgGone:
			verdict = dedup.Gone
		case pgFenced:
			verdict = dedup.Fenced
		case pgUnreadable:
			return dedup.ErrUnreadable
		default:
			return errPGAgain
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", verb, err)
	}
	return verdict, nil
}

// queryRow runs a statement that answers one row, in PostgreSQL's binary format, which
// does not double the size of records as its text format does. No row means that somebody
// was faster.
func queryRow(ctx context.Context, conn *pgxpool.Conn, sql string, into []any, args ...any) error {
	args = append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)
	err := conn.QueryRow(ctx, sql, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return errPGAgain
	}
	return err
}

// Ping is dedup.Store's.
func (p *Postgres) Ping(ctx context.Context) error {
	err := p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, p.statements.ping, p.prefix+"ping")
		return err
	})
	if err != nil {
		return fmt.Errorf("ping postgres: %w", err)
	}
	return nil
}

// Close is dedup.Store's. It waits for operations under way; a second Close does nothing.
func (p *Postgres) Close() error {
	p.mu.Lock() // no migration begins after this
	p.closed.Store(true)
	p.mu.Unlock()
	p.end()
	p.background.Wait()
	p.pool.Close()
	return nil
}

func (p *Postgres) key(id dedup.ID) string { return p.prefix + string(id) }

const (
	pgPurgeBatch   = 500              // rows removed by one statement
	pgPurgeTimeout = 10 * time.Second // for one statement
)

// purgeEvery removes expired rows now and then, until Close. Replicas share the work. What
// fails is tried again next time: nobody sees what is expired.
func (p *Postgres) purgeEvery(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
		}
		if p.autoMigrate && !p.migrated.Load() {
			continue
		}
		for p.purge(p.statements.purge) == pgPurgeBatch {
		}
		for p.enrolls.Load() && p.purge(p.statements.purgeMembers) == pgPurgeBatch {
		}
	}
}

// purge removes some of what has expired and reports how many rows.
func (p *Postgres) purge(sql string) int64 {
	ctx, cancel := context.WithTimeout(p.life, pgPurgeTimeout)
	defer cancel()
	tag, err := p.pool.Exec(ctx, sql, int32(pgPurgeBatch))
	if err != nil {
		return 0
	}
	return tag.RowsAffected()
}
