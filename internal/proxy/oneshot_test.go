package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

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
		{
			name: "NoBody", method: "PUT", change: func(r *http.Request) { r.Body = http.NoBody },
			want: "PUT /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n",
		},
		{
			name: "empty body without a length", method: "POST", change: func(r *http.Request) { r.Body = emptyBody{} },
			want: "POST /p?x=1 HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n",
		},
		{
			name: "unparsable target", method: "POST", opaque: `//a\b/../?q=1;r=%zz`,
			want: "POST //a\\b/../?q=1;r=%zz HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n",
		},
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
