package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// limited is routes with a limits section.
func limited(routes, limits string) string { return routes + "\nlimits: {" + limits + "}" }

// Past limits.max_concurrent a request is refused, and its key is as new afterwards.
func TestBoundedNumberOfGuardedRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if r.method == "POST" {
				g.pass()
			}
			created(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: limited(payments, "max_concurrent: 2")})
		one, two := request{key: newKey(), body: "1"}, request{key: newKey(), body: "2"}
		first, second := p.begin(one), p.begin(two)
		g.arrived(t)
		g.arrived(t)
		three := request{key: newKey(), body: "3"}
		p.send(t, three).refused(t, 503, "overloaded")
		p.send(t, request{method: "GET", target: "/pay"}).fresh(t, 201) // it is not guarded
		up.saw(t, 3)
		g.open()
		first.wait(t).fresh(t, 201)
		second.wait(t).fresh(t, 201)
		three.body = "what the proxy never saw"
		eventually(t, "room", func() bool { return p.send(t, three).status == 201 })
		up.saw(t, 4)
	})
}

// The same past limits.max_buffered_bytes.
func TestBoundedBytesOfRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: limited(`  - {name: payments, path: /pay, max_request_body: 48KiB}`, "max_buffered_bytes: 64KiB")})
		body := strings.Repeat("x", 40<<10)
		running := p.begin(request{key: newKey(), body: body})
		g.arrived(t)
		req := request{key: newKey(), body: body}
		p.send(t, req).refused(t, 503, "overloaded")
		chunked := request{key: newKey(), unframed: true, header: []string{"Transfer-Encoding: chunked"}, body: "a000\r\n" + body + "\r\n0\r\n\r\n"}
		p.send(t, chunked).refused(t, 503, "overloaded")
		small := p.begin(request{key: newKey(), body: "small"})
		g.arrived(t)
		g.open()
		running.wait(t).fresh(t, 201)
		small.wait(t).fresh(t, 201)
		p.send(t, req).fresh(t, 201)
		up.saw(t, 3)
	})
}

// What callers announce and don't send takes no room.
func TestBoundedBytesAreThoseThatCame(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: limited(`  - {name: payments, path: /pay, max_request_body: 400KiB}`, "max_buffered_bytes: 512KiB")})
	for range 20 {
		c := p.dial(t)
		head := request{key: newKey(), unframed: true, header: []string{"Content-Length: 400000"}, body: "it begins"}
		if _, err := c.Write(head.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "holding something of each", func() bool { return p.metric(t, "idemproxy_buffered_bytes") >= 20*4096 })
	p.send(t, request{key: newKey(), body: strings.Repeat("x", 200<<10)}).fresh(t, 201)
}

// An answer for which there is no room is delivered, and not stored.
func TestBoundedBytesOfAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		large := strings.Repeat("0123456789abcdef", 10_000)
		for _, how := range []string{"with its length", "without"} {
			up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
				if how == "with its length" {
					w.Header().Set("Content-Length", itoa(len(large)))
				}
				_, _ = io.WriteString(w, large)
			})
			p := start(t, setup{store: s, upstream: up.url, routes: limited(`  - {name: payments, path: /pay, max_request_body: 64KiB}`, "max_buffered_bytes: 100KiB")})
			req := request{key: newKey(), body: how}
			if got := p.send(t, req).fresh(t, 200); string(got.body) != large {
				t.Errorf("%s: %d bytes came through, want %d", how, len(got.body), len(large))
			}
			p.send(t, req).refused(t, 409, "response_not_stored")
			up.saw(t, 1)
			eventually(t, "free of it", func() bool { return p.metric(t, "idemproxy_buffered_bytes") == 0 })
		}
	})
}

// bothClients are clients of either protocol, that do nothing by themselves.
func bothClients(t *testing.T) map[string]*http.Client {
	h1 := &http.Transport{DisableCompression: true}
	t.Cleanup(h1.CloseIdleConnections)
	clients := map[string]*http.Client{"HTTP/1.1": {Transport: h1, Timeout: patience}, "h2c": overHTTP2(t)}
	for _, c := range clients {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return clients
}

// ask sends a request by a client of net/http, and leaves its answer to be read.
func (p *proxy) ask(ctx context.Context, t *testing.T, c *http.Client, key, body string) *http.Response {
	t.Helper()
	p.secret(key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// Streams of events begin at once on guarded routes too, and aren't stored.
func TestBoundedStreamsBeginAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		for _, kind := range []string{"text/event-stream; charset=utf-8", "application/x-ndjson"} {
			for protocol, client := range bothClients(t) {
				g, gone := newGate(t), make(chan struct{})
				up := newUpstream(t, func(w http.ResponseWriter, r *received) {
					w.Header().Set("Content-Type", kind)
					_, _ = io.WriteString(w, "one\n\n")
					_ = http.NewResponseController(w).Flush()
					g.pass()
					_, _ = io.WriteString(w, "two\n\n")
					_ = http.NewResponseController(w).Flush()
					if string(r.body) == "endless" {
						<-r.ctx.Done()
						close(gone)
					}
				})
				p := start(t, setup{store: s, upstream: up.url, routes: payments})
				k := newKey()
				res := p.ask(t.Context(), t, client, k, "x")
				var first [5]byte
				if _, err := io.ReadFull(res.Body, first[:]); err != nil || string(first[:]) != "one\n\n" {
					t.Fatalf("%s over %s: the first event is held back: %q, %v", kind, protocol, first, err)
				}
				p.send(t, request{key: k, body: "x"}).refused(t, 409, "response_not_stored")
				g.open()
				rest, err := io.ReadAll(res.Body)
				if err != nil || string(rest) != "two\n\n" {
					t.Errorf("%s over %s: then came %q, %v", kind, protocol, rest, err)
				}
				// A stream has no end to wait for when its caller is gone.
				ctx, leave := context.WithCancel(t.Context())
				p.ask(ctx, t, client, newKey(), "endless")
				leave()
				receive(t, "notice to the upstream", gone)
				up.saw(t, 2)
			}
		}
	})
}

// A caller that leaves in the middle of a large answer doesn't cut the upstream off.
func TestBoundedAnswerWhoseCallerLeaves(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		for protocol, client := range bothClients(t) {
			left, wrote := newGate(t), make(chan error, 1)
			up := newUpstream(t, func(w http.ResponseWriter, r *received) {
				block, err := make([]byte, 64<<10), error(nil)
				for i := 0; i < 320 && err == nil; i++ {
					if i == 40 {
						left.pass()
					}
					_, err = w.Write(block)
				}
				if err == nil {
					time.Sleep(50 * time.Millisecond)
					err = r.ctx.Err()
				}
				wrote <- err
			})
			p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, max_response_body: 64KiB}`})
			ctx, leave := context.WithCancel(t.Context())
			k := newKey()
			res := p.ask(ctx, t, client, k, "x")
			if _, err := io.ReadFull(res.Body, make([]byte, 100<<10)); err != nil {
				t.Fatal(err)
			}
			left.arrived(t)
			leave()
			res.Body.Close()
			left.open()
			if err := receive(t, "end of the answer", wrote); err != nil {
				t.Errorf("over %s: the upstream was cut off: %v", protocol, err)
			}
			p.send(t, request{key: k, body: "x"}).refused(t, 409, "response_not_stored")
			up.saw(t, 1)
		}
	})
}

// An upstream that falls silent in the middle of a large answer is not waited for, for
// ever, on behalf of a caller that is gone.
func TestBoundedWaitForASilentUpstream(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *received) {
		_, _ = w.Write(make([]byte, 200<<10))
		_ = http.NewResponseController(w).Flush()
		<-r.ctx.Done()
		close(gone)
	})
	p := start(t, setup{store: memory(), upstream: up.url, upstreams: "response_timeout: 2s", routes: `  - {name: payments, path: /pay, max_response_body: 64KiB}`})
	ctx, leave := context.WithCancel(t.Context())
	res := p.ask(ctx, t, bothClients(t)["HTTP/1.1"], newKey(), "x")
	if _, err := io.ReadFull(res.Body, make([]byte, 200<<10)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // while the caller listens there is no limit
	select {
	case <-gone:
		t.Error("the upstream was cut off under a caller that listens")
	default:
	}
	leave()
	receive(t, "end of the upstream's request", gone)
}
