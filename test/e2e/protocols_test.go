package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These tests speak HTTP/2 without TLS to the proxy, and have upstreams that speak it,
// or listen on a socket in the file system.

// overHTTP2 is a client that speaks nothing else.
func overHTTP2(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// post sends a request by a client of net/http; its answer is read whole.
func post(ctx context.Context, t *testing.T, c *http.Client, p *proxy, key, body string) (*http.Response, string, error) {
	t.Helper()
	p.secret(key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res, string(got), err
}

func TestOverHTTP2(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Add("Set-Cookie", "a=1, x")
			w.Header().Add("Set-Cookie", "b=2")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, allBytes())
			w.Header().Set("X-Sum", "abc")
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		client, k := overHTTP2(t), newKey()
		for i, mark := range []string{"", "true", "true"} {
			res, body, err := post(t.Context(), t, client, p, k, "x")
			if err != nil {
				t.Fatal(err)
			}
			if res.ProtoMajor != 2 || res.StatusCode != 201 || body != allBytes() || !slices.Equal(res.Header["Set-Cookie"], []string{"a=1, x", "b=2"}) ||
				res.Trailer.Get("X-Sum") != "abc" || res.Header.Get(replayHeader) != mark {
				t.Errorf("answer %d: %s %d, %d bytes, %v, trailers %v", i, res.Proto, res.StatusCode, len(body), res.Header, res.Trailer)
			}
		}
		res, body, err := post(t.Context(), t, client, p, k, "y")
		if err != nil || res.StatusCode != 422 || !strings.Contains(body, `"key_reuse"`) {
			t.Errorf("another body: %v, %q, %v", res, body, err)
		}
		if again := p.send(t, request{key: k, body: "x"}); again.status != 201 || again.get(replayHeader) != "true" {
			t.Errorf("over HTTP/1.1 the same request got\n%s", again)
		}
		up.saw(t, 1)
	})
}

// A caller that resets its stream cancels nothing, and the process waits for its request
// when it ends.
func TestAnHTTP2CallerThatLeaves(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, routes: payments}
		p, other := start(t, s), start(t, s)
		ctx, leave := context.WithCancel(t.Context())
		k, left := newKey(), make(chan struct{})
		go func() {
			defer close(left)
			_, _, _ = post(ctx, t, overHTTP2(t), p, k, "x")
		}()
		g.arrived(t)
		leave()
		receive(t, "end of the caller", left)
		p.terminate()
		eventually(t, "refusing connections", func() bool {
			conn, err := net.Dial("tcp", p.addr)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		other.send(t, request{key: k, body: "x"}).refused(t, 409, "in_progress")
		g.open()
		p.ended()
		if again := other.send(t, request{key: k, body: "x"}); again.status != 201 || again.get(replayHeader) != "true" {
			t.Errorf("it was not recorded:\n%s", again)
		}
		up.saw(t, 1)
	})
}

func TestManyHTTP2Callers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		client, k := overHTTP2(t), newKey()
		const callers = 30
		statuses := make(chan int, callers)
		for range callers {
			go func() {
				res, _, err := post(t.Context(), t, client, p, k, "x")
				if err != nil {
					t.Error(err)
					statuses <- 0
					return
				}
				statuses <- res.StatusCode
			}()
		}
		counts := map[int]int{}
		for i := range callers {
			counts[receive(t, "answer", statuses)]++
			if i == callers-2 {
				g.open()
			}
		}
		if counts[201] != 1 || counts[409] != callers-1 {
			t.Errorf("the callers got %v", counts)
		}
		up.saw(t, 1)
	})
}

// upstreamFor serves on a listener with these protocols.
func upstreamFor(t *testing.T, l net.Listener, protocols *http.Protocols, answer handler) *upstream {
	t.Helper()
	u := &upstream{answer: answer}
	u.server = &http.Server{Handler: u, Protocols: protocols, ReadHeaderTimeout: patience}
	go u.server.Serve(l)
	t.Cleanup(func() { u.server.Close() })
	return u
}

func TestAnUpstreamThatSpeaksHTTP2(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		up := upstreamFor(t, l, &protocols, created)
		p := start(t, setup{store: s, upstream: "h2c://" + l.Addr().String(), routes: payments})
		p.twice(t, request{key: newKey(), body: "x"}, 201)
		up.saw(t, 1)

		for i, body := range []string{"", "x"} { // the stream is reset after the upstream acted
			up.answers(func(http.ResponseWriter, *received) { panic(http.ErrAbortHandler) })
			req := request{key: newKey(), body: body}
			p.send(t, req).refused(t, 502, "upstream_failed")
			up.answers(created)
			p.send(t, req).refused(t, 409, "outcome_unknown")
			up.saw(t, i+2)
		}
	})
}

func TestAnUpstreamOnASocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "up.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	up := upstreamFor(t, l, nil, created)
	p := start(t, setup{store: memory(), upstream: "unix://" + socket, routes: payments})
	p.twice(t, request{key: newKey(), target: "/pay?a=1", body: "x"}, 201)
	up.saw(t, 1)
	if got := up.last(t); got.target != "/pay?a=1" || got.host != "service.example" {
		t.Errorf("the upstream got %s for %s", got.target, got.host)
	}
	l.Close()
	p.send(t, request{key: newKey(), body: "x"})
}

// A caller may ask before it sends its body.
func TestExpectContinue(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		k := newKey()
		head := request{key: k, unframed: true, header: []string{"Content-Length: 5", "Expect: 100-continue"}}
		c := p.dial(t)
		if _, err := c.Write(head.bytes()); err != nil {
			t.Fatal(err)
		}
		line, err := c.wire.text()
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("got %q, %v, want 100 Continue", line, err)
		}
		if _, err := c.wire.section(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		first, err := c.wire.response(head)
		if err != nil {
			t.Fatal(err)
		}
		first.fresh(t, 201)
		if got := up.last(t); string(got.body) != "hello" || got.header.Get("Expect") != "" {
			t.Errorf("the upstream got %q and Expect %q", got.body, got.header.Get("Expect"))
		}
		p.send(t, request{key: k, body: "hello"}).replays(t, first)
		up.saw(t, 1)
	})
}

// What belongs to one connection is neither delivered nor recorded.
func TestHopByHopFieldsOfAnAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, hijacked("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\nX-End: 1\r\nContent-Length: 1\r\n\r\nx"))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		first := p.twice(t, request{key: newKey(), body: "x"}, 200)
		for _, name := range []string{"X-Hop", "Keep-Alive", "Upgrade", "Proxy-Authenticate"} {
			if got := first.values(name); len(got) > 0 {
				t.Errorf("%s %q came through", name, got)
			}
		}
		if first.get("X-End") != "1" {
			t.Errorf("X-End is lost:\n%s", first)
		}
		up.saw(t, 1)
	})
}

// The absolute form of a target is guarded as the other one.
func TestTheAbsoluteForm(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		p.send(t, request{target: "http://service.example/pay?a=1"}).refused(t, 400, "missing_key")
		req := request{target: "http://service.example/pay?a=1", key: newKey()}
		first := p.twice(t, req, 201)
		if got := up.last(t).target; got != "/pay?a=1" {
			t.Errorf("the upstream got %q", got)
		}
		req.target = "/pay?a=1"
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

// OPTIONS * asks about the upstream, not about the proxy.
func TestOptionsOfTheServer(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	p.send(t, request{method: "OPTIONS", target: "*"}).fresh(t, 201)
	up.saw(t, 1)
	if got := up.last(t).target; got != "*" {
		t.Errorf("the upstream got %q", got)
	}
}
