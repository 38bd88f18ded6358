package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A caller may vanish at any time. Before its whole request is here, nothing has happened;
// from then on its request goes on without it.

// leave ends a connection: by FIN, or by RST.
func leave(c net.Conn, reset bool) {
	if reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

func TestFaultACallerVanishesBeforeItsBodyIsComplete(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		head := func(k, framing string) string {
			return fmt.Sprintf("POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\n%s\r\n\r\n", k, framing)
		}
		var keys []string
		for _, text := range []string{
			"Content-Length: 100|only this", "Transfer-Encoding: chunked|ff\r\nonly this", "Transfer-Encoding: chunked|9\r\nonly this\r\n", "Content-Length: 100|",
		} {
			for _, reset := range []bool{false, true} {
				framing, body, _ := strings.Cut(text, "|")
				k := newKey()
				keys = append(keys, k)
				c := p.dial(t)
				if _, err := io.WriteString(c, head(k, framing)+body); err != nil {
					t.Fatal(err)
				}
				leave(c.Conn, reset)
			}
		}
		for i := range 3 { // over HTTP/2: the stream is reset, or the connection ends
			k := newKey()
			keys = append(keys, k)
			c := newFrameCaller(t, p)
			c.post(t, 1, "/pay", k, "only this", false)
			switch i {
			case 0:
				if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
					t.Fatal(err)
				}
			case 1:
				c.Close()
			case 2:
				leave(c.Conn.(*caller).Conn, true)
			}
		}
		eventually(t, "all of them ended", func() bool { // those that were reset may never have come
			m := p.metrics(t)
			ended := m[`idemproxy_requests_total{outcome="rejected",route="payments"}`] + m[`idemproxy_requests_total{outcome="failed",route="payments"}`]
			return ended >= 6 && m[`idemproxy_in_flight{route="payments"}`] == 0
		})
		if s.kind == "redis" {
			if left, err := needRedis(t).client(t).Keys(t.Context(), s.prefix+"*").Result(); err != nil || len(left) > 1 { // of the probe
				t.Errorf("Redis has %q, %v", left, err)
			}
		}
		for _, k := range keys {
			up.ran(t, k, 0)
			first := p.send(t, request{key: k, body: "another one"}).fresh(t, 201)
			p.send(t, request{key: k, body: "another one"}).replays(t, first)
			up.ran(t, k, 1)
		}
	})
}

func TestFaultACallerVanishesAfterItsBody(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		cancelled := make(chan error, 10)
		up := newWireUpstream(t, func(c net.Conn, x execution) bool {
			g.pass()
			// A proxy that gave up would have closed the connection.
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
				cancelled <- err
			}
			_ = c.SetReadDeadline(time.Time{})
			answers201(c, x)
			return false // the reader has lost what it read
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		var keys []string
		begin := func() string {
			keys = append(keys, newKey())
			return keys[len(keys)-1]
		}
		for _, body := range []string{"", "x"} {
			for _, reset := range []bool{false, true} {
				c := p.dial(t)
				if _, err := c.Write(request{key: begin(), body: body}.bytes()); err != nil {
					t.Fatal(err)
				}
				g.arrived(t)
				leave(c.Conn, reset)
			}
		}
		for i := range 2 {
			c := newFrameCaller(t, p)
			c.post(t, 1, "/pay", begin(), "x", true)
			g.arrived(t)
			if i == 0 {
				if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
					t.Fatal(err)
				}
			} else {
				c.Close()
			}
		}
		bodies := []string{"", "", "x", "x", "x", "x"}
		for i, k := range keys {
			p.send(t, request{key: k, body: bodies[i]}).refused(t, 409, "in_progress")
		}
		g.open()
		for i, k := range keys {
			again := p.settled(t, request{key: k, body: bodies[i]})
			if again.status != 201 || again.get(replayHeader) != "true" || string(again.body) != fmt.Sprintf(`{"execution":%d}`, i+1) {
				t.Errorf("the retry got\n%s", again)
			}
			up.ran(t, k, 1)
		}
		select {
		case err := <-cancelled:
			t.Errorf("the upstream's request was given up: %v", err)
		default:
		}
		p.counted(t, map[string]float64{
			`callers_gone_total{route="payments"}`:                        6,
			`requests_total{outcome="executed",route="payments"}`:         6,
			`requests_total{outcome="failed",route="payments"}`:           0,
			`unknown_outcomes_total{cause="connection",route="payments"}`: 0,
		})
		p.logged(t, `"caller_gone":true`, `"outcome":"executed"`, `"status":201`)
		if strings.Contains(p.log.String(), `"status":502`) {
			t.Error("the log tells of a 502 that nobody got")
		}
	})
}

// The upstream is heard under its own deadline, not for ever, when the caller is gone.
func TestFaultACallerVanishesAndTheUpstreamNeverAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newWireUpstream(t, stalled(g, ""))
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 500ms", routes: payments})
		req := request{key: newKey(), body: "x"}
		c := p.dial(t)
		if _, err := c.Write(req.bytes()); err != nil {
			t.Fatal(err)
		}
		g.arrived(t)
		c.Close()
		p.settled(t, req).refused(t, 409, "outcome_unknown")
		up.ran(t, req.key, 1)
		p.counted(t, map[string]float64{
			`callers_gone_total{route="payments"}`:                     1,
			`unknown_outcomes_total{cause="timeout",route="payments"}`: 1,
		})
	})
}

// A caller leaves in the middle of an answer that is too large to keep, and of one that is
// kept.
func TestFaultACallerVanishesDuringALargeAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		const size = 8 << 20
		part := strings.Repeat("0123456789abcdef", 4<<10)
		up := newWireUpstream(t, func(c net.Conn, x execution) bool {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			for range size / len(part) {
				if _, err := io.WriteString(c, part); err != nil {
					return false
				}
			}
			return true
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: large, path: /large, max_response_body: 64KiB}
  - {name: kept, path: /kept, max_response_body: 32MiB}`})
		for _, target := range []string{"/large", "/kept"} {
			req := request{target: target, key: newKey(), body: "x"}
			c := p.dial(t)
			if _, err := c.Write(req.bytes()); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
				t.Fatal(err)
			}
			leave(c.Conn, true)
			again := p.settled(t, req)
			if target == "/large" {
				again.refused(t, 409, "response_not_stored")
			} else if again.status != 200 || again.get(replayHeader) != "true" || string(again.body) != strings.Repeat(part, size/len(part)) {
				t.Errorf("the retry got %d bytes: %.300s", len(again.body), again)
			}
			up.ran(t, req.key, 1)
		}
		p.counted(t, map[string]float64{
			`requests_total{outcome="executed",route="large"}`: 1, `requests_total{outcome="executed",route="kept"}`: 1,
		})
		p.grew(t, `callers_gone_total{route="large"}`, 1)
		p.grew(t, `callers_gone_total{route="kept"}`, 1)
	})
}

// What no rule guards ends with its caller, as behind any reverse proxy.
func TestFaultAnUnguardedRequestEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ended := make(chan string, 10)
	arrived := make(chan struct{}, 10)
	up := newUpstream(t, func(_ http.ResponseWriter, r *received) {
		arrived <- struct{}{}
		<-r.ctx.Done()
		ended <- r.target
	})
	p := start(t, setup{store: memory(), upstream: up.url, routes: `  - {name: optional, path: /optional, missing_header: pass-through}`})
	for _, target := range []string{"/free", "/optional"} {
		req := request{target: target, body: "x"}
		if target == "/free" {
			req.key = newKey()
		}
		c := p.dial(t)
		if _, err := c.Write(req.bytes()); err != nil {
			t.Fatal(err)
		}
		receive(t, "request at the upstream", arrived)
		c.Close()
		if got := receive(t, "end of the upstream's request", ended); got != target {
			t.Errorf("%s ended, want %s", got, target)
		}
	}
	up.saw(t, 2)
}
