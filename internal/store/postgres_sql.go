package store

// The statements of the PostgreSQL store: one for each operation, its own transaction, on
// one row. clock_timestamp() is the server's clock at the moment it is read, so that a
// statement that waited for another's row lock judges by the time after the wait.
//
// Each begins by reading the row as it was when the statement began ("found"). Where that
// answers the question nothing is locked and nothing written: replays and refusals run
// side by side. Otherwise the row is written under conditions that PostgreSQL checks
// again on its newest version; if somebody was faster the answer is pgAgain, and the
// statement is run again.
//
// Parameters are typed by casts, since in the mode of pgx that needs no prepared
// statements the server has to infer their types. "own" reads: a claim with this token.
//
// The state w is p of which somebody waits for the end. Who ends a claim changes the state
// that it found, or none, so that it knows whether to notify: NOTIFY makes the commits of
// a whole database queue, and is for those that somebody waits for only. A claim without a
// note stays p: its owner is of a version that does not know w, and would lose it.
type pgStatements struct {
	claim, renew, complete, abandon, release, ping, purge string
	enroll, dismiss, purgeMembers                         string
}

// What the statements answer.
const (
	pgApplied    = 1
	pgGone       = 2
	pgFenced     = 3
	pgUnreadable = 4

	pgAcquired   = 1
	pgTakenOver  = 2
	pgInProgress = 3
	pgUnknown    = 5
	pgCompleted  = 6
)

func newPGStatements(t pgTable) pgStatements {
	named := t.named
	return pgStatements{
		claim: named(pgFound + sqlClaim), complete: named(pgFound + sqlComplete),
		renew:   named(pgFound + sqlRenew + owned("AND state IN ('p', 'w')", "0")),
		abandon: named(pgFound + sqlAbandon + pgTold + owned("AND state <> 'd'", pgNotified)),
		release: named(pgFound + sqlRelease + pgTold + owned("AND state IN ('p', 'w')", pgNotified)),
		ping:    named(sqlPing), purge: named(sqlPurge),
		enroll: named(sqlEnroll), dismiss: named(sqlDismiss), purgeMembers: named(sqlPurgeMembers),
	}
}

const pgFound = `
WITH found AS MATERIALIZED (
  SELECT format = 1 AND state IN ('p', 'w', 'd', 'u') AS readable, state, token, data,
    lease_until > clock_timestamp() AS leased,
    greatest(1, floor(extract(epoch FROM lease_until - clock_timestamp()) * 1000))::bigint AS lease_left,
    greatest(1, floor(extract(epoch FROM expires_at - clock_timestamp()) * 1000))::bigint AS ttl_left
  FROM TABLE WHERE id = $1::text AND expires_at > clock_timestamp()
)`

// pgTold notifies those who wait for a claim that the statement has ended; its answer has
// to add pgNotified, which is 0, for PostgreSQL runs no part that nobody reads.
const (
	pgTold = `, told AS MATERIALIZED (
  SELECT pg_notify(CHANNEL, $1::text) FROM changed, found WHERE found.state = 'w'
)`
	pgNotified = `(SELECT 0 * count(*) FROM told)::integer`
)

// sqlClaim takes id, token, lease and TTL in ms, whether to take over, note, whether to
// wait. A claim of the same token gets a new lease and keeps all else. Who takes over is
// waited for as the old owner was.
const sqlClaim = `, held AS MATERIALIZED (
  SELECT * FROM found WHERE NOT (readable AND (
    state IN ('p', 'w') AND (token = $2::text OR $5::boolean AND NOT leased) OR state = 'u' AND $5::boolean))
), marked AS (
  UPDATE TABLE SET state = 'w'
  WHERE id = $1::text AND format = 1 AND state = 'p' AND expires_at > clock_timestamp()
    AND $7::boolean AND EXISTS (SELECT FROM held WHERE readable AND state = 'p' AND leased AND data <> '')
  RETURNING 1
), taken AS (
  INSERT INTO TABLE AS e (id, state, token, lease_until, expires_at, data)
  SELECT $1::text, 'p', $2::text, clock_timestamp() + $3::bigint * interval '1 millisecond',
    clock_timestamp() + $4::bigint * interval '1 millisecond', $6::bytea
  WHERE NOT EXISTS (SELECT FROM held)
  ON CONFLICT (id) DO UPDATE SET
    format = 1, state = CASE e.state WHEN 'w' THEN 'w' ELSE 'p' END,
    token = excluded.token, lease_until = excluded.lease_until,
    replaced = e.expires_at > clock_timestamp() AND NOT (e.state IN ('p', 'w') AND e.token = excluded.token),
    expires_at = CASE WHEN e.state IN ('p', 'w') AND e.token = excluded.token AND e.expires_at > clock_timestamp()
      THEN e.expires_at ELSE excluded.expires_at END,
    data = CASE WHEN e.state IN ('p', 'w') AND e.token = excluded.token AND e.expires_at > clock_timestamp()
      THEN e.data ELSE excluded.data END
  WHERE e.expires_at <= clock_timestamp() OR e.format = 1 AND (
    e.state IN ('p', 'w') AND (e.token = $2::text OR $5::boolean AND e.lease_until <= clock_timestamp())
    OR e.state = 'u' AND $5::boolean)
  RETURNING replaced
)
SELECT CASE WHEN replaced THEN 2 ELSE 1 END::integer, 0::bigint, ''::bytea FROM taken
UNION ALL
SELECT CASE WHEN NOT readable THEN 4 WHEN state = 'd' THEN 6 WHEN state IN ('p', 'w') AND leased THEN 3 ELSE 5 END::integer,
  CASE WHEN state = 'd' THEN ttl_left ELSE lease_left END, data FROM held
WHERE NOT ($7::boolean AND readable AND state = 'p' AND leased AND data <> '') OR EXISTS (SELECT FROM marked)`

// sqlComplete takes id, token, TTL in ms, blob. A record of the same token stays as it is.
const sqlComplete = `, held AS MATERIALIZED (
  SELECT * FROM found WHERE NOT (readable AND state IN ('p', 'w', 'u') AND token = $2::text)
), changed AS (
  INSERT INTO TABLE AS e (id, state, token, lease_until, expires_at, data)
  SELECT $1::text, 'd', $2::text, clock_timestamp(), clock_timestamp() + $3::bigint * interval '1 millisecond', $4::bytea
  WHERE NOT EXISTS (SELECT FROM held)
  ON CONFLICT (id) DO UPDATE SET
    format = 1, state = 'd', token = excluded.token, lease_until = excluded.lease_until,
    replaced = e.expires_at > clock_timestamp(), expires_at = excluded.expires_at, data = excluded.data
  WHERE e.expires_at <= clock_timestamp() OR e.format = 1 AND e.state IN ('p', 'w', 'u') AND e.token = $2::text
    AND e.state = (SELECT state FROM found)
  RETURNING replaced
)` + pgTold + `
SELECT CASE WHEN replaced THEN 1 ELSE 2 END::integer + ` + pgNotified + ` FROM changed
UNION ALL
SELECT CASE WHEN NOT readable THEN 4 WHEN state = 'd' AND token = $2::text THEN 1 ELSE 3 END::integer FROM held`

// sqlRenew takes id, token, lease in ms.
const sqlRenew = `, changed AS (
  UPDATE TABLE SET lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
    expires_at = greatest(expires_at, clock_timestamp() + $3::bigint * interval '1 millisecond')
  WHERE id = $1::text AND format = 1 AND state IN ('p', 'w') AND token = $2::text AND expires_at > clock_timestamp()
  RETURNING 1
)`

// sqlAbandon takes id, token.
const sqlAbandon = `, changed AS (
  UPDATE TABLE SET state = 'u'
  WHERE id = $1::text AND format = 1 AND state IN ('p', 'w', 'u') AND token = $2::text AND expires_at > clock_timestamp()
    AND state = (SELECT state FROM found)
  RETURNING 1
)`

// sqlRelease takes id, token.
const sqlRelease = `, changed AS (
  DELETE FROM TABLE
  WHERE id = $1::text AND format = 1 AND state IN ('p', 'w') AND token = $2::text AND expires_at > clock_timestamp()
    AND state = (SELECT state FROM found)
  RETURNING 1
)`

// owned ends a statement that only the owner of a living entry gets applied; if says in
// which states, and plus is added to the answer.
func owned(condition, plus string) string {
	return `
SELECT CASE WHEN EXISTS (SELECT FROM changed) THEN 1
  WHEN NOT EXISTS (SELECT FROM found) THEN 2
  WHEN EXISTS (SELECT FROM found WHERE NOT readable) THEN 4
  WHEN EXISTS (SELECT FROM found WHERE token = $2::text ` + condition + `) THEN 0
  ELSE 3 END::integer + ` + plus
}

// sqlPing takes id.
const sqlPing = `
INSERT INTO TABLE AS e (id, state, token, lease_until, expires_at, data)
VALUES ($1::text, 'p', '', clock_timestamp(), clock_timestamp() + interval '10 seconds', '')
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at`

// sqlPurge takes the most rows to remove. Rows that somebody is working on are left for
// later; now() is as good as the clock here, and can use the index.
const sqlPurge = `
DELETE FROM TABLE WHERE id = ANY (ARRAY(
  SELECT id FROM TABLE WHERE expires_at <= now() ORDER BY expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED))`
