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

	"github.com/klauspost/compress/zstd"

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
	return openAny(t, fileConfig(path, change))
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

// The suite on every store that lies outside the process, with everything encrypted and
// nearly everything compressed.
func TestEncodedConformsOnEveryStore(t *testing.T) {
	t.Parallel()
	for name, use := range everyServer(t) {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Harness {
				cfg := store.DefaultConfig()
				use(t, &cfg)
				cfg.CompressAbove = 16
				withKeys("a", "b")(&cfg)
				return storetest.Harness{Store: openAny(t, cfg)}
			})
		})
	}
}

// everyServer is how to use each store that lies outside the process, under a prefix of
// one's own, with a real server for the test.
func everyServer(t *testing.T) map[string]func(*testing.T, *store.Config) {
	redis, postgres := storetest.StartRedis(t), storetest.StartPostgres(t)
	of := func(kind string, use func(*testing.T, *store.Config)) func(*testing.T, *store.Config) {
		return func(t *testing.T, c *store.Config) {
			c.Type, c.Timeout = kind, 10*time.Second // a slow machine is no fault here
			c.KeyPrefix = "idem:" + string(dedup.NewToken()) + ":"
			use(t, c)
		}
	}
	return map[string]func(*testing.T, *store.Config){
		"file":  of("file", func(t *testing.T, c *store.Config) { c.File.Path = newFile(t) }),
		"redis": of("redis", func(_ *testing.T, c *store.Config) { c.Redis.URL = store.Secret(redis.URL()) }),
		"postgres": of("postgres", func(_ *testing.T, c *store.Config) {
			c.Postgres.URL, c.Postgres.MaxConns = store.Secret(postgres.URL()), 4
		}),
	}
}

// openAny opens a store with all that Open puts around it.
func openAny(t *testing.T, cfg store.Config) dedup.Store {
	t.Helper()
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
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

// Few bytes inflate to little, whoever wrote them; and what would be few is kept as it is.
func TestCompressionIsBounded(t *testing.T) {
	compress := func(c *store.Config) { c.CompressAbove = dedup.KiB }
	deflater, err := zstd.NewWriter(nil)
	must(t, err)
	frame := func(size int) []byte { return deflater.EncodeAll(make([]byte, size), nil) }
	var streamed bytes.Buffer // says nothing of its size
	w, err := zstd.NewWriter(&streamed)
	must(t, err)
	must(t, errOf(w.Write(make([]byte, 32<<20))))
	must(t, w.Close())
	for name, bomb := range map[string][]byte{
		"one frame": frame(64 << 20), "many frames": bytes.Repeat(frame(1<<20), 64), "a stream": streamed.Bytes(),
	} {
		req := request(time.Hour)
		_, err := planted(t, append([]byte("IDZ1"), bomb...), req.ID, compress).Claim(t.Context(), req)
		if !errors.Is(err, dedup.ErrUnreadable) {
			t.Errorf("%s, %d bytes: error %v", name, len(bomb), err)
		}
	}
	for _, size := range []int{1 << 20, 8 << 20, 32 << 20} {
		req, zeros := request(time.Hour), make([]byte, size)
		found, err := planted(t, sealed(t, req, zeros, compress), req.ID, compress).Claim(t.Context(), req)
		if err != nil || !bytes.Equal(found.Blob, zeros) {
			t.Errorf("%d zeros: %d back, error %v", size, len(found.Blob), err)
		}
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
