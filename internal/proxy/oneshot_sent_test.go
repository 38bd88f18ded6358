package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestGuardedNotSent(t *testing.T) {
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing.Close()
	silent := newRawUpstream(t, nil, nil) // accepts, and waits for a request in vain
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = nil
	defer secure.Close()
	up := newRawUpstream(t, nil, rawAnswer(rawOK))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name, url string
		change    func(*http.Request) *http.Request
	}{
		{name: "refused", url: "http://" + refusing.Addr().String()},
		{name: "refused h2c", url: "h2c://" + refusing.Addr().String()},
		{name: "no socket", url: "unix:///nowhere/to.sock"},
		{name: "no such host", url: "http://idemproxy.invalid:1"},
		{name: "untrusted", url: secure.URL},
		{name: "handshake that takes too long", url: "https://" + silent.Addr().String()},
		{name: "already cancelled", url: up.url(), change: func(r *http.Request) *http.Request { return r.WithContext(gone) }},
		{name: "header value", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Header["X"] = []string{"a\r\nB: c"}
			return r
		}},
		{name: "header name", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Header["X: a\r\nB"] = []string{"c"}
			return r
		}},
		{name: "NUL", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Header["X"] = []string{"\x00"}
			return r
		}},
		{name: "target", url: up.url(), change: func(r *http.Request) *http.Request {
			r.URL.Opaque = "/a HTTP/1.1\r\nB: c"
			return r
		}},
		{name: "host", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Host = "a\nb"
			return r
		}},
		{name: "method", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Method = "PO ST"
			return r
		}},
		{name: "trailer", url: up.url(), change: func(r *http.Request) *http.Request {
			r.Trailer = http.Header{"X": {"a\nb"}}
			return r
		}},
		{name: "short body", url: up.url(), change: func(r *http.Request) *http.Request {
			r.ContentLength++
			return r
		}},
		{name: "long body", url: up.url(), change: func(r *http.Request) *http.Request {
			r.ContentLength--
			return r
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := DefaultUpstreamConfig()
			cfg.URL, cfg.ConnectTimeout = test.url, 300*time.Millisecond
			u, err := newUpstream(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer u.close()
			req := outgoingRequest(t, u, "POST", "/", "body")
			if test.change != nil {
				req = test.change(req)
			}
			closed := &closeNoted{Reader: strings.NewReader("body")}
			req.Body = closed
			_, _, err = roundTrip(t, u.guarded, req)
			wantNotSent(t, err)
			rawEventually(t, "the body is closed", closed.closed.Load)
		})
	}
	if n := up.executed.Load(); n != 0 {
		t.Errorf("executed %d", n)
	}
}

type closeNoted struct {
	io.Reader
	closed atomic.Bool
}

func (c *closeNoted) Close() error { c.closed.Store(true); return nil }

// faultyConn fails writes after allow bytes.
type faultyConn struct {
	net.Conn
	allow atomic.Int64
}

func (c *faultyConn) Write(p []byte) (int, error) {
	n := min(c.allow.Load(), int64(len(p)))
	if n > 0 {
		c.Conn.Write(p[:n])
	}
	c.allow.Add(-n)
	if n < int64(len(p)) {
		return int(n), syscall.EPIPE
	}
	return int(n), nil
}

func TestOneShotCountsWrittenBytes(t *testing.T) {
	up := newRawUpstream(t, nil, rawAnswer(rawOK))
	u := upstreamFor(t, up.url())
	for _, test := range []struct {
		name    string
		allow   []int64 // by connection, after the first request on the first of them
		sent    bool
		notSent bool
	}{
		{"a used connection that takes nothing is replaced", []int64{0, 1 << 20}, true, false},
		{"once", []int64{0, 0, 1 << 20}, false, true},
		{"not after one byte", []int64{1, 1 << 20}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			up.executed.Store(0)
			var conns []*faultyConn
			shot := newOneShot(func(context.Context) (net.Conn, error) {
				c, err := net.Dial("tcp", up.Addr().String())
				f := &faultyConn{Conn: c}
				f.allow.Store(1 << 20)
				if len(conns) > 0 {
					f.allow.Store(test.allow[len(conns)])
				}
				conns = append(conns, f)
				return f, err
			}, time.Second, 1, time.Minute)
			defer shot.CloseIdleConnections()
			if _, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", "")); err != nil {
				t.Fatal(err)
			}
			conns[0].allow.Store(test.allow[0])
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", "").WithContext(ctx))
			switch {
			case test.sent && err != nil:
				t.Error(err)
			case test.notSent:
				wantNotSent(t, err)
			case !test.sent:
				wantUnknown(t, err)
			}
			if got, want := up.executed.Load(), map[bool]int32{true: 2, false: 1}[test.sent]; got != want {
				t.Errorf("executed %d, want %d", got, want)
			}
		})
	}
}

func TestOneShotStaleConnections(t *testing.T) {
	for name, spoil := range map[string]func(net.Conn){
		"FIN": func(c net.Conn) { c.(*net.TCPConn).CloseWrite() },
		"RST": func(c net.Conn) { rawReset(c); c.Close() },
		"unasked bytes": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := make(chan net.Conn, 1)
			up := newRawUpstream(t, nil, func(c net.Conn, _ int, _ *http.Request) bool {
				io.WriteString(c, rawOK)
				spoilt <- c
				return true
			})
			u := upstreamFor(t, up.url())
			shot := u.guarded.(*oneShot)
			for i := range int32(3) {
				status, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", ""))
				if err != nil || status != 201 {
					t.Fatal(status, err)
				}
				if n, d := up.executed.Load(), up.dials.Load(); n != i+1 || d != i+1 {
					t.Errorf("executed %d of %d, on %d connections", n, i+1, d)
				}
				spoil(<-spoilt)
				rawEventually(t, "the end is seen", func() bool {
					shot.pool.mu.Lock()
					defer shot.pool.mu.Unlock()
					return len(shot.pool.conns) == 1 && !shot.pool.conns[0].alive()
				})
			}
		})
	}
}

func TestOneShotIdleConnections(t *testing.T) {
	ended := make(chan struct{}, 8)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	up := newRawUpstream(t, endNoted{l, ended}, func(c net.Conn, _ int, _ *http.Request) bool {
		<-hold
		io.WriteString(c, rawOK)
		return true
	})
	u := upstreamFor(t, up.url())
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", up.Addr().String())
	}
	shot := newOneShot(dial, time.Second, 2, 30*time.Millisecond)
	done := make(chan error, 3)
	for range 3 {
		go func() {
			_, _, err := roundTrip(t, shot, outgoingRequest(t, u, "POST", "/", ""))
			done <- err
		}()
	}
	rawEventually(t, "three at once", func() bool { return up.executed.Load() == 3 })
	close(hold)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// One is too many to keep; the others grow old.
	for range 3 {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatal("an idle connection was not closed")
		}
	}
	shot.pool.mu.Lock()
	defer shot.pool.mu.Unlock()
	if len(shot.pool.conns) != 0 {
		t.Errorf("%d connections are still kept", len(shot.pool.conns))
	}
}

// endNoted says when a connection was closed by the other side.
type endNoted struct {
	net.Listener
	ended chan struct{}
}

func (l endNoted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return endNotedConn{c, l.ended}, err
}

type endNotedConn struct {
	net.Conn
	ended chan struct{}
}

func (c endNotedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.ended <- struct{}{}
	}
	return n, err
}
