package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// These tests are about mode: observe.

const observing = `  - {name: payments, path: /pay, mode: observe, lease: 2s, identity_header: X-Account, max_request_body: 1KiB, max_response_body: 1KiB}`

func account() []string { return []string{"X-Account: alice"} }

// would waits until so many requests of the route would have ended so.
func (p *proxy) would(t *testing.T, outcome string, n float64) {
	t.Helper()
	p.counted(t, map[string]float64{`would_total{outcome="` + outcome + `",route="payments"}`: n})
}

func TestObserveForwardsEverythingAndTells(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 10s", routes: observing})
		seen := 0
		passes := func(req request) {
			t.Helper()
			res := p.send(t, req)
			seen++
			if res.status != 201 || len(res.values(replayHeader)) > 0 || len(res.values(expires)) > 0 {
				t.Fatalf("the answer came as\n%s", res)
			}
			up.saw(t, seen)
		}
		req := request{key: newKey(), body: "x", header: account()}
		passes(req)
		p.would(t, "executed", 1)
		passes(req)
		passes(req)
		p.would(t, "replayed", 2)
		other := req
		other.body = "y"
		passes(other)
		p.would(t, "key_reuse", 1)
		other = req
		other.header = append(account(), "Authorization: Bearer 0123456789abcdef")
		passes(other)
		p.would(t, "replay_scope", 1)

		passes(request{header: account()})
		p.would(t, "missing_key", 1)
		passes(request{key: "a b", header: account()})
		p.would(t, "invalid_key", 1)
		passes(request{key: newKey(), header: append(account(), "Idempotency_Key: x")})
		p.would(t, "bad_request", 1)
		passes(request{key: newKey()})
		p.would(t, "missing_identity", 1)
		passes(request{key: newKey(), header: []string{"X-Account: a b"}})
		p.would(t, "invalid_identity", 1)
		large := request{key: newKey(), header: account(), body: strings.Repeat("x", 1025)}
		passes(large)
		p.would(t, "request_too_large", 1)
		if got := up.last(t).body; string(got) != large.body {
			t.Errorf("the upstream got %d bytes", len(got))
		}

		up.answers(held(g, created))
		req.key = newKey()
		running := p.begin(req)
		g.arrived(t)
		second := p.begin(req)
		g.arrived(t) // it is not refused: it runs beside the first
		p.would(t, "executed", 1)
		g.open()
		running.wait(t)
		second.wait(t)
		seen += 2
		p.would(t, "in_progress", 1)
		p.would(t, "executed", 2)

		p.counted(t, map[string]float64{
			`requests_total{outcome="passed_through",route="payments"}`: float64(seen),
			`requests_total{outcome="rejected",route="payments"}`:       0,
			`conflicts_total{reason="key_reuse",route="payments"}`:      0,
			`in_flight{route="payments"}`:                               0,
			`buffered_bytes`:                                            0,
		})
		p.logged(t, `"outcome":"passed_through"`, `"would":"replayed"`, `"status":201`, `"key_hash":"`)
		p.logged(t, `"would":"missing_key"`)
	})
}

// What the upstream comes to ends the claim as enforce would end it.
func TestObserveFollowsTheUpstream(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, text(429, "later"))
		p := start(t, setup{store: s, upstream: up.url, routes: observing})
		req := request{key: newKey(), header: account()}
		p.send(t, req).fresh(t, 429)
		p.send(t, req).fresh(t, 429)
		p.would(t, "released", 2)

		large := strings.Repeat("x", 2000)
		up.answers(text(200, large))
		if res := p.send(t, req).fresh(t, 200); string(res.body) != large {
			t.Errorf("%d bytes came through", len(res.body))
		}
		p.would(t, "executed", 1)
		p.send(t, req).fresh(t, 200)
		p.would(t, "response_not_stored", 1)

		up.answers(dropped())
		req.key = newKey()
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.would(t, "upstream_failed", 1)
		up.answers(created)
		p.send(t, req).fresh(t, 201)
		p.would(t, "outcome_unknown", 1)

		up.answers(hijacked("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nonly this"))
		req.key = newKey()
		if got := receive(t, "end", p.begin(req)); got.err == nil {
			t.Errorf("an answer that is cut came as a whole one:\n%s", got.res)
		}
		p.would(t, "upstream_failed", 2)
	})
}

func TestObserveAnUnreachableUpstream(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		p := start(t, setup{store: s, upstream: "http://" + local(freePort()), routes: observing})
		req := request{key: newKey(), body: "x", header: account()}
		for n := range 2 {
			p.send(t, req).refused(t, 502, "upstream_unreachable")
			p.would(t, "upstream_unreachable", float64(n+1))
		}
	})
}

// A store that is away changes nothing for callers.
func TestObserveWithoutAStore(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	for name, addr := range map[string]string{"refused": local(freePort()), "silent": silent(t)} {
		s := redisVia(addr, time.Second)
		p := start(t, setup{store: s, upstream: up.url, unready: true, routes: observing})
		p.send(t, request{key: newKey(), body: name, header: account()}).fresh(t, 201)
		up.executed(t, name, 1)
		p.would(t, "store_unavailable", 1)
	}
}

// What was recorded while a rule observed is never replayed, and a claim that an observer
// holds refuses nobody.
func TestObserveAndEnforceShareNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	up := newUpstream(t, created)
	s := setup{store: sharedRedis(t), upstream: up.url, routes: observing}
	observer := start(t, s)
	s.routes = strings.Replace(observing, "mode: observe", "mode: enforce", 1)
	enforcer := start(t, s)

	req := request{key: newKey(), body: "x", header: account()}
	observer.send(t, req).fresh(t, 201)
	observer.would(t, "executed", 1)
	first := enforcer.send(t, req).fresh(t, 201)
	enforcer.send(t, req).replays(t, first)
	observer.send(t, req).fresh(t, 201)
	observer.would(t, "replayed", 1)
	up.saw(t, 3)

	up.answers(held(g, created))
	req.key = newKey()
	running := observer.begin(req)
	g.arrived(t)
	up.answers(created)
	enforcer.send(t, req).fresh(t, 201)
	g.open()
	running.wait(t)
	up.saw(t, 5)
}

// Request and answer stream in both directions at once, and nothing is waited for.
func TestObserveIsFullDuplex(t *testing.T) {
	t.Parallel()
	up := newDuplex(t)
	p := start(t, setup{store: memory(), upstream: up, routes: `  - {name: payments, path: /pay, mode: observe}`})
	c := p.dial(t)
	req := request{key: newKey(), unframed: true, header: []string{"Transfer-Encoding: chunked"}}
	p.secret(req.key)
	if _, err := c.Write(req.bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := c.wire.head(req)
	if err != nil || res.status != 200 {
		t.Fatalf("the answer is held back: %v, %v", res, err)
	}
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(c, "3\r\n"+word+"\r\n"); err != nil {
			t.Fatal(err)
		}
		var echo [8]byte
		if _, err := io.ReadFull(c.wire.r, echo[:]); err != nil || string(echo[:]) != "3\r\n"+word+"\r\n" {
			t.Fatalf("echo %q, %v", echo, err)
		}
	}
	if _, err := io.WriteString(c, "0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.wire.rest(res); err != nil {
		t.Fatal(err)
	}
	if len(res.trailers) != 1 || res.trailers[0].value != "42" {
		t.Errorf("trailers %q", res.trailers)
	}
	p.would(t, "executed", 1)
}

// newDuplex is a service that repeats a body while it arrives.
func newDuplex(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(200)
		_ = control.Flush()
		buffer := make([]byte, 100)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			_ = control.Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set("X-Sum", "42")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A caller that hangs up ends its request, as in plain forwarding. Under enforce the request would
// have run to its end: its retry would have been replayed.
func TestObserveACallerThatHangsUp(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		ended := make(chan struct{})
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			g.arrivals <- struct{}{}
			<-r.ctx.Done()
			close(ended)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: observing})
		req := request{key: newKey(), body: "x", header: account()}
		p.secret(req.secrets()...)
		c := p.dial(t)
		if _, err := c.Write(req.bytes()); err != nil {
			t.Fatal(err)
		}
		g.arrived(t)
		c.Close()
		receive(t, "end of the request at the upstream", ended)
		p.would(t, "executed", 1)
		p.counted(t, map[string]float64{`callers_gone_total{route="payments"}`: 1})
		up.answers(created)
		p.send(t, req).fresh(t, 201)
		p.would(t, "replayed", 1)
	})
}

// An upgrade passes, as if there were no rule.
func TestObserveAnUpgrade(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, hijacked("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"))
	p := start(t, setup{store: memory(), upstream: up.url, routes: observing})
	c := p.dial(t)
	req := request{key: newKey(), header: append(account(), "Connection: Upgrade", "Upgrade: echo")}
	p.secret(req.key)
	if _, err := c.Write(req.bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := c.wire.head(req)
	if err != nil {
		t.Fatal(err)
	}
	var hello [5]byte
	if _, err := io.ReadFull(c.wire.r, hello[:]); err != nil || res.status != 101 || string(hello[:]) != "hello" {
		t.Errorf("status %d, %q, %v", res.status, hello, err)
	}
	c.Close()
	p.would(t, "bad_request", 1)
}

// A slow body passes as it comes, whatever enforce would have said; so does one for whose
// copy there is no room.
func TestObserveBodiesThatEnforceWouldRefuse(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, server: "body_timeout: 1s", routes: limited(`  - {name: payments, path: /pay, mode: observe}`, "max_buffered_bytes: 16KiB")})
	c := p.dial(t)
	slow := request{key: newKey(), unframed: true, header: []string{"Content-Length: 10"}, body: "01234"}
	p.secret(slow.key)
	if _, err := c.Write(slow.bytes()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // it is the time that counts here
	if _, err := io.WriteString(c, "56789"); err != nil {
		t.Fatal(err)
	}
	if res, err := c.wire.response(slow); err != nil || res.status != 201 {
		t.Fatalf("the answer is %v, %v", res, err)
	}
	up.executed(t, "0123456789", 1)
	p.would(t, "request_timeout", 1)

	large := request{key: newKey(), body: strings.Repeat("x", 64<<10)}
	p.send(t, large).fresh(t, 201)
	up.executed(t, large.body, 1)
	p.would(t, "overloaded", 1)
	p.counted(t, map[string]float64{"buffered_bytes": 0})
}
