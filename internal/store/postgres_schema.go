package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresMigrations are the steps from an empty database to the present table, in order;
// %[1]s is the table, %[2]s its index, %[3]s the table of members, %[4]s its index. A step that was released is never changed, and none
// drops anything: an older replica goes on working beside a newer one.
func postgresMigrations() []string {
	return []string{
		`
CREATE TABLE IF NOT EXISTS %[1]s (
  id          text        PRIMARY KEY,            -- key_prefix, and a hash of scope and key
  format      smallint    NOT NULL DEFAULT 1,     -- version of what this row means
  state       text        NOT NULL,               -- p claimed, d completed, u outcome unknown
  token       text        NOT NULL,               -- fencing token of the owner
  replaced    boolean     NOT NULL DEFAULT false, -- it took the place of a living entry
  lease_until timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,               -- from then on the row does not exist
  data        bytea       NOT NULL                -- the claim's note or the record
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS %[2]s ON %[1]s (expires_at);`,
		`
CREATE TABLE IF NOT EXISTS %[3]s ( -- for max_live_keys_per_scope: who lives in a scope
  scope      text        NOT NULL, -- key_prefix, and a hash of the scope
  id         text        NOT NULL, -- as above, without key_prefix
  token      text        NOT NULL, -- fencing token of who enrolled it
  expires_at timestamptz NOT NULL, -- from then on the row does not exist
  PRIMARY KEY (scope, id)
);
CREATE INDEX IF NOT EXISTS %[4]s ON %[3]s (expires_at);`,
	}
}

// pgTable is the names that belong to one table, quoted.
type pgTable struct {
	name, index, versions string
	members, membersIndex string
	channel               string // where the ends of claims are notified that somebody waits for
	lock                  int64
}

// named puts the names into a statement.
func (t pgTable) named(sql string) string {
	return strings.NewReplacer("TABLE", t.name, "MEMBERS", t.members, "CHANNEL", "'"+t.channel+"'").Replace(sql)
}

func newPGTable(name string) pgTable {
	parts := strings.Split(name, ".")
	last := len(parts) - 1
	quoted := func(suffix string) string {
		more := append(pgx.Identifier{}, parts...)
		more[last] += suffix
		return more.Sanitize()
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("idemproxy " + name))
	return pgTable{
		name: quoted(""), versions: quoted("_versions"), lock: int64(hash.Sum64()),
		index:   pgx.Identifier{parts[last] + "_expires_at"}.Sanitize(),
		members: quoted("_members"), membersIndex: pgx.Identifier{parts[last] + "_members_expires_at"}.Sanitize(),
		channel: fmt.Sprintf("idemproxy_%x", hash.Sum64()),
	}
}

func (t pgTable) createVersions() string {
	return "CREATE TABLE IF NOT EXISTS " + t.versions + ` (
  version    integer     PRIMARY KEY,
  applied_at timestamptz NOT NULL DEFAULT now()
);`
}

// step is one migration, counted from 1, which also notes that it was done.
func (t pgTable) step(version int) string {
	return strings.TrimPrefix(fmt.Sprintf(postgresMigrations()[version-1], t.name, t.index, t.members, t.membersIndex), "\n") +
		fmt.Sprintf("\nINSERT INTO %s (version) VALUES (%d) ON CONFLICT DO NOTHING;", t.versions, version)
}

// Schema returns the SQL that makes the table of the PostgreSQL store under this name, or
// schema.name, and notes its version: what PostgresConfig.AutoMigrate runs by itself. It
// may be run again.
func Schema(table string) string {
	t := newPGTable(table)
	all := []string{t.createVersions()}
	for i := range postgresMigrations() {
		all = append(all, t.step(i+1))
	}
	return strings.Join(all, "\n") + "\n"
}

// migrate brings the table up to date. Of many who do so at once, one works and the
// others find it done. Where nothing is missing, no lock is taken and no right to make
// tables is needed.
func (t pgTable) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if version, err := t.version(ctx, pool); err == nil && version >= len(postgresMigrations()) {
		return nil
	} else if err != nil && sqlState(err) != pgUndefinedTable {
		return fmt.Errorf("read version of table: %w", err)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", t.lock); err != nil {
			return fmt.Errorf("lock migrations: %w", err)
		}
		if _, err := tx.Exec(ctx, t.createVersions()); err != nil {
			return fmt.Errorf("make table of versions: %w", err)
		}
		version, err := t.version(ctx, tx)
		if err != nil {
			return fmt.Errorf("read version of table: %w", err)
		}
		for v := version + 1; v <= len(postgresMigrations()); v++ {
			if _, err := tx.Exec(ctx, t.step(v), pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("migrate table to version %d: %w", v, err)
			}
		}
		return nil
	})
}

// version is the last step that was done.
func (t pgTable) version(ctx context.Context, from interface {
	QueryRow(context.Context, string, ...any) pgx.Row
},
) (n int, err error) {
	err = from.QueryRow(ctx, "SELECT coalesce(max(version), 0)::integer FROM "+t.versions).Scan(&n)
	return n, err
}
