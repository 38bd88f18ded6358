package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"idemproxy/internal/dedup"
)

// SQLSTATEs that matter here; see PostgreSQL's appendix A.
const (
	pgUndefinedTable = "42P01"
	pgReadOnly       = "25006"
)

// newPGPool makes the pool. It connects when it is used.
func newPGPool(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	pc, err := parsePGURL(cfg.Postgres)
	if err != nil {
		return nil, err
	}
	pc.MaxConns = int32(cfg.Postgres.MaxConns)
	pc.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // operations are repeated instead
	pc.ConnConfig.ConnectTimeout = cfg.Timeout
	// The extended protocol without named statements, in one round trip: PgBouncer in
	// transaction mode gives the next statement another server, which would not know them.
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pc.ConnConfig.StatementCacheCapacity, pc.ConnConfig.DescriptionCacheCapacity = 0, 0
	if cfg.Postgres.URLFile != "" {
		pc.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			now, err := parsePGURL(cfg.Postgres) // a rotated password needs no restart
			if err != nil {
				return err
			}
			conn.User, conn.Password = now.ConnConfig.User, now.ConnConfig.Password
			return nil
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", err)
	}
	return pool, nil
}

// parsePGURL reads the URL, and what files it names. Its errors hold nothing of it, since
// it may hold a password.
func parsePGURL(cfg PostgresConfig) (*pgxpool.Config, error) {
	address := cfg.URL
	if cfg.URLFile != "" {
		var err error
		if address, err = readSecret(cfg.URLFile); err != nil {
			return nil, fmt.Errorf("read postgres.url_file: %w", err)
		}
	}
	if !isPGURL(address) {
		return nil, errBadPGURL()
	}
	parsed, err := pgxpool.ParseConfig(address.Reveal())
	if err != nil {
		return nil, errBadPGURL()
	}
	return parsed, nil
}

func errBadPGURL() error {
	return errors.New("not a PostgreSQL URL, or a file that it names can't be read: use postgres://[user[:password]@]host[:port]/database[?sslmode=verify-full]")
}

// repeat runs an operation until it has an answer, like Redis.repeat: within the store's
// timeout, and an error wraps dedup.ErrNotApplied only if no attempt may have been
// applied.
func (p *Postgres) repeat(ctx context.Context, op func(context.Context, *pgxpool.Conn) error) error {
	if err := stillOpen(ctx, p.closed.Load()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.prepared(ctx); err != nil {
		return p.explain(err, false)
	}
	maybeApplied := false
	for attempt := 0; ; attempt++ {
		sent, err := p.once(ctx, op)
		if err == nil {
			return nil
		}
		maybeApplied = maybeApplied || sent && !pgRefused(err)
		if errors.Is(err, errPGAgain) { // somebody was faster: now it is another question
			if ctx.Err() != nil {
				return p.explain(ctx.Err(), maybeApplied)
			}
			continue
		}
		again := pgWorthRepeating(err)
		if again {
			p.pool.Reset() // the other connections are likely to be no better
		}
		if !again || attempt >= maxRepeats || !pause(ctx, firstBackoff<<attempt) {
			return p.explain(err, maybeApplied)
		}
	}
}

// once makes one attempt. It reports whether there was a connection to send anything on.
func (p *Postgres) once(ctx context.Context, op func(context.Context, *pgxpool.Conn) error) (sent bool, err error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	return true, op(ctx, conn)
}

// errPGAgain says that the statement has to be run again: nothing was applied.
var errPGAgain = errors.New("entry changed meanwhile")

// explain turns an error of pgx into what dedup.Store promises.
func (p *Postgres) explain(err error, maybeApplied bool) error {
	state := sqlState(err)
	switch {
	case errors.Is(err, dedup.ErrUnreadable):
		return err
	case maybeApplied:
		return err
	case p.closed.Load():
		return notApplied(dedup.ErrStoreClosed)
	case state == "53000" || state == "53100" || state == "53200": // resources, disk, memory
		return notApplied(fmt.Errorf("%w: %w", dedup.ErrStoreFull, err))
	case state == pgUndefinedTable:
		return notApplied(fmt.Errorf("the table is missing, `idemproxy schema postgres` prints it: %w", err))
	default:
		return notApplied(err)
	}
}

// sqlState is the code of the server's error, or empty if the error is not one.
func sqlState(err error) string {
	var reply *pgconn.PgError
	if errors.As(err, &reply) {
		return reply.Code
	}
	return ""
}

// pgRefused reports whether the attempt was provably not applied: the server rolled it
// back, or nothing was sent. A server that shuts down may say so after it has committed,
// while it waited for a replica; and PgBouncer reports a lost server by class 08.
func pgRefused(err error) bool {
	if errors.Is(err, errPGAgain) || errors.Is(err, dedup.ErrUnreadable) {
		return true
	}
	state := sqlState(err)
	switch {
	case state == "":
		return pgconn.SafeToRetry(err)
	case state == "57P01", state == "57P02", state == "40003", strings.HasPrefix(state, "08"):
		return false
	default:
		return true
	}
}

// pgWorthRepeating reports whether the next attempt may do better at once: the connection
// broke, the server is going or is a standby, or two statements got into each other's way.
func pgWorthRepeating(err error) bool {
	if errors.As(err, new(*pgconn.ConnectError)) {
		return false
	}
	switch state := sqlState(err); state {
	case "":
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !pgconn.Timeout(err)
	case pgReadOnly, "57P01", "57P02", "57P03", "40001", "40P01":
		return true
	default:
		return strings.HasPrefix(state, "08")
	}
}

// prepared waits until the table is known to be there and up to date. One goroutine sees
// to that, for all who wait, however short their time is.
func (p *Postgres) prepared(ctx context.Context) error {
	if !p.autoMigrate || p.migrated.Load() {
		return nil
	}
	p.mu.Lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return dedup.ErrStoreClosed
	}
	m := p.migration
	if m == nil {
		m = &pgMigration{done: make(chan struct{})}
		p.migration = m
		p.background.Go(func() { p.migrate(m) })
	}
	p.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pgMigration is one attempt to bring the table up to date.
type pgMigration struct {
	done chan struct{}
	err  error
}

// migrationTimeout bounds one attempt.
const migrationTimeout = time.Minute

func (p *Postgres) migrate(m *pgMigration) {
	ctx, cancel := context.WithTimeout(p.life, migrationTimeout)
	defer cancel()
	m.err = p.table.migrate(ctx, p.pool)
	if m.err == nil {
		p.migrated.Store(true)
	} else if pgWorthRepeating(m.err) {
		p.pool.Reset()
	}
	p.mu.Lock()
	p.migration = nil
	p.mu.Unlock()
	close(m.done)
}
