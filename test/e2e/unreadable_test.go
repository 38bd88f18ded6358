package e2e

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// What stands under a key and can't be read is never taken for a free key.

func TestUnreadableInRedis(t *testing.T) {
	t.Parallel()
	server := needRedis(t)
	client := server.client(t)
	ctx := context.Background()
	// set puts something in the place of the record, in bytes or by a command.
	set := func(value string) func(key string) error {
		return func(key string) error { return client.Set(ctx, key, value, time.Hour).Err() }
	}
	other := func(do func(key string) error) func(key string) error {
		return func(key string) error {
			if err := client.Del(ctx, key).Err(); err != nil {
				return err
			}
			return do(key)
		}
	}
	ways := map[string]func(key string) error{
		"text": set("garbage"), "empty": set(""), "long garbage": set(strings.Repeat("\x00garbage\xff", 200)),
		"a list": other(func(key string) error { return client.RPush(ctx, key, "a", "b").Err() }),
		"a hash": other(func(key string) error { return client.HSet(ctx, key, "a", "b").Err() }),
	}
	for name, damage := range damages() {
		ways[name] = func(key string) error {
			record, err := client.Get(ctx, key).Bytes()
			if err != nil {
				return err
			}
			return set(string(damage(record)))(key)
		}
	}
	for name, spoil := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sharedRedis(t)
			unreadable(t, s, func(*proxy) {
				if err := spoil(onlyKey(t, server, s.prefix)); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestUnreadableInPostgres(t *testing.T) {
	t.Parallel()
	server := needPostgres(t)
	for name, change := range map[string]string{
		"text": `data = 'garbage'`, "empty": `data = ''`, "long garbage": `data = decode(repeat('00ff', 1000), 'hex')`,
		"half a record": `data = substring(data FOR length(data) / 2)`, "bytes after the end": `data = data || 'more'`,
		"changed byte":      `data = set_byte(data, length(data) / 2, get_byte(data, length(data) / 2) # 32)`,
		"a later version":   `format = 2`,
		"an unknown state":  `state = 'x'`,
		"no state":          `state = ''`,
		"a later record":    `data = set_byte(data, 4, get_byte(data, 4) + 1)`,
		"a key of nobody's": `data = 'IDE1' || '\x026b39'::bytea || data`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sharedPostgres(t)
			unreadable(t, s, func(*proxy) {
				rows := server.texts(t, "UPDATE idempotency_keys SET "+change+" WHERE id LIKE $1 AND state = 'd' RETURNING id", s.prefix+"%")
				if len(rows) != 1 {
					t.Fatalf("PostgreSQL has the records %q, want one", rows)
				}
			})
		})
	}
}

func TestUnreadableInTheFile(t *testing.T) {
	t.Parallel()
	ways := damages()
	for name, value := range map[string]string{"text": "garbage", "empty": "", "long garbage": strings.Repeat("\x00garbage\xff", 200)} {
		ways[name] = func([]byte) []byte { return []byte(value) }
	}
	for name, spoil := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "idemproxy.db")
			unreadable(t, fileAt(path), func(p *proxy) {
				p.stop()
				spoilFile(t, path, spoil)
				p.again()
			})
		})
	}
}

// spoilFile changes the only entry of a file.
func spoilFile(t *testing.T, path string, spoil func([]byte) []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket([]byte("entries"))
		k, v := entries.Cursor().First()
		return entries.Put(bytes.Clone(k), spoil(bytes.Clone(v)))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// damages are ways to spoil an entry. Of its layout they know that it begins with the
// magic of its version, and has a header with the record behind it.
func damages() map[string]func([]byte) []byte {
	return map[string]func([]byte) []byte{
		"half a record":       func(b []byte) []byte { return b[:len(b)/2] },
		"changed byte":        func(b []byte) []byte { b[len(b)/2] ^= 0x20; return b },
		"bytes after the end": func(b []byte) []byte { return append(b, "more"...) },
		"a later version":     func(b []byte) []byte { b[bytes.IndexByte(b, '1')]++; return b },
	}
}

// unreadable has a request recorded and its record spoilt. Then it is refused, and never
// executed; nothing else is lost.
func unreadable(t *testing.T, s storage, spoil func(*proxy)) {
	t.Helper()
	up := newUpstream(t, created)
	p := start(t, setup{store: s, upstream: up.url, routes: payments})
	req := request{key: newKey(), body: "x"}
	p.send(t, req).fresh(t, 201)
	spoil(p)
	p.send(t, req).refused(t, 503, "record_unreadable")
	p.send(t, req).refused(t, 503, "record_unreadable")
	up.saw(t, 1)
	req.key = newKey()
	p.twice(t, req, 201)
}
