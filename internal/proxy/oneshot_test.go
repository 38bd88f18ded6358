package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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
	req, err := http.NewRequestWithContext(t.Context(), method, u.base.String()+target, nil)
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

func TestOneShotExactBytes(t *testing.T) {
	up := newRawUpstream(t, nil, rawAnswer(rawOK))
	u := upstreamFor(t, up.url())
	host := u.base.Host
	for _, test := range []struct {
		name, method, body, opaque string
		change                     func(*http.Request)
		want                       string
	}{
		{name: "empty POST", method: "POST", want: "POST /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n"},
		{name: "empty DELETE", method: "DELETE", want: "DELETE /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n"},
		{name: "GET", method: "GET", want: "GET /p?x=1 HTTP/1.1\r\nHost: H\r\n\r\n"},
		{name: "body", method: "POST", body: "hello", want: "POST /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\n\r\nhello"},
		{name: "NoBody", method: "PUT", change: func(r *http.Request) { r.Body = http.NoBody },
			want: "PUT /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n"},
		{name: "empty body without a length", method: "POST", change: func(r *http.Request) { r.Body = emptyBody{} },
			want: "POST /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n"},
		{name: "unparsable target", method: "POST", opaque: `//a\b/../?q=1;r=%zz`,
			want: "POST //a\\b/../?q=1;r=%zz HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n"},
		{name: "headers", method: "POST", change: func(r *http.Request) {
			r.Host = "caller.example"
			r.Header = http.Header{
				"Idempotency-Key": {"k"}, "B": {"2", "1"}, "A": {""}, "User-Agent": {"x"}, "Nothing": {},
				"Content-Length": {"99"}, "Transfer-Encoding": {"chunked"}, "Host": {"evil"},
			}
		}, want: "POST /p?x=1 HTTP/1.1\r\nHost: caller.example\r\nContent-Length: 0\r\nA: \r\nB: 2\r\nB: 1\r\nIdempotency-Key: k\r\nUser-Agent: x\r\n\r\n"},
		{name: "trailers", method: "POST", body: "hello", change: func(r *http.Request) {
			r.Trailer = http.Header{"X-Sum": {"1"}, "A-Sum": {"2"}}
		}, want: "POST /p?x=1 HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\nTrailer: A-Sum,X-Sum\r\n\r\n5\r\nhello\r\n0\r\nA-Sum: 2\r\nX-Sum: 1\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := outgoingRequest(t, u, test.method, "/p?x=1", test.body)
			if test.opaque != "" {
				req.URL.Opaque, req.URL.RawQuery = test.opaque, ""
			}
			if test.change != nil {
				test.change(req)
			}
			status, body, err := roundTrip(t, u.guarded, req)
			if err != nil || status != 201 || body != "ok" {
				t.Fatalf("got %d %q, %v", status, body, err)
			}
			up.mu.Lock()
			defer up.mu.Unlock()
			got := string(up.seen[len(up.seen)-1])
			if want := strings.ReplaceAll(test.want, "H\r\n", host+"\r\n"); got != want {
				t.Errorf("sent %q\nwant %q", got, want)
			}
		})
	}
	if n := up.dials.Load(); n != 1 {
		t.Errorf("dialled %d times for requests one after the other", n)
	}
}

func TestOneShotUnixAndTLS(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	up := newRawUpstream(t, l, rawAnswer(rawOK))
	u := upstreamFor(t, "unix://"+l.Addr().String())
	for range 3 {
		if status, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x")); err != nil || status != 201 {
			t.Fatal(status, err)
		}
	}
	if up.dials.Load() != 1 {
		t.Errorf("dialled %d times", up.dials.Load())
	}

	var dials atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			dials.Add(1)
		}
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	cfg := DefaultUpstreamConfig()
	cfg.URL = s.URL
	u, err = newUpstreamTLS(cfg, s.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for range 3 {
		for _, rt := range []http.RoundTripper{u.guarded, u.plain} {
			if _, body, err := roundTrip(t, rt, outgoingRequest(t, u, "POST", "/", "x")); err != nil || body != "HTTP/1.1" {
				t.Fatal(body, err)
			}
			req := outgoingRequest(t, u, "POST", "/", "x")
			req.Header.Set("Content-Type", "application/grpc+proto")
			if _, body, err := roundTrip(t, rt, req); err != nil || body != "HTTP/2.0" {
				t.Fatal(body, err)
			}
		}
	}
	if n := dials.Load(); n != 3 {
		t.Errorf("dialled %d times, want one for oneShot, one for HTTP/1.1 and one for HTTP/2", n)
	}
}
