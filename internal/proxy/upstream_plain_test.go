package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"
)

// plainProxy is a bare reverse proxy over the plain way to url.
func plainProxy(t *testing.T, url string) *httptest.Server {
	u := upstreamFor(t, url)
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(pr *httputil.ProxyRequest) { pr.Out.URL.Scheme, pr.Out.URL.Host = u.base.Scheme, u.base.Host },
		Transport: u.plain,
	})
	t.Cleanup(s.Close)
	return s
}

func TestPlainUpgrades(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "k" {
			t.Error("the key is missing")
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, rw)
	}))
	defer up.Close()
	s := plainProxy(t, up.URL)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nIdempotency-Key: k\r\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	io.WriteString(c, "hello\n")
	if line, err := br.ReadString('\n'); line != "hello\n" {
		t.Errorf("echoed %q, %v", line, err)
	}
}

// A caller that asks before it sends a large body is told what the upstream says.
func TestPlainExpectContinue(t *testing.T) {
	up := newRawUpstream(t, nil, func(c net.Conn, _ int, req *http.Request) bool {
		if req.Header.Get("Expect") != "100-continue" {
			t.Errorf("headers %v", req.Header)
		}
		io.WriteString(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	})
	s := plainProxy(t, up.url())
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\nX-Test-Leave-Body: 1\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusExpectationFailed {
		t.Fatal(res, err)
	}
}

func TestPlainStreams(t *testing.T) {
	next := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("compression was asked for")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	defer up.Close()
	s := plainProxy(t, up.URL)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader("x"))
	req.Header.Set("Idempotency-Key", "k")
	res, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	br := bufio.NewReader(res.Body)
	for i := range 3 {
		if line, err := br.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("got %q, %v", line, err)
		}
		br.ReadString('\n')
		next <- struct{}{}
	}
}
