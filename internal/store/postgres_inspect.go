package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"idemproxy/internal/dedup"
)

// sqlSeen is rows as pgEntry reads them; %s says which. What is no entry has no state.
const sqlSeen = `
SELECT id, seen, token, lease, ttl, size, CASE WHEN size <= $2::integer THEN data ELSE '' END FROM (
  SELECT id, token, data, octet_length(data)::integer AS size,
    CASE WHEN format <> 1 OR expires_at <= clock_timestamp() THEN '' WHEN state IN ('d', 'u') THEN state
      WHEN state NOT IN ('p', 'w') THEN '' WHEN lease_until > clock_timestamp() THEN 'p' ELSE 'u' END AS seen,
    greatest(1, floor(extract(epoch FROM lease_until - clock_timestamp()) * 1000))::bigint AS lease,
    greatest(1, floor(extract(epoch FROM expires_at - clock_timestamp()) * 1000))::bigint AS ttl
  FROM TABLE WHERE %s) AS rows ORDER BY id`

// pgLook takes id, largest size of bytes; pgList the last ID that was seen, that size, and
// the most rows to look at. It walks the primary key, in whichever order the database has
// it, also over the rows of other prefixes: each page is one short read of the index.
const (
	pgLook = `id = $1::text AND expires_at > clock_timestamp()`
	pgList = `id > $1::text ORDER BY id LIMIT $3::integer`
)

// sqlFree takes id, token, and the state that was seen: p, u or d.
const sqlFree = `, changed AS (
  DELETE FROM TABLE WHERE id = $1::text AND format = 1 AND token = $2::text AND expires_at > clock_timestamp()
    AND CASE $3::text WHEN 'd' THEN state = 'd'
      WHEN 'u' THEN state = 'u' OR state <> 'd' AND lease_until <= clock_timestamp()
      ELSE state NOT IN ('d', 'u') END
  RETURNING 1
)` + pgTold + `
SELECT CASE WHEN EXISTS (SELECT FROM changed) THEN 1 WHEN NOT EXISTS (SELECT FROM found) THEN 2
  WHEN EXISTS (SELECT FROM found WHERE NOT readable) THEN 4 ELSE 3 END::integer + ` + pgNotified

func (p *Postgres) named(sql string) string { return p.table.named(sql) }

// Look is dedup.Store's.
func (p *Postgres) Look(ctx context.Context, id dedup.ID) (dedup.Entry, error) {
	entries, _, err := p.see(ctx, pgLook, p.key(id), maxLookBlob)
	switch {
	case err != nil:
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", err)
	case len(entries) == 0:
		return dedup.Entry{}, nil
	case entries[0].State == 0:
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", dedup.ErrUnreadable)
	}
	return entries[0], nil
}

// List is dedup.Store's. A cursor is the last row that was seen.
func (p *Postgres) List(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	entries, last, err := p.see(ctx, pgList, req.Cursor, req.MaxBlob, req.Limit)
	if err != nil {
		return dedup.Page{}, fmt.Errorf("list entries: %w", err)
	}
	var page dedup.Page
	for _, e := range entries {
		if isID(string(e.ID)) {
			addTo(&page, e, req)
		}
	}
	if len(entries) == req.Limit {
		page.Next = last
	}
	return page, nil
}

// see reads rows, and the ID of the last of them as it stands there. The ID of a row with
// another prefix is empty.
func (p *Postgres) see(ctx context.Context, which string, args ...any) (entries []dedup.Entry, last string, err error) {
	err = p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		all := append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)
		rows, err := conn.Query(ctx, p.named(fmt.Sprintf(sqlSeen, which)), all...)
		if err != nil {
			return err
		}
		entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (dedup.Entry, error) {
			var e dedup.Entry
			var kind string
			var lease, ttl int64
			err := row.Scan(&last, &kind, &e.Token, &lease, &ttl, &e.Size, &e.Blob)
			if id, ours := strings.CutPrefix(last, p.prefix); ours {
				e.ID = dedup.ID(id)
			}
			e.TTLLeft = time.Duration(ttl) * time.Millisecond
			switch kind {
			case "d":
				e.State = dedup.StateCompleted
			case "u":
				e.State = dedup.StateUnknown
			case "p":
				e.State, e.LeaseLeft = dedup.StateInProgress, time.Duration(lease)*time.Millisecond
			}
			return e, err
		})
		return err
	})
	return entries, last, err
}

// Free is dedup.Store's.
func (p *Postgres) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	defer p.watchers.wake(id)
	return p.own(ctx, "free entry", p.named(pgFound+sqlFree), p.key(id), string(token), seenLetter(state))
}

// The audit trail lies in rows of the same table, which expire like all others: state a,
// and as ID the prefix, "trail ", the instant in microseconds, and something unique.
const (
	pgTrail     = "trail "
	sqlInstant  = `to_char(extract(epoch FROM clock_timestamp() - %s) * 1000000, 'FM00000000000000000000')`
	pgTrailLate = `interval '2 seconds'` // what is younger may come after what is not committed yet
)

// sqlTell takes the beginning of the ID, its end, TTL in ms, entry.
const sqlTell = `
INSERT INTO TABLE (id, state, token, lease_until, expires_at, data)
SELECT $1::text || INSTANT || $2::text, 'a', '', clock_timestamp(), clock_timestamp() + $3::bigint * interval '1 millisecond', $4::bytea`

// sqlTold takes the beginning of the IDs, the end of the last one that was seen, the most
// rows to answer.
const sqlTold = `
SELECT id, data FROM TABLE WHERE id > $1::text || $2::text AND id < $1::text || INSTANT AND state = 'a'
ORDER BY id LIMIT $3::integer`

// Tell is dedup.Store's.
func (p *Postgres) Tell(ctx context.Context, entry []byte) error {
	sql := strings.ReplaceAll(p.named(sqlTell), "INSTANT", fmt.Sprintf(sqlInstant, `interval '0'`))
	err := p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, sql, p.prefix+pgTrail, string(dedup.NewToken()), trailTTL.Milliseconds(), bytesArg(entry))
		return err
	})
	if err != nil {
		return fmt.Errorf("write audit trail: %w", err)
	}
	return nil
}

// Told is dedup.Store's. A position is the end of an ID: an instant, or that and more.
func (p *Postgres) Told(ctx context.Context, after string) (entries [][]byte, at string, err error) {
	err = p.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		now := fmt.Sprintf(sqlInstant, pgTrailLate)
		if after == "" {
			return conn.QueryRow(ctx, "SELECT "+now).Scan(&at)
		}
		entries, at = nil, after
		rows, err := conn.Query(ctx, strings.ReplaceAll(p.named(sqlTold), "INSTANT", now), p.prefix+pgTrail, after, dedup.TrailLength)
		if err != nil {
			return err
		}
		var id string
		var data []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &data}, func() error {
			at = strings.TrimPrefix(id, p.prefix+pgTrail)
			entries = append(entries, append([]byte(nil), data...))
			return nil
		})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read audit trail: %w", err)
	}
	return entries, at, nil
}
