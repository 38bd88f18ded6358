package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An authority signs the certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string // its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	template := certificate("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert, a.key = template, newPrivateKey(t)
	der := a.sign(template, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func certificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func newPrivateKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	write(a.t, file, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	return file
}

// issue writes a certificate and its key to files of this name, over what is there.
func (a *authority) issue(file, name string) (certFile, keyFile string) {
	a.t.Helper()
	key := newPrivateKey(a.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyFile = a.write(file+".key", "PRIVATE KEY", der)
	return a.write(file+".pem", "CERTIFICATE", a.sign(certificate(name), &key.PublicKey)), keyFile
}

func (a *authority) pair(file, name string) tls.Certificate {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.issue(file, name))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// startTLS is start for a proxy whose probes are plain and whose listener is not.
func (a *authority) startTLS(s setup, more string) *proxy {
	certFile, keyFile := a.issue("server", "first")
	s.server = fmt.Sprintf("tls: {cert_file: %q, key_file: %q%s}", certFile, keyFile, more)
	return start(a.t, s)
}

// secure is a client of HTTPS.
func secure(t *testing.T, config *tls.Config, h2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func securePost(t *testing.T, c *http.Client, p *proxy, key string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+p.addr+"/pay", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := c.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	return res, err
}

// With certificates the listener speaks HTTP/1.1 and HTTP/2 by ALPN, and no old TLS.
func TestFaithfulTLSListener(t *testing.T) {
	t.Parallel()
	a, up := newAuthority(t), newUpstream(t, created)
	p := a.startTLS(setup{store: memory(), upstream: up.url, routes: payments}, "")
	k := newKey()
	for i, h2 := range []bool{false, true} {
		res, err := securePost(t, secure(t, &tls.Config{RootCAs: a.pool}, h2), p, k)
		if err != nil {
			t.Fatal(err)
		}
		if (res.ProtoMajor == 2) != h2 || res.StatusCode != 201 || (res.Header.Get(replayHeader) == "true") != (i > 0) || res.TLS.Version != tls.VersionTLS13 {
			t.Errorf("over %s: %d, %v", res.Proto, res.StatusCode, res.Header)
		}
	}
	up.saw(t, 1)
	if got := up.last(t).header.Get("X-Forwarded-Proto"); got != "https" {
		t.Errorf("X-Forwarded-Proto %q", got)
	}
	for version, fine := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, err := a.shakesHands(p, &tls.Config{MinVersion: version, MaxVersion: version})
		if (err == nil) != fine {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

// shakesHands returns the name on the certificate that a proxy shows.
func (a *authority) shakesHands(p *proxy, config *tls.Config) (string, error) {
	config.RootCAs = a.pool
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", p.addr, config)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// Callers without a certificate of the right authority reach nothing.
func TestFaithfulTLSClientCertificates(t *testing.T) {
	t.Parallel()
	a, stranger, up := newAuthority(t), newAuthority(t), newUpstream(t, created)
	p := a.startTLS(setup{store: memory(), upstream: up.url, routes: payments}, fmt.Sprintf(", client_ca_file: %q", a.file))
	for name, certs := range map[string][]tls.Certificate{"none": nil, "a stranger's": {stranger.pair("client", "client")}} {
		for _, h2 := range []bool{false, true} {
			if res, err := securePost(t, secure(t, &tls.Config{RootCAs: a.pool, Certificates: certs}, h2), p, newKey()); err == nil {
				t.Errorf("with the certificate %s: %v", name, res)
			}
		}
	}
	up.saw(t, 0)
	for _, h2 := range []bool{false, true} {
		res, err := securePost(t, secure(t, &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.pair("client", "client")}}, h2), p, newKey())
		if err != nil || res.StatusCode != 201 || (res.ProtoMajor == 2) != h2 {
			t.Errorf("%v, %v", res, err)
		}
	}
	up.saw(t, 2)
}

// A renewed certificate is served without a restart, and half of a renewal does no harm.
func TestFaithfulTLSRenewal(t *testing.T) {
	t.Parallel()
	a, up := newAuthority(t), newUpstream(t, created)
	p := a.startTLS(setup{store: memory(), upstream: up.url, routes: payments}, "")
	shown := func() string {
		name, err := a.shakesHands(p, &tls.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := shown(); got != "first" {
		t.Fatalf("it shows %q", got)
	}
	time.Sleep(20 * time.Millisecond) // so that the files have another time
	write(t, filepath.Join(a.dir, "server.pem"), "-----BEGIN CERTIFICATE-----\nAAAA")
	time.Sleep(1100 * time.Millisecond)
	if got := shown(); got != "first" {
		t.Errorf("during the renewal it shows %q", got)
	}
	a.issue("server", "second")
	began := time.Now()
	eventually(t, "showing the renewed one", func() bool { return shown() == "second" })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// secureUpstream speaks HTTPS, and wants a certificate of this authority.
func secureUpstream(t *testing.T, a *authority, name string) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{addr: l.Addr().String(), answer: created}
	u.url = "https://" + u.addr
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	config := &tls.Config{Certificates: []tls.Certificate{a.pair("upstream", name)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool}
	go u.server.Serve(tls.NewListener(l, config))
	t.Cleanup(func() { u.server.Close() })
	return u
}

// An https upstream is verified, and shown our certificate. If either fails nothing was
// sent, and the key is free.
func TestFaithfulTLSUpstream(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		a, stranger := newAuthority(t), newAuthority(t)
		certFile, keyFile := a.issue("proxy", "proxy")
		badCert, badKey := stranger.issue("proxy", "proxy")
		up := secureUpstream(t, a, "upstream")
		tlsOf := func(ca, cert, key string) setup {
			more := ""
			if cert != "" {
				more = fmt.Sprintf(", cert_file: %q, key_file: %q", cert, key)
			}
			return setup{store: s, upstream: up.url, upstreams: fmt.Sprintf("tls: {ca_file: %q%s}", ca, more), routes: payments}
		}
		good := start(t, tlsOf(a.file, certFile, keyFile))
		good.twice(t, request{key: newKey(), body: "x"}, 201)
		good.send(t, request{target: "/other"}).fresh(t, 201)
		up.saw(t, 2)
		req := request{key: newKey(), body: "x"}
		for name, bad := range map[string]setup{
			"an upstream of another authority": tlsOf(stranger.file, certFile, keyFile),
			"a certificate of another":         tlsOf(a.file, badCert, badKey),
			"no certificate":                   tlsOf(a.file, "", ""),
		} {
			p := start(t, bad)
			if got := p.send(t, req); got.status != 502 || problemOf(got).Code != "upstream_unreachable" {
				t.Errorf("%s: want 502 upstream_unreachable; the answer:\n%s", name, got)
			}
			if got := p.send(t, request{target: "/other"}); got.status != 502 {
				t.Errorf("%s, unguarded:\n%s", name, got)
			}
		}
		up.saw(t, 2)
		if s.shared {
			good.send(t, req).fresh(t, 201)
			up.saw(t, 3)
		}
	})
}
