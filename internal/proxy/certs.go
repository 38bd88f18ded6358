package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// recheck is how often files of certificates are looked at for a renewal, at most, and
// only when a handshake asks.
const recheck = time.Second

// A renewed value is made of files, and made anew when one of them has changed. While the
// new files are not right (a half of a renewal may be there already) the old value stays.
type renewed[T any] struct {
	files []string
	load  func() (T, error)

	mu      sync.Mutex
	value   T
	stamps  []time.Time
	checked time.Time
}

// newRenewed loads the value for the first time.
func newRenewed[T any](load func() (T, error), files ...string) (*renewed[T], error) {
	r := &renewed[T]{files: files, load: load, checked: time.Now()}
	r.stamps = r.modified()
	var err error
	r.value, err = load()
	return r, err
}

// get returns the value of the files as they are, or as they last were right.
func (r *renewed[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) < recheck {
		return r.value
	}
	r.checked = time.Now()
	stamps := r.modified()
	for i := range stamps {
		if !stamps[i].Equal(r.stamps[i]) {
			if value, err := r.load(); err == nil {
				r.value, r.stamps = value, stamps
			}
			break
		}
	}
	return r.value
}

func (r *renewed[T]) modified() []time.Time {
	stamps := make([]time.Time, len(r.files))
	for i, name := range r.files {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = info.ModTime()
		}
	}
	return stamps
}

func renewedPair(certFile, keyFile string) (*renewed[*tls.Certificate], error) {
	return newRenewed(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("load certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}, certFile, keyFile)
}

func loadPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load certificate authorities: %s has no certificate in PEM", file)
	}
	return pool, nil
}

// serverTLS returns the TLS of the listener, nil for plain HTTP.
func serverTLS(c ServerTLS) (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil
	}
	pair, err := renewedPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get(), nil },
	}
	if c.ClientCAFile == "" {
		return config, nil
	}
	pool, err := newRenewed(func() (*x509.CertPool, error) { return loadPool(c.ClientCAFile) }, c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = pool.get()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.ClientCAs, now.GetConfigForClient = pool.get(), nil
		return now, nil
	}
	return config, nil
}

// clientTLS returns the TLS of an https upstream.
func clientTLS(c UpstreamTLS) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.InsecureSkipVerify} //nolint:gosec // the operator's own wish, off by default
	var err error
	if c.CAFile != "" {
		if config.RootCAs, err = loadPool(c.CAFile); err != nil {
			return nil, fmt.Errorf("upstream.tls: %w", err)
		}
	}
	if c.CertFile == "" {
		return config, nil
	}
	pair, err := renewedPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("upstream.tls: %w", err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert := pair.get(); cert != nil {
			return cert, nil
		}
		return nil, errors.New("no client certificate")
	}
	return config, nil
}
