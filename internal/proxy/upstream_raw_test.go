package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawUpstream is a TCP service under the control of a test: serve gets each request,
// body included, with the number of it, and answers on the connection. It ends the
// connection by returning false.
type rawUpstream struct {
	net.Listener
	executed atomic.Int32
	dials    atomic.Int32

	mu   sync.Mutex
	seen [][]byte // the requests' bytes
}

type rawServe func(c net.Conn, n int, req *http.Request) (keep bool)

func newRawUpstream(t *testing.T, l net.Listener, serve rawServe) *rawUpstream {
	t.Helper()
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	u := &rawUpstream{Listener: l}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.dials.Add(1)
			conns.Store(c, nil)
			wg.Go(func() {
				defer c.Close()
				u.serveConn(c, serve)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return u
}

func (u *rawUpstream) serveConn(c net.Conn, serve rawServe) {
	var seen bytes.Buffer
	br := bufio.NewReader(io.TeeReader(c, &seen))
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if req.Header.Get("X-Test-Leave-Body") == "" {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
		}
		n := int(u.executed.Add(1))
		u.mu.Lock()
		u.seen = append(u.seen, bytes.Clone(seen.Bytes()))
		u.mu.Unlock()
		seen.Reset()
		if !serve(c, n, req) {
			return
		}
	}
}

func (u *rawUpstream) url() string { return "http://" + u.Addr().String() }

// rawAnswer answers every request the same.
func rawAnswer(answer string) rawServe {
	return func(c net.Conn, _ int, _ *http.Request) bool {
		io.WriteString(c, answer)
		return true
	}
}

const rawOK = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"

func upstreamFor(t *testing.T, url string) *upstream {
	t.Helper()
	cfg := DefaultUpstreamConfig()
	cfg.URL = url
	u, err := newUpstream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	return u
}

// outgoingRequest is a request as ReverseProxy would hand it to a transport.
func outgoingRequest(t *testing.T, u *upstream, method, target, body string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, u.base.String()+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	req.Header["User-Agent"] = []string{""}
	return req
}

func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) (int, string, error) {
	t.Helper()
	res, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// rawReset makes closing c send RST instead of FIN.
func rawReset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

// wantUnknown fails the test unless err leaves open whether the request was executed.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, errNotSent) {
		t.Errorf("got error %v, want one that doesn't say that the request was not sent", err)
	}
}

func wantNotSent(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errNotSent) {
		t.Errorf("got error %v, want errNotSent", err)
	}
}

// rawEventually waits for what another goroutine is about to make true.
func rawEventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// rawRunning counts the goroutines with one of the functions in their stack.
func rawRunning(functions ...string) int {
	buf := make([]byte, 4<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, f := range functions {
			if strings.Contains(stack, "internal/proxy."+f+"(") {
				n++
				break
			}
		}
	}
	return n
}
