package e2e

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A keyed is a request with a key, in one of the headers by which net/http's Transport
// takes a request for repeatable.
func keyed(method, target, header, body string) (request, string) {
	k := newKey()
	r := request{method: method, target: target, body: body, header: []string{header + ": " + k}}
	r.unframed = method == "GET"
	return r, k
}

// dies has an upstream die under a request, after it acted on it, on a connection that
// was used before. It returns the request's answer and its one execution.
func dies(t *testing.T, p *proxy, up *wireUpstream, how act, method, target, header, body string) (request, *response, execution) {
	t.Helper()
	for tries := 0; ; tries++ {
		if tries == 10 {
			t.Fatal("no connection was used twice")
		}
		up.does(answers201)
		warm, _ := keyed(method, target, header, body)
		p.send(t, warm).fresh(t, 201)
		up.does(how)
		doomed, k := keyed(method, target, header, body)
		res := p.send(t, doomed)
		up.ran(t, k, 1)
		if x := up.of(k)[0]; x.nth > 1 {
			return doomed, res, x
		}
	}
}

// checkWire checks how a request with a key is written: with its key, and framed as it came.
func checkWire(t *testing.T, x execution, method, header, body string) {
	t.Helper()
	head := strings.ToLower(x.head)
	if !strings.Contains(head, "\r\n"+strings.ToLower(header)+": "+x.key) {
		t.Errorf("the key is not in %q", x.head)
	}
	if strings.Contains(head, "transfer-encoding") {
		t.Errorf("sent in chunks: %q", x.head)
	}
	// A DELETE without a body may go without a length (RFC 9110, 8.6).
	length := "\r\ncontent-length: " + itoa(len(body)) + "\r\n"
	if (body != "" || method == "POST" || method == "PUT") && !strings.Contains(head+"\r\n", length) {
		t.Errorf("sent without a length of %d: %q", len(body), x.head)
	}
	if x.body != body {
		t.Errorf("the upstream got %q, want %q", x.body, body)
	}
}

func TestFaultAReusedConnectionDiesUnderAGuardedRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: hold, path: /hold}
  - {name: legacy, path: /legacy, header_name: X-Idempotency-Key}`})
		died := 0.0
		for target, header := range map[string]string{"/hold": "Idempotency-Key", "/legacy": "X-Idempotency-Key"} {
			for _, method := range []string{"POST", "DELETE"} {
				for _, body := range []string{"", `{"amount":100}`} {
					for _, how := range []act{raw(""), rawReset("")} {
						doomed, res, x := dies(t, p, up, how, method, target, header, body)
						res.refused(t, 502, "upstream_failed")
						checkWire(t, x, method, header, body)
						if method == "DELETE" && body == "" && !strings.Contains(x.head+"\r\n", "Content-Length: 0\r\n") {
							t.Errorf("a guarded DELETE went without a length: %q", x.head)
						}
						up.does(answers201)
						p.send(t, doomed).refused(t, 409, "outcome_unknown")
						up.ran(t, x.key, 1)
						died += 0.5
					}
				}
			}
		}
		p.counted(t, map[string]float64{
			`unknown_outcomes_total{cause="connection",route="hold"}`:   died,
			`unknown_outcomes_total{cause="connection",route="legacy"}`: died,
		})
	})
}

// What has a key and is not guarded is executed once, too.
func TestFaultAReusedConnectionDiesUnderAnUnguardedRequest(t *testing.T) {
	t.Parallel()
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: memory(), upstream: up.url, routes: `
  - {name: guarded, path: /guarded}
  - {name: optional, path: /optional, header_name: X-Request-Key, missing_header: pass-through}
  - {name: off, path: /off, mode: "off"}`})
	for _, tc := range []struct{ method, target string }{
		{"POST", "/free"}, {"DELETE", "/free"}, {"GET", "/free"}, {"POST", "/optional"}, {"POST", "/off"}, {"GET", "/guarded"},
	} {
		for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			for _, body := range []string{"", `{"amount":100}`} {
				if body != "" && tc.method == "GET" {
					continue
				}
				for _, how := range []act{raw(""), rawReset("")} {
					_, res, x := dies(t, p, up, how, tc.method, tc.target, header, body)
					res.refused(t, 502, "upstream_failed")
					checkWire(t, x, tc.method, header, body)
				}
			}
		}
	}
}

// Nor is a request executed twice that passes because the store is away.
func TestFaultAReusedConnectionDiesWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	up := newWireUpstream(t, answers201)
	p := start(t, setup{
		store: redisVia(local(freePort()), time.Second), upstream: up.url, unready: true,
		routes: `  - {name: pass, path: /pass, on_store_failure: pass-through}`,
	})
	for _, body := range []string{"", `{"amount":100}`} {
		for _, how := range []act{raw(""), rawReset("")} {
			_, res, x := dies(t, p, up, how, "POST", "/pass", "Idempotency-Key", body)
			res.refused(t, 502, "upstream_failed")
			checkWire(t, x, "POST", "Idempotency-Key", body)
		}
	}
	p.grew(t, `store_failures_total{op="claim"}`, 8)
}

// Over HTTP/2 net/http's Transport repeats requests on errors of a stream, with a key or
// without.
func TestFaultAnHTTP2StreamDiesAfterTheUpstreamActed(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newFrameUpstream(t, framed201)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: hold, path: /hold}`})
		unknown := 0.0
		for _, how := range []frameAct{
			rst(http2.ErrCodeProtocol), rst(http2.ErrCodeInternal), rst(http2.ErrCodeCancel),
			goAway(0, http2.ErrCodeNo), goAway(0, http2.ErrCodeInternal),
			func(*frameConn, uint32, execution) bool { return false },
			func(c *frameConn, _ uint32, _ execution) bool {
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
				return false
			},
		} {
			for _, body := range []string{"", `{"amount":100}`} {
				for _, target := range []string{"/hold", "/free"} {
					up.does(framed201)
					warm, _ := keyed("POST", target, "Idempotency-Key", body)
					p.send(t, warm).fresh(t, 201)
					up.does(how)
					doomed, k := keyed("POST", target, "Idempotency-Key", body)
					p.send(t, doomed).refused(t, 502, "upstream_failed")
					up.ran(t, k, 1)
					if got := up.of(k)[0].body; got != body {
						t.Errorf("the upstream got %q, want %q", got, body)
					}
					if target == "/free" {
						continue
					}
					unknown++
					up.does(framed201)
					p.send(t, doomed).refused(t, 409, "outcome_unknown")
					up.ran(t, k, 1)
				}
			}
		}
		p.counted(t, map[string]float64{`unknown_outcomes_total{cause="connection",route="hold"}`: unknown})
	})
}

// A stream that the upstream refuses, or that its GOAWAY leaves out, it did not process
// (RFC 9113, 6.8 and 8.7): the key is free at once.
func TestFaultAnHTTP2StreamThatWasNotProcessedFreesTheKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newFrameUpstream(t, framed201)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: hold, path: /hold}`})
		for _, how := range []frameAct{rst(http2.ErrCodeRefusedStream), goAway(2, http2.ErrCodeNo)} {
			for _, body := range []string{"", `{"amount":100}`} {
				up.does(framed201)
				warm, _ := keyed("POST", "/hold", "Idempotency-Key", body)
				p.send(t, warm).fresh(t, 201)
				up.does(how)
				req, k := keyed("POST", "/hold", "Idempotency-Key", body)
				p.send(t, req).refused(t, 502, "upstream_unreachable")
				up.ran(t, k, 1) // seen, and refused
				up.does(framed201)
				first := p.send(t, req).fresh(t, 201)
				p.send(t, req).replays(t, first)
				up.ran(t, k, 2)
			}
		}
		p.counted(t, map[string]float64{`unknown_outcomes_total{cause="connection",route="hold"}`: 0})
	})
}

// What provably was not sent frees its key at once, for every replica.
func TestFaultWhatWasNotSentFreesTheKey(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		well := start(t, setup{store: s, upstream: up.url, routes: payments})
		for name, url := range map[string]string{
			"refused dial": "http://" + local(freePort()),
			"no such host": "http://no-such-host.invalid:80",
			"refused h2c":  "h2c://" + local(freePort()),
			"no such TLS":  "https://" + strings.TrimPrefix(up.url, "http://"), // a server that speaks no TLS
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := start(t, setup{store: s, upstream: url, upstreams: "connect_timeout: 2s", routes: payments})
				for _, body := range []string{"", "x"} {
					req := request{key: newKey(), body: body}
					p.send(t, req).refused(t, 502, "upstream_unreachable")
					p.send(t, req).refused(t, 502, "upstream_unreachable") // free, not "in progress"
					up.ran(t, req.key, 0)
					first := well.send(t, req).fresh(t, 201)
					p.send(t, req).replays(t, first)
					up.ran(t, req.key, 1)
				}
				p.counted(t, map[string]float64{
					`requests_total{outcome="failed",route="payments"}`:           4,
					`unknown_outcomes_total{cause="connection",route="payments"}`: 0,
				})
			})
		}
	})
}

// incomplete are ways to act and give no complete answer.
func incomplete(g *gate) map[string]struct {
	do    act
	cause string
} {
	type way = struct {
		do    act
		cause string
	}
	const head, chunked = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
	return map[string]way{
		"closed":             {raw(""), "connection"},
		"reset":              {rawReset(""), "connection"},
		"cut head":           {raw("HTTP/1.1 201 Created\r\nContent-Le"), "connection"},
		"malformed":          {raw("HTTP/1.1 two-hundred OK\r\n\r\n"), "connection"},
		"not HTTP":           {raw("SSH-2.0-OpenSSH_9.6\r\n"), "connection"},
		"switched":           {raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "connection"},
		"only hints":         {raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), "connection"},
		"cut body":           {raw(head + "only this"), "body"},
		"reset body":         {rawReset(head + "only this"), "body"},
		"no body":            {raw(head), "body"},
		"cut chunk":          {raw(chunked + "ff\r\nonly this"), "body"},
		"no last chunk":      {raw(chunked + "9\r\nonly this\r\n"), "body"},
		"cut trailer":        {raw(chunked + "9\r\nonly this\r\n0\r\nX-Sum: 1"), "body"},
		"malformed chunk":    {raw(chunked + "zz\r\nonly this\r\n0\r\n\r\n"), "body"},
		"silent":             {stalled(g, ""), "timeout"},
		"stalled head":       {stalled(g, "HTTP/1.1 201 Crea"), "timeout"},
		"stalled body":       {stalled(g, head+"only this"), "body"},
		"stalled in a chunk": {stalled(g, chunked+"ff\r\nonly this"), "body"},
	}
}

// Whatever the upstream does instead of a complete answer: nobody executes the key again,
// on no replica, and nothing of the answer is recorded.
func TestFaultAnIncompleteAnswerIsUnknownEverywhere(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newWireUpstream(t, answers201)
		conf := setup{store: s, upstream: up.url, upstreams: "response_timeout: 300ms", routes: `
  - {name: hold, path: /hold}
  - {name: release, path: /release, on_unknown_outcome: release}`}
		p := start(t, conf)
		other := p
		if s.shared {
			other = start(t, conf)
		}
		causes := map[string]float64{}
		for name, way := range incomplete(g) {
			up.does(way.do)
			hold := request{target: "/hold", key: newKey(), body: "x"}
			release := request{target: "/release", key: newKey(), body: "x"}
			for _, req := range []request{hold, release} {
				status, code := 502, "upstream_failed"
				if strings.HasPrefix(name, "stalled") || name == "silent" {
					status, code = 504, "upstream_timeout"
				}
				res := p.send(t, req)
				res.refused(t, status, code)
				if bytes.Contains(res.body, []byte("only this")) {
					t.Errorf("%s: the caller got a part of it:\n%s", name, res)
				}
			}
			causes[way.cause]++
			up.does(answers201)
			for _, at := range []*proxy{other, p, other} {
				at.send(t, hold).refused(t, 409, "outcome_unknown") // at once: the lease is 30 s
			}
			up.ran(t, hold.key, 1)

			first := other.send(t, release).fresh(t, 201)
			p.send(t, release).replays(t, first)
			up.ran(t, release.key, 2)
		}
		want := map[string]float64{}
		for cause, n := range causes {
			want[`unknown_outcomes_total{cause="`+cause+`",route="hold"}`] = n
			want[`unknown_outcomes_total{cause="`+cause+`",route="release"}`] = n
		}
		p.counted(t, want)
		other.grew(t, `conflicts_total{reason="outcome_unknown",route="hold"}`, float64(2*len(incomplete(g))))
	})
}

// A cut answer over HTTP/2 is as little an answer.
func TestFaultAnIncompleteHTTP2AnswerIsUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		begun := func(then frameAct) frameAct {
			return func(c *frameConn, stream uint32, x execution) bool {
				_ = c.headers(stream, false, ":status", "201", "content-length", "100")
				_ = c.WriteData(stream, false, []byte("only this"))
				return then(c, stream, x)
			}
		}
		up := newFrameUpstream(t, framed201)
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 500ms", routes: payments})
		for _, how := range []frameAct{
			begun(rst(http2.ErrCodeInternal)), begun(rst(http2.ErrCodeRefusedStream)), begun(goAway(0, http2.ErrCodeNo)),
			begun(func(c *frameConn, stream uint32, _ execution) bool { return c.WriteData(stream, true, nil) == nil }), // too short
			func(*frameConn, uint32, execution) bool { return true },                                                    // never
		} {
			up.does(how)
			req := request{key: newKey(), body: "x"}
			res := p.send(t, req)
			if !slices.Contains([]int{502, 504}, res.status) {
				t.Errorf("the caller got\n%s", res)
			}
			up.does(framed201)
			p.send(t, req).refused(t, 409, "outcome_unknown")
			up.ran(t, req.key, 1)
		}
		unknown := p.metric(t, `idemproxy_unknown_outcomes_total{cause="body",route="payments"}`) +
			p.metric(t, `idemproxy_unknown_outcomes_total{cause="connection",route="payments"}`) +
			p.metric(t, `idemproxy_unknown_outcomes_total{cause="timeout",route="payments"}`)
		if unknown != 5 {
			t.Errorf("%v unknown outcomes counted, want 5", unknown)
		}
	})
}

// An upstream may refuse a large body before it has read it. Its answer is the answer.
func TestFaultAnAnswerBeforeTheBodyIsSent(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		const refusal = "HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big"
		asked := make(chan struct{}, 100)
		serve(t, l, func(c net.Conn) {
			if _, err := c.Read(make([]byte, 1024)); err != nil {
				return
			}
			asked <- struct{}{}
			_, _ = c.Write([]byte(refusal))
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = c.Read(make([]byte, 1)) // a moment, so that the answer is not lost to a reset
			time.Sleep(100 * time.Millisecond)
		})
		p := start(t, setup{store: s, upstream: "http://" + l.Addr().String(), routes: `  - {name: payments, path: /pay, max_request_body: 32MiB}`})
		req := request{key: newKey(), body: strings.Repeat("0123456789abcdef", 1<<18)}
		first := p.send(t, req).fresh(t, 422)
		if string(first.body) != "too big" {
			t.Errorf("the answer came as\n%s", first)
		}
		p.send(t, req).replays(t, first)
		if n := len(asked); n != 1 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}

// An upstream that dies while a large request is being sent may have acted on what it got.
func TestFaultTheUpstreamDiesDuringTheUpload(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{}, 100)
		serve(t, l, func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, 100<<10)); err == nil {
				asked <- struct{}{}
				_ = c.(*net.TCPConn).SetLinger(0)
			}
		})
		p := start(t, setup{store: s, upstream: "http://" + l.Addr().String(), routes: `  - {name: payments, path: /pay, max_request_body: 32MiB}`})
		req := request{key: newKey(), body: strings.Repeat("0123456789abcdef", 1<<18)}
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, req).refused(t, 409, "outcome_unknown")
		if n := len(asked); n != 1 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}

// An upstream closes connections whenever it likes. A request is sent on another one if it
// was not sent; never if it was.
func TestFaultTheUpstreamClosesIdleConnections(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, func(c net.Conn, x execution) bool {
			answers201(c, x)
			time.Sleep(time.Duration(x.n%5) * time.Millisecond) // the next request may be under way
			return false
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		served := 0
		for i := range 100 {
			req := request{key: newKey(), body: []string{"", "x"}[i%2]}
			res := p.send(t, req)
			if res.status == 201 {
				served++
				p.send(t, req).replays(t, res)
				up.ran(t, req.key, 1)
				continue
			}
			res.refused(t, 502, "upstream_failed")
			p.send(t, req).refused(t, 409, "outcome_unknown")
			if n := len(up.of(req.key)); n > 1 {
				t.Fatalf("executed %d times", n)
			}
		}
		if served < 50 {
			t.Errorf("%d of 100 were served", served)
		}
	})
}

// An answer without a length that ends with its connection, as HTTP/1.0 has it, is whole
// when the connection ends properly. That it was cut there nobody can see; a reset one can.
func TestFaultAnAnswerThatEndsWithItsConnection(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		const unframed = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\n\r\nthe answer, or its first half"
		up := newWireUpstream(t, raw(unframed))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x"}
		first := p.send(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.ran(t, req.key, 1)

		up.does(func(c net.Conn, x execution) bool {
			_, _ = io.WriteString(c, unframed)
			time.Sleep(50 * time.Millisecond) // the reset takes nothing with it
			return rawReset("")(c, x)
		})
		req = request{key: newKey(), body: "x"}
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, req).refused(t, 409, "outcome_unknown")
		up.ran(t, req.key, 1)
	})
}
