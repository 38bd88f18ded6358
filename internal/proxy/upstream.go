package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// errNotSent marks the errors of a guarded round trip that prove that the upstream can't
// have acted on the request: no connection, or not one byte of it written, or (HTTP/2)
// the upstream's own word that it did not process it. Every other error leaves open
// whether the request was executed. Test for it before testing for a timeout: a dial
// that took too long is both.
var errNotSent = errors.New("request not sent")

func notSent(err error) error {
	return fmt.Errorf("%w: %w", errNotSent, err)
}

const (
	// upstreamIdle is how long an HTTP/1.1 connection waits for its next request. A request
	// written at the moment in which the upstream closes an idle connection has an unknown
	// outcome, so we close first: gunicorn waits 2 s by default; Node, uvicorn and Apache
	// 5 s; nginx 75 s. A dial every 1.5 s costs nothing that could be measured.
	upstreamIdle = 1500 * time.Millisecond
	// upstreamIdleH2 may be longer: an HTTP/2 server says GOAWAY before it closes.
	upstreamIdleH2 = 90 * time.Second
	// maxAnswerHead bounds the heads of one answer, informational ones included.
	maxAnswerHead = 1 << 20
)

// upstream is the way to the service behind the proxy. It knows connections, protocols
// and whether a request was sent; it decides nothing and never sends a request twice.
type upstream struct {
	// base holds the scheme (http or https) and the host that outgoing URLs must carry.
	base *url.URL
	// guarded sends a request with a buffered body at most once. Its errors wrap
	// errNotSent where that is proven. It upgrades nothing.
	guarded http.RoundTripper
	// plain sends everything else, streams and upgrades included. It never repeats a
	// request that has an idempotency key or whose method is unsafe.
	plain http.RoundTripper

	idle []interface{ CloseIdleConnections() }
}

// newUpstream makes the upstream of cfg. It does not connect.
func newUpstream(cfg UpstreamConfig) (*upstream, error) {
	config, err := clientTLS(cfg.TLS)
	if err != nil {
		return nil, err
	}
	return newUpstreamTLS(cfg, config)
}

// newUpstreamTLS is newUpstream with the certificates that https uses. It copies config.
func newUpstreamTLS(cfg UpstreamConfig, config *tls.Config) (*upstream, error) {
	target, err := cfg.target()
	if err != nil {
		return nil, fmt.Errorf("upstream url: %w", err)
	}
	config = config.Clone()
	if config.ClientSessionCache == nil {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	dial := upstreamDialer(target, cfg.ConnectTimeout)
	u := &upstream{base: &url.URL{Scheme: target.Scheme, Host: target.Host}}
	switch target.Scheme {
	case "h2c":
		u.base.Scheme = "http"
		u.guarded, u.plain = u.h2(cfg, dial, config)
	case "https":
		// gRPC needs HTTP/2; all else gets HTTP/1.1, which upgrades and whose sent bytes
		// can be counted. The request decides, not ALPN.
		h1, h1plain := u.h1(cfg, dial, config)
		h2, h2plain := u.h2(cfg, dial, config)
		u.guarded, u.plain = grpcSplit{h1, h2}, grpcSplit{h1plain, h2plain}
	case "unix":
		u.base = &url.URL{Scheme: "http", Host: "localhost"}
		u.guarded, u.plain = u.h1(cfg, dial, nil)
	default:
		u.guarded, u.plain = u.h1(cfg, dial, nil)
	}
	return u, nil
}

// close closes the idle connections. Requests under way end undisturbed.
func (u *upstream) close() {
	for _, t := range u.idle {
		t.CloseIdleConnections()
	}
}

func (u *upstream) h1(cfg UpstreamConfig, dial dialFunc, config *tls.Config) (guarded, plain http.RoundTripper) {
	shot := newOneShot(dial, cfg.ConnectTimeout, cfg.MaxIdleConns, upstreamIdle)
	if config != nil {
		shot.tls = config.Clone()
		shot.tls.NextProtos = []string{"http/1.1"}
		if shot.tls.ServerName == "" {
			shot.tls.ServerName = u.base.Hostname()
		}
	}
	t := upstreamTransport(cfg, dial, config)
	t.Protocols.SetHTTP1(true)
	t.IdleConnTimeout = upstreamIdle
	u.idle = append(u.idle, shot, t)
	return shot, onceH1{t}
}

func (u *upstream) h2(cfg UpstreamConfig, dial dialFunc, config *tls.Config) (guarded, plain http.RoundTripper) {
	t := upstreamTransport(cfg, dial, config)
	t.Protocols.SetHTTP2(u.base.Scheme == "https")
	t.Protocols.SetUnencryptedHTTP2(u.base.Scheme == "http")
	t.IdleConnTimeout = upstreamIdleH2
	// A peer that vanished without a word is noticed by a ping.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	u.idle = append(u.idle, t)
	return guardedH2{onceH2{t}}, onceH2{t}
}

// upstreamTransport is what the transports have in common; the caller adds one protocol.
func upstreamTransport(cfg UpstreamConfig, dial dialFunc, config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a sidecar's upstream is where the configuration says
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConns:           0, // no bound but the next
		MaxIdleConnsPerHost:    cfg.MaxIdleConns,
		MaxResponseHeaderBytes: maxAnswerHead,
		ExpectContinueTimeout:  time.Second,
		Protocols:              new(http.Protocols),
	}
}

type dialFunc func(context.Context) (net.Conn, error)

func upstreamDialer(target *url.URL, timeout time.Duration) dialFunc {
	network, address := "tcp", target.Host
	switch {
	case target.Scheme == "unix":
		network, address = "unix", target.Path
	case target.Port() == "" && target.Scheme == "https":
		address = net.JoinHostPort(target.Hostname(), "443")
	case target.Port() == "":
		address = net.JoinHostPort(target.Hostname(), "80")
	}
	d := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}
}
