package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// corkedConn sends what is written when it is closed or uncorked, in one piece.
type corkedConn struct {
	net.Conn
	corked bool
	buffer bytes.Buffer
}

func (c *corkedConn) Write(p []byte) (int, error) {
	if c.corked {
		return c.buffer.Write(p)
	}
	return c.Conn.Write(p)
}

func (c *corkedConn) uncork() {
	c.corked = false
	c.SetWriteDeadline(time.Time{}) // tls lets it pass after its farewell
	c.Conn.Write(c.buffer.Bytes())
	c.buffer.Reset()
}

// TLS has ends and buffers of its own: what the socket says is not the whole truth.
func TestOneShotTLSEnds(t *testing.T) {
	const untilEnd = "HTTP/1.1 200 OK\r\n\r\nok"
	for _, test := range []struct {
		name  string
		serve func(tcp *corkedConn, secure *tls.Conn)
		cut   bool
		kept  bool
	}{
		{"kept", func(_ *corkedConn, s *tls.Conn) { io.WriteString(s, rawOK) }, false, true},
		{"the end with the answer", func(c *corkedConn, s *tls.Conn) {
			c.corked = true
			io.WriteString(s, rawOK)
			s.CloseWrite()
			c.uncork()
		}, false, false},
		{"another answer with the answer", func(c *corkedConn, s *tls.Conn) {
			c.corked = true
			io.WriteString(s, rawOK)
			io.WriteString(s, rawOK)
			c.uncork()
		}, false, false},
		{"until an announced end", func(c *corkedConn, s *tls.Conn) {
			io.WriteString(s, untilEnd)
			s.Close()
		}, false, false},
		{"until an end that was not announced", func(c *corkedConn, s *tls.Conn) {
			io.WriteString(s, untilEnd)
			c.Close()
		}, true, false},
		{"a chunked answer before an end that was not announced", func(c *corkedConn, s *tls.Conn) {
			io.WriteString(s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
			c.Close()
		}, false, false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(test.name+" "+tls.VersionName(version), func(t *testing.T) {
				var dials atomic.Int32
				u := tlsUpstream(t, version, func(c *corkedConn, s *tls.Conn, first bool) {
					if dials.Add(1); first {
						test.serve(c, s)
						return
					}
					io.WriteString(s, rawOK)
				})
				_, body, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x"))
				if (err != nil) != test.cut || body != "ok" {
					t.Errorf("got %q, %v", body, err)
				}
				shot := u.guarded.(grpcSplit).h1.(*oneShot)
				rawEventually(t, "the connection is kept, or its end is seen", func() bool {
					c := shot.pool.get()
					if c != nil {
						shot.pool.put(c)
					}
					return (c != nil) == test.kept
				})
				if status, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x")); err != nil || status != 201 {
					t.Error("the next request:", status, err)
				}
			})
		}
	}
}

// tlsUpstream serves each request by serve, which knows whether it is the first of all.
func tlsUpstream(t *testing.T, version uint16, serve func(c *corkedConn, s *tls.Conn, first bool)) *upstream {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	config := certified.TLS.Clone()
	config.MinVersion, config.MaxVersion = version, version
	trust := certified.Client().Transport.(*http.Transport).TLSClientConfig
	certified.Close()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var requests atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				corked := &corkedConn{Conn: c}
				secure := tls.Server(corked, config)
				br := bufio.NewReader(secure)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					serve(corked, secure, requests.Add(1) == 1)
				}
			}()
		}
	}()
	cfg := DefaultUpstreamConfig()
	cfg.URL = "https://" + l.Addr().String()
	u, err := newUpstreamTLS(cfg, trust)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	return u
}

// Bytes of a TLS handshake are not bytes of a request.
func TestOneShotTLSNotSent(t *testing.T) {
	u := tlsUpstream(t, tls.VersionTLS13, func(_ *corkedConn, s *tls.Conn, _ bool) { io.WriteString(s, rawOK) })
	shot := u.guarded.(grpcSplit).h1.(*oneShot)
	if _, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", "x")); err != nil {
		t.Fatal(err)
	}
	c := shot.pool.get()
	if c == nil || c.raw.written.Load() == 0 {
		t.Fatal("no connection, or one that doesn't count")
	}
	// A connection that can't be written any more, and doesn't show it.
	c.raw.Conn.(*net.TCPConn).CloseWrite()
	shot.pool.put(c)
	_, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", "x"))
	if err != nil && !errors.Is(err, errNotSent) {
		t.Errorf("nothing was written, but %v", err)
	}
}
