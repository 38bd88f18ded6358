package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// goldenID is the entry of the golden records.
const goldenID = dedup.ID("golden-entry-of-the-stores-000000000000000A")

// century is how long golden records last.
const century = 100 * 365 * 24 * time.Hour

// goldenBlob is the golden record, or note.
var goldenBlob = strings.Repeat("golden answer. ", 50)

// golden reads a file of testdata. With UPDATE_GOLDEN=1 one that is not there is made.
func golden(t *testing.T, name string, write func() []byte) []byte {
	t.Helper()
	file := filepath.Join("testdata", "entries", name)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, write(), 0o644))
	}
	b, err := os.ReadFile(file)
	must(t, err)
	return b
}

// goldenClaim is a claim of the golden entry.
func goldenClaim() dedup.ClaimRequest {
	req := request(century)
	req.ID, req.Note = goldenID, []byte(goldenBlob)
	return req
}

// goldenStates are the entries kept of each store: what somebody finds, and how it came
// to be.
var goldenStates = map[string]dedup.State{
	"completed": dedup.StateCompleted, "unknown": dedup.StateUnknown, "claimed": dedup.StateInProgress,
}

// makeGolden makes an entry of this state.
func makeGolden(t *testing.T, s dedup.Store, state dedup.State) {
	t.Helper()
	req := goldenClaim()
	req.Lease = century
	mustClaim(t, s, req, dedup.StateAcquired)
	if state == dedup.StateInProgress {
		return
	}
	c := dedup.Completion{TTL: century, Blob: []byte(goldenBlob)}
	if state == dedup.StateUnknown {
		c = dedup.Completion{Unknown: true}
	}
	_, err := s.Complete(t.Context(), req.ID, req.Token, c)
	must(t, err)
}

// findGolden expects the golden entry in this state, whole.
func findGolden(t *testing.T, s dedup.Store, state dedup.State) {
	t.Helper()
	req := goldenClaim()
	req.Note = nil
	if found := mustClaim(t, s, req, state); string(found.Blob) != goldenBlob {
		t.Errorf("the entry holds %.40q", found.Blob)
	}
}

// Entries that earlier versions wrote are read for ever: testdata holds one of each
// format. New formats get new files, by UPDATE_GOLDEN=1; these stay.
func TestGoldenEntries(t *testing.T) {
	for name, change := range map[string]func(*store.Config){
		"IDE1":      withKeys("g"),
		"IDZ1":      func(c *store.Config) { c.CompressAbove = 100 },
		"IDE1-IDZ1": func(c *store.Config) { c.CompressAbove = 100; withKeys("g")(c) },
	} {
		req := request(time.Hour)
		req.ID = goldenID
		b := golden(t, name+".bin", func() []byte { return sealed(t, req, []byte(goldenBlob), change) })
		found, err := planted(t, b, goldenID, withKeys("g")).Claim(t.Context(), req)
		if err != nil || string(found.Blob) != goldenBlob {
			t.Errorf("%s: %.40q, error %v", name, found.Blob, err)
		}
	}
}

func TestGoldenEntriesOfFile(t *testing.T) {
	for name, state := range goldenStates {
		b := golden(t, "file-1-"+name+".bin", func() (b []byte) {
			path := newFile(t)
			s := openFile(t, path, nil)
			makeGolden(t, s, state)
			must(t, s.Close())
			inside(t, path, func(tx *bbolt.Tx) error {
				b = append(b, tx.Bucket([]byte("entries")).Get([]byte(goldenID))...)
				return nil
			})
			return b
		})
		path := newFile(t)
		must(t, openFile(t, path, nil).Close())
		inside(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("entries")).Put([]byte(goldenID), b) })
		findGolden(t, openFile(t, path, nil), state)
	}
}

func TestGoldenEntriesOfRedis(t *testing.T) {
	t.Parallel()
	server := storetest.StartRedis(t)
	for name, state := range goldenStates {
		s := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = name + ":" })
		key := name + ":" + string(goldenID)
		b := golden(t, "redis-1-"+name+".bin", func() []byte {
			makeGolden(t, s, state)
			b, err := server.Client().Get(t.Context(), key).Bytes()
			must(t, err)
			return b
		})
		must(t, server.Client().Set(t.Context(), key, b, time.Hour).Err())
		findGolden(t, s, state)
	}
}

// The table is kept, too: one that an earlier version made, with its rows, is brought up
// to date when the store is opened.
func TestGoldenEntriesOfPostgres(t *testing.T) {
	t.Parallel()
	server := storetest.StartPostgres(t)
	script := golden(t, "postgres-1.sql", func() []byte {
		open := func(prefix string) *store.Postgres {
			return openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix, c.Postgres.Table = prefix, "made" })
		}
		text := store.Schema("golden")
		for name, state := range goldenStates {
			makeGolden(t, open(name+":"), state)
			id := name + ":" + string(goldenID)
			column := func(of string) string { return server.Text("SELECT "+of+" FROM made WHERE id = $1", id) }
			text += fmt.Sprintf("INSERT INTO golden (id, format, state, token, lease_until, expires_at, data) VALUES ('%s', %s, '%s', '%s', '%s', '%s', '\\x%s');\n",
				id, column("format::text"), column("state"), column("token"),
				column("lease_until::text"), column("expires_at::text"), column("encode(data, 'hex')"))
		}
		return []byte(text)
	})
	server.Exec(string(script))
	for name, state := range goldenStates {
		findGolden(t, openPostgres(t, server.URL(), func(c *store.Config) { c.KeyPrefix, c.Postgres.Table = name+":", "golden" }), state)
	}
}
