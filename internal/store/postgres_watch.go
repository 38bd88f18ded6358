package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"idemproxy/internal/dedup"
)

const (
	// pgSilence is how long a listening connection may hear nothing before the server is
	// asked whether it is still there.
	pgSilence = 15 * time.Second
	// pgTrialTimeout is how long the notification may take by which a listening connection
	// is tried out.
	pgTrialTimeout = 5 * time.Second
)

// errPGDeaf says that LISTEN succeeded and notifies of nothing.
var errPGDeaf = errors.New("notifications don't arrive: is a PgBouncer in transaction mode between?")

// Watch is dedup.Store's. All watches of a process share one connection that listens,
// outside the pool; it is opened with the first of them.
func (p *Postgres) Watch(id dedup.ID) (<-chan struct{}, func()) { return p.watchers.watch(id) }

// WarnOfWatch sets what is called when watches don't come into force, as behind PgBouncer in
// transaction mode: once, until they have been in force again. Waiting requests then ask
// now and then.
func (p *Postgres) WarnOfWatch(warn func(error)) { p.watchers.warnBy(warn) }

func (p *Postgres) listen() { p.watchers.keepListening(p.life, p.hear) }

// hear listens on one connection.
func (p *Postgres) hear(ctx context.Context) error {
	conn, err := p.startListening(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(bye)
	}()
	if err := p.try(ctx, conn); err != nil {
		return err
	}
	p.watchers.comeIntoForce()
	for {
		key, err := p.hearOne(ctx, conn, pgSilence)
		switch {
		case err == nil:
			p.watchers.wake(dedup.ID(strings.TrimPrefix(key, p.prefix)))
		case ctx.Err() != nil || conn.IsClosed():
			return err
		default:
			if err := p.stillThere(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (p *Postgres) startListening(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := p.listenAs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pgTrialTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to listen: %w", err)
	}
	if _, err := conn.Exec(ctx, `LISTEN "`+p.table.channel+`"`); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// try waits for a notification of our own, sent over another connection. Behind a
// PgBouncer in transaction mode LISTEN succeeds, and it never comes.
func (p *Postgres) try(ctx context.Context, conn *pgx.Conn) error {
	trial := p.prefix + string(dedup.NewToken())
	ctx, cancel := context.WithTimeout(ctx, pgTrialTimeout)
	defer cancel()
	if _, err := p.pool.Exec(ctx, "SELECT pg_notify($1::text, $2::text)", p.table.channel, trial); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	for {
		switch heard, err := p.hearOne(ctx, conn, pgTrialTimeout); {
		case err != nil && ctx.Err() != nil:
			return errPGDeaf
		case err != nil:
			return err
		case heard == trial:
			return nil
		}
	}
}

// hearOne waits for one notification. When the time is over the connection is as good as
// before.
func (p *Postgres) hearOne(ctx context.Context, conn *pgx.Conn, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", fmt.Errorf("wait for notification: %w", err)
	}
	return n.Payload, nil
}

func (p *Postgres) stillThere(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pgTrialTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// pgListenConfig is how a connection outside the pool is made, with what the files now say.
func pgListenConfig(cfg Config) (*pgx.ConnConfig, error) {
	pc, err := parsePGURL(cfg.Postgres)
	if err != nil {
		return nil, err
	}
	pc.ConnConfig.ConnectTimeout = cfg.Timeout
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pc.ConnConfig.StatementCacheCapacity, pc.ConnConfig.DescriptionCacheCapacity = 0, 0
	return pc.ConnConfig, nil
}
