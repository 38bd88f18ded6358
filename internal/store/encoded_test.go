package store_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
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

// keyOf is a key for tests, made of one byte.
func keyOf(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// encryptionKey is the key id in the configuration.
func encryptionKey(id string, b byte) store.EncryptionKey {
	return store.EncryptionKey{ID: id, Key: store.Secret(base64.StdEncoding.EncodeToString(keyOf(b)))}
}

// withKeys encrypts by the first of the keys; each id is also its key's byte.
func withKeys(ids ...string) func(*store.Config) {
	return func(c *store.Config) {
		for _, id := range ids {
			c.Encryption.Keys = append(c.Encryption.Keys, encryptionKey(id, id[0]))
		}
	}
}

// openWhole opens a file store with all that Open puts around it.
func openWhole(t *testing.T, path string, change func(*store.Config)) dedup.Store {
	t.Helper()
	s, err := store.Open(t.Context(), fileConfig(path, change))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestEncodedConforms(t *testing.T) {
	storetest.RunInBubble(t, func(t *testing.T) storetest.Harness {
		cfg := store.DefaultConfig()
		cfg.CompressAbove = 16
		withKeys("a", "b")(&cfg)
		s, err := store.Open(t.Context(), cfg)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return storetest.Harness{Store: s}
	})
}

func TestEncryptedConformsInAFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		return storetest.Harness{Store: openWhole(t, newFile(t), withKeys("a"))}
	})
}

// recordIn keeps a record in the file.
func recordIn(t *testing.T, path string, change func(*store.Config), note, blob string) dedup.ClaimRequest {
	t.Helper()
	s := openWhole(t, path, change)
	defer s.Close()
	req := request(time.Hour)
	req.Note = []byte(note)
	mustClaim(t, s, req, dedup.StateAcquired)
	if blob != "" {
		mustComplete(t, s, req, []byte(blob))
	}
	return req
}

// found is what somebody else finds in the file under this configuration.
func found(t *testing.T, path string, change func(*store.Config), req dedup.ClaimRequest) (string, error) {
	t.Helper()
	s := openWhole(t, path, change)
	defer s.Close()
	req.Token, req.Note = dedup.NewToken(), nil
	f, err := s.Claim(t.Context(), req)
	return string(f.Blob), err
}

func TestEncryptionRotates(t *testing.T) {
	path := newFile(t)
	plain := recordIn(t, path, nil, "", "plain answer")
	old := recordIn(t, path, withKeys("a"), "", "old answer")
	noted := recordIn(t, path, withKeys("a"), "secret note", "")
	young := recordIn(t, path, withKeys("b", "a"), "", "young answer")
	for _, c := range []struct {
		what string
		keys []string
		req  dedup.ClaimRequest
		want string // empty: unreadable
	}{
		{"both keys, old", []string{"b", "a"}, old, "old answer"},
		{"both keys, note", []string{"b", "a"}, noted, "secret note"},
		{"both keys, young", []string{"b", "a"}, young, "young answer"},
		{"both keys, plain", []string{"b", "a"}, plain, "plain answer"},
		{"other order, young", []string{"a", "b"}, young, "young answer"},
		{"old key gone, old", []string{"b"}, old, ""},
		{"old key gone, note", []string{"b"}, noted, ""},
		{"old key gone, young", []string{"b"}, young, "young answer"},
		{"no keys, old", nil, old, ""},
		{"no keys, plain", nil, plain, "plain answer"},
	} {
		got, err := found(t, path, withKeys(c.keys...), c.req)
		if c.want == "" && !errors.Is(err, dedup.ErrUnreadable) || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("%s: %q, error %v", c.what, got, err)
		}
	}
	// Another key of the same id is no key for it.
	_, err := found(t, path, func(c *store.Config) {
		c.Encryption.Keys = []store.EncryptionKey{encryptionKey("a", 'z')}
	}, old)
	if !errors.Is(err, dedup.ErrUnreadable) {
		t.Errorf("with a wrong key: error %v", err)
	}
	raw, err := os.ReadFile(path)
	must(t, err)
	for _, secret := range []string{"old answer", "young answer", "secret note"} {
		if bytes.Contains(raw, []byte(secret)) {
			t.Errorf("%q can be read in the file", secret)
		}
	}
}

// planted is a store in memory that holds these bytes as the record of an ID.
func planted(t *testing.T, blob []byte, id dedup.ID, change func(*store.Config)) dedup.Store {
	t.Helper()
	cfg := store.DefaultConfig()
	change(&cfg)
	s, err := store.Open(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	req := request(time.Hour)
	req.ID = id
	inner := bare[*store.Memory](s)
	mustClaim(t, inner, req, dedup.StateAcquired)
	mustComplete(t, inner, req, blob)
	return s
}

// sealed is what a store in memory holds as the record of req.
func sealed(t *testing.T, req dedup.ClaimRequest, blob []byte, change func(*store.Config)) []byte {
	t.Helper()
	cfg := store.DefaultConfig()
	change(&cfg)
	s, err := store.Open(t.Context(), cfg)
	must(t, err)
	defer s.Close()
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, blob)
	return mustClaim(t, bare[*store.Memory](s), req, dedup.StateCompleted).Blob
}

func TestSealedRecordsThatWereChangedOrMovedAreUnreadable(t *testing.T) {
	req, other := request(time.Hour), request(time.Hour)
	b := sealed(t, req, []byte("answer"), withKeys("a"))
	if found, err := planted(t, b, req.ID, withKeys("a")).Claim(t.Context(), req); err != nil || string(found.Blob) != "answer" {
		t.Fatalf("where it was: %q, error %v", found.Blob, err)
	}
	_, err := planted(t, b, other.ID, withKeys("a")).Claim(t.Context(), other)
	if !errors.Is(err, dedup.ErrUnreadable) {
		t.Errorf("moved: error %v", err)
	}
	for n := 4; n < len(b); n++ {
		changed := bytes.Clone(b)
		changed[n] ^= 1
		for _, damaged := range [][]byte{changed, b[:n]} {
			if _, err := planted(t, damaged, req.ID, withKeys("a")).Claim(t.Context(), req); !errors.Is(err, dedup.ErrUnreadable) {
				t.Fatalf("changed or cut at %d: error %v", n, err)
			}
		}
	}
}

func TestCompression(t *testing.T) {
	long := []byte(strings.Repeat("an answer that says the same again and again. ", 1000))
	compress := func(c *store.Config) { c.CompressAbove = 4 * dedup.KiB }
	for name, change := range map[string]func(*store.Config){
		"plain":     compress,
		"encrypted": func(c *store.Config) { compress(c); withKeys("a")(c) },
	} {
		req := request(time.Hour)
		b := sealed(t, req, long, change)
		if len(b) > len(long)/10 {
			t.Errorf("%s: %d bytes are kept as %d", name, len(long), len(b))
		}
		found, err := planted(t, b, req.ID, withKeys("a")).Claim(t.Context(), req) // now turned off
		if err != nil || !bytes.Equal(found.Blob, long) {
			t.Errorf("%s: %d bytes of %d back, error %v", name, len(found.Blob), len(long), err)
		}
		small := sealed(t, request(time.Hour), long[:4096], compress)
		if !bytes.Equal(small, long[:4096]) {
			t.Errorf("%s: what is not above the size is changed", name)
		}
	}
	broken := append([]byte("IDZ1"), "no frame"...)
	req := request(time.Hour)
	if _, err := planted(t, broken, req.ID, compress).Claim(t.Context(), req); !errors.Is(err, dedup.ErrUnreadable) {
		t.Errorf("a broken frame: error %v", err)
	}
}

func TestEncryptionKeysInFiles(t *testing.T) {
	dir := t.TempDir()
	key := keyOf('k')
	req := request(time.Hour)
	b := sealed(t, req, []byte("answer"), withKeys("k"))
	for name, text := range map[string]string{
		"base64": base64.StdEncoding.EncodeToString(key) + "\n", "base64url": base64.RawURLEncoding.EncodeToString(key),
		"hex": hex.EncodeToString(key) + "\r\n", "bytes": string(key),
	} {
		file := writeFile(t, filepath.Join(dir, name), text)
		use := func(c *store.Config) { c.Encryption.Keys = []store.EncryptionKey{{ID: "k", KeyFile: file}} }
		if found, err := planted(t, b, req.ID, use).Claim(t.Context(), req); err != nil || string(found.Blob) != "answer" {
			t.Errorf("%s: %q, error %v", name, found.Blob, err)
		}
	}
	for name, text := range map[string]string{"short": "c2hvcnQ=", "empty": "", "long": hex.EncodeToString(key) + "00"} {
		cfg := store.DefaultConfig()
		cfg.Encryption.Keys = []store.EncryptionKey{{ID: "k", KeyFile: writeFile(t, filepath.Join(dir, name), text)}}
		if _, err := store.Open(t.Context(), cfg); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// goldenID is the entry of the golden records.
const goldenID = dedup.ID("golden-entry-of-the-stores-000000000000000A")

// Entries that earlier versions wrote are read for ever: testdata holds one of each
// format. New formats get new files, by UPDATE_GOLDEN=1; these stay.
func TestGoldenEntries(t *testing.T) {
	blob := strings.Repeat("golden answer. ", 50)
	for name, change := range map[string]func(*store.Config){
		"IDE1":      withKeys("g"),
		"IDZ1":      func(c *store.Config) { c.CompressAbove = 100 },
		"IDE1-IDZ1": func(c *store.Config) { c.CompressAbove = 100; withKeys("g")(c) },
	} {
		file := filepath.Join("testdata", "entries", name+".bin")
		req := request(time.Hour)
		req.ID = goldenID
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && os.Getenv("UPDATE_GOLDEN") != "" {
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(t, os.WriteFile(file, sealed(t, req, []byte(blob), change), 0o644))
		}
		b, err := os.ReadFile(file)
		must(t, err)
		found, err := planted(t, b, goldenID, withKeys("g")).Claim(t.Context(), req)
		if err != nil || string(found.Blob) != blob {
			t.Errorf("%s: %.40q, error %v", name, found.Blob, err)
		}
	}
	goldenFileEntry(t, blob)
}

// goldenFileEntry reads a value of the file store as it was written in 2026, made to last
// a century.
func goldenFileEntry(t *testing.T, blob string) {
	t.Helper()
	golden := filepath.Join("testdata", "entries", "IDF1.bin")
	req := request(100 * 365 * 24 * time.Hour)
	req.ID = goldenID
	path := newFile(t)
	if _, err := os.Stat(golden); errors.Is(err, os.ErrNotExist) && os.Getenv("UPDATE_GOLDEN") != "" {
		s := openFile(t, path, nil)
		mustClaim(t, s, req, dedup.StateAcquired)
		_, err := s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: req.TTL, Blob: []byte(blob)})
		must(t, err)
		must(t, s.Close())
		inside(t, path, func(tx *bbolt.Tx) error {
			return os.WriteFile(golden, tx.Bucket([]byte("entries")).Get([]byte(goldenID)), 0o644)
		})
	}
	b, err := os.ReadFile(golden)
	must(t, err)
	path = newFile(t)
	must(t, openFile(t, path, nil).Close())
	inside(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("entries")).Put([]byte(goldenID), b) })
	found := mustClaim(t, openFile(t, path, nil), req, dedup.StateCompleted)
	if string(found.Blob) != blob {
		t.Errorf("IDF1: %.40q", found.Blob)
	}
}
