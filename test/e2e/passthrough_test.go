package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests are about requests that nothing guards: they pass unchanged.

func TestUnguardedRequestsPassUnchanged(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(w http.ResponseWriter, r *received) {
		w.Header().Set(replayHeader, "of the upstream")
		w.Header().Add("Set-Cookie", "a=1, b")
		w.Header().Add("Set-Cookie", "c=2")
		w.WriteHeader(203)
		fmt.Fprintf(w, "%d", r.n)
	})
	p := start(t, setup{store: memory(), upstream: up.url, routes: `
  - {name: payments, path: /api/payments, identity_header: X-Account, max_request_body: 10}
  - {name: off, path: /off, mode: "off"}
  - {name: elsewhere, path: /elsewhere, host: other.example}`})
	k := newKey()
	doubtful := []string{"Idempotency-Key:", "Idempotency_Key: x", "X-Account: a b"}
	for i, req := range []request{
		{method: "GET", target: "/api/payments", key: k, header: doubtful},
		{method: "HEAD", target: "/api/payments", key: k},
		{method: "OPTIONS", target: "/api/payments", key: k},
		{target: "/api/refunds", key: k, header: doubtful, body: string(make([]byte, 100_000))},
		{target: "/api/refunds", key: k},
		{target: "/api/payments/7", key: k},
		{target: "/api", key: k},
		{target: "/API/PAYMENTS", key: k},
		{target: "/off", key: k},
		{target: "/elsewhere", key: k},
		{method: "DELETE", target: "/a//b/%2F/c/../d;x=1;y=%41?z=%zz", key: k},
		{method: "PATCH", target: "/q?x=1;y=2&&z=%zz&a=%2F//&=&b=" + `"`, key: k},
		{method: "GET", target: "/?", key: k},
		{method: "GET", target: "//evil.example/path", key: k},
		{method: "GET", target: "/caf\xc3\xa9|^{}", key: k},
		{method: "PURGE", target: "/api/payments", key: k},
	} {
		t.Run(fmt.Sprint(i+1, " ", req.method, " ", req.target), func(t *testing.T) {
			res := p.send(t, req)
			if res.status != 203 || res.get(replayHeader) != "of the upstream" || len(res.values("Set-Cookie")) != 2 {
				t.Errorf("the answer came as\n%s", res)
			}
			up.saw(t, i+1)
			got := up.last(t)
			if got.target != req.target || string(got.body) != req.body {
				t.Errorf("the upstream got %q and %d bytes", got.target, len(got.body))
			}
			if keys := got.header.Values("Idempotency-Key"); keys[0] != k {
				t.Errorf("the upstream got the keys %q", keys)
			}
		})
	}
}

func TestWithoutAKeyAndOptional(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, missing_header: pass-through, max_request_body: 10}`})
		req := request{body: "longer than ten bytes"}
		p.send(t, req).fresh(t, 201)
		p.send(t, req).fresh(t, 201)
		up.saw(t, 2)
		req = request{key: newKey(), body: "short"}
		p.twice(t, req, 201)
		up.saw(t, 3)
	})
}

// Neither request nor answer is held back.
func TestUnguardedRequestsStream(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		g.pass()
		_, _ = io.WriteString(w, "data: two\n\n")
	})
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	c := p.dial(t)
	req := request{method: "GET", target: "/events"}
	if _, err := c.Write(req.bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := c.wire.head(req)
	if err != nil {
		t.Fatal(err)
	}
	var first [16]byte // the chunk's size line and the first event
	if _, err := io.ReadFull(c.wire.r, first[:]); err != nil {
		t.Fatalf("the first event is held back: %v", err)
	}
	if res.status != 200 || string(first[:]) != "b\r\ndata: one\n\n\r\n" {
		t.Errorf("got %q", first)
	}
	g.open()
}

func TestUnguardedRequestsUpgrade(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	c := p.dial(t)
	req := request{method: "GET", target: "/socket", header: []string{"Connection: Upgrade", "Upgrade: echo"}}
	if _, err := c.Write(req.bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := c.wire.head(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	var echo [5]byte
	if _, err := io.ReadFull(c.wire.r, echo[:]); err != nil || res.status != 101 || string(echo[:]) != "hello" {
		t.Errorf("status %d, echo %q, %v", res.status, echo, err)
	}
}

func TestUnguardedRequestsToADeadUpstream(t *testing.T) {
	t.Parallel()
	port := freePort()
	p := start(t, setup{store: memory(), upstream: "http://" + local(port), routes: payments})
	p.send(t, request{method: "GET", target: "/x"}).refused(t, 502, "upstream_unreachable")
	up := upstreamOn(t, port, created)
	p.send(t, request{method: "GET", target: "/x"}).fresh(t, 201)
	up.saw(t, 1)
}

// A slow upload and a slow answer of an unguarded request have no time limit of ours.
// Many at once, because of a race in net/http: an answer that begins in the moment in
// which the last of the request is passed on may end the connection to the upstream.
func TestUnguardedRequestsMayBeSlow(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(w http.ResponseWriter, r *received) {
		_, _ = w.Write(r.body)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(400 * time.Millisecond)
		_, _ = io.WriteString(w, "end")
	})
	p := start(t, setup{store: memory(), upstream: up.url, upstreams: "response_timeout: 100ms", server: "body_timeout: 100ms", routes: payments})
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if body, err := p.upload("01234", "56789"); err != nil || body != "0123456789end" {
				t.Errorf("the answer came as %q, %v", body, err)
			}
		})
	}
	all.Wait()
	up.saw(t, 200)
}

// upload sends an unguarded request whose body comes in parts, with pauses.
func (p *proxy) upload(parts ...string) (string, error) {
	c, err := dial(p.addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	length := len(strings.Join(parts, ""))
	head := request{target: "/upload", unframed: true, header: []string{"Content-Length: " + itoa(length)}}
	for _, part := range append([]string{string(head.bytes())}, parts...) {
		if _, err := io.WriteString(c, part); err != nil {
			return "", err
		}
		time.Sleep(150 * time.Millisecond)
	}
	res, err := c.wire.head(head)
	if err != nil {
		return "", err
	}
	err = c.wire.rest(res)
	return string(res.body), err
}
