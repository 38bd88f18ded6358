package store_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A password in a file may change while the store is open: the next connection uses it.
func TestRedisReadsThePasswordForEveryConnection(t *testing.T) {
	server := storetest.StartRedis(t)
	shim := storetest.StartShim(t, server.Addr())
	file := writeFile(t, filepath.Join(t.TempDir(), "password"), "first\n")
	must(t, server.Client().Ping(t.Context()).Err()) // connects before there is a password
	must(t, server.Client().ConfigSet(t.Context(), "requirepass", "first").Err())
	s := openRedis(t, shim.Addr(), func(c *store.Config) { c.Redis.PasswordFile, c.Redis.PoolSize = file, 1 })
	mustClaim(t, s, request(time.Hour), dedup.StateAcquired)

	must(t, server.Client().ConfigSet(t.Context(), "requirepass", "second").Err())
	shim.Cut()
	_, err := s.Claim(t.Context(), request(time.Hour))
	if err == nil || strings.Contains(err.Error(), "first") {
		t.Fatalf("Claim with the old password: error %v", err)
	}
	writeFile(t, file, "second\n")
	mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	must(t, os.Remove(file))
	shim.Cut()
	eventually(t, "refusal for want of the file", func() error {
		_, err := s.Claim(t.Context(), request(time.Hour))
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			return err
		}
		wantRefused(t, err, dedup.ErrNotApplied)
		return nil
	})
}

func TestRedisOverAUnixSocketFromAURLFile(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := storetest.StartRedis(t, "--unixsocket", socket)
	file := writeFile(t, filepath.Join(t.TempDir(), "url"), "unix://"+socket+"?db=3\n")
	s := openRedis(t, "", func(c *store.Config) { c.Redis.URL, c.Redis.URLFile = "", file })
	mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	if info := server.Client().Info(t.Context(), "keyspace").Val(); !contains(info, "db3:keys=1") {
		t.Fatalf("the claim is not in database 3: %s", info)
	}
}

// Managed servers forbid what asks about the server; the store needs none of it.
func TestRedisWithoutConfigAndInfo(t *testing.T) {
	var args []string
	for _, command := range []string{"config", "info", "client", "command", "hello", "script", "wait"} {
		args = append(args, "--rename-command", command, "")
	}
	server := storetest.StartRedis(t, args...)
	s := openRedis(t, server.Addr(), nil)
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, []byte("answer"))
	mustClaim(t, s, req, dedup.StateCompleted)
	must(t, s.Ping(t.Context()))
	if policy, err := s.EvictionPolicy(t.Context()); err == nil {
		t.Errorf("the eviction policy is %q, and nobody may know it", policy)
	}
}

func TestRedisOverTLS(t *testing.T) {
	dir := t.TempDir()
	certificates(t, dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	tlsPort := busPort(t)
	storetest.StartRedis(t, "--tls-port", tlsPort, "--tls-cert-file", in("cert.pem"),
		"--tls-key-file", in("key.pem"), "--tls-ca-cert-file", in("ca.pem"))
	for name, c := range map[string]struct {
		scheme string
		tls    store.TLSConfig
		works  bool
	}{
		"with a client certificate": {"rediss", store.TLSConfig{CAFile: in("ca.pem"), CertFile: in("cert.pem"), KeyFile: in("key.pem")}, true},
		"turned on by a field":      {"redis", store.TLSConfig{CAFile: in("ca.pem"), CertFile: in("cert.pem"), KeyFile: in("key.pem")}, true},
		"unverified":                {"rediss", store.TLSConfig{InsecureSkipVerify: true, CertFile: in("cert.pem"), KeyFile: in("key.pem")}, true},
		"without certificate":       {"rediss", store.TLSConfig{CAFile: in("ca.pem")}, false},
		"unknown authority":         {"rediss", store.TLSConfig{CertFile: in("cert.pem"), KeyFile: in("key.pem")}, false},
		"other name":                {"rediss", store.TLSConfig{CAFile: in("ca.pem"), CertFile: in("cert.pem"), KeyFile: in("key.pem"), ServerName: "elsewhere"}, false},
		"no TLS":                    {"redis", store.TLSConfig{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := openRedis(t, "", func(cfg *store.Config) {
				cfg.Redis.URL = store.Secret(c.scheme + "://127.0.0.1:" + tlsPort)
				cfg.Redis.TLS = c.tls
			})
			_, err := s.Claim(t.Context(), request(time.Hour))
			if (err == nil) != c.works {
				t.Fatalf("Claim: error %v, want it to work: %v", err, c.works)
			}
			if name == "unknown authority" || name == "other name" {
				wantRefused(t, err, dedup.ErrNotApplied)
			}
		})
	}
}

// certificates writes ca.pem, cert.pem and key.pem for 127.0.0.1.
func certificates(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "idemproxy test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeFile(t, filepath.Join(dir, "ca.pem"), cert)
	writeFile(t, filepath.Join(dir, "cert.pem"), cert)
	writeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))
}

// The rights that docs/stores.md asks for are enough for everything.
func TestRedisUserOfItsOwn(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "stores.md"))
	must(t, err)
	_, after, found := strings.Cut(string(text), "\nACL SETUSER ")
	line, _, whole := strings.Cut(after, "\n")
	if !found || !whole {
		t.Fatal("docs/stores.md has no line ACL SETUSER")
	}
	server := storetest.StartRedis(t)
	acl := []any{"acl", "setuser"}
	for _, word := range strings.Fields(line) {
		acl = append(acl, word)
	}
	must(t, server.Client().Do(t.Context(), acl...).Err())
	as := func(c *store.Config) {
		c.KeyPrefix, c.Redis.Username, c.Redis.Password = "idem:", "idemproxy", "PASSWORD"
	}
	s, peer := openRedis(t, server.Addr(), as), openRedis(t, server.Addr(), as)
	peer.WarnOfWatch(func(err error) { t.Errorf("warning: %v", err) })

	req, wake := waited(t, s, peer)
	must(t, errOf(s.Renew(t.Context(), req.ID, req.Token, time.Hour)))
	mustEnroll(t, s, "scope", req)
	if enroll(t, s, "scope", request(time.Hour)) == 0 {
		t.Error("a scope of one has room for two")
	}
	mustComplete(t, s, req, []byte("answer"))
	heard(t, wake, "the claim was completed")
	must(t, s.Dismiss(t.Context(), "scope", req.ID, req.Token))
	released := request(time.Hour)
	mustClaim(t, s, released, dedup.StateAcquired)
	must(t, errOf(s.Release(t.Context(), released.ID, released.Token)))
	must(t, s.Ping(t.Context()))
	page, err := s.List(t.Context(), dedup.ListRequest{Limit: 100, MaxBlob: 100})
	must(t, err)
	for page.Next != "" && len(page.Entries) == 0 {
		page, err = s.List(t.Context(), dedup.ListRequest{Cursor: page.Next, Limit: 100, MaxBlob: 100})
		must(t, err)
	}
	if len(page.Entries) != 1 {
		t.Errorf("%d entries are listed, want 1", len(page.Entries))
	}
	must(t, errOf(s.Free(t.Context(), req.ID, req.Token, dedup.StateCompleted)))
	_, at, err := s.Told(t.Context(), "")
	must(t, err)
	must(t, s.Tell(t.Context(), []byte("it was freed")))
	if told, _, err := s.Told(t.Context(), at); err != nil || len(told) != 1 {
		t.Errorf("the trail has %d entries, error %v", len(told), err)
	}
	if denied := server.Client().Do(t.Context(), "acl", "log").Val(); len(denied.([]any)) > 0 {
		t.Errorf("refused: %v", denied)
	}
}
