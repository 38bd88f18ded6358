package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
)

// Trailers reach callers of either protocol from upstreams of either, live and replayed.
func TestFaithfulTrailers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var h2 http.Protocols
		h2.SetUnencryptedHTTP2(true)
		answer := func(w http.ResponseWriter, r *received) {
			if string(r.body) == "announced" {
				w.Header().Set("Trailer", "X-Sum, X-Other")
			}
			w.WriteHeader(200)
			_, _ = io.WriteString(w, "body")
			_ = http.NewResponseController(w).Flush()
			prefix := http.TrailerPrefix
			if string(r.body) == "announced" {
				prefix = ""
			}
			w.Header()[prefix+"X-Sum"] = []string{"abc"}
			w.Header()[prefix+"X-Other"] = []string{"1", "2"}
		}
		upstreams := map[string]*upstream{"h2c://" + l.Addr().String(): upstreamFor(t, l, &h2, answer)}
		h1 := newUpstream(t, answer)
		upstreams[h1.url] = h1
		for url, up := range upstreams {
			p := start(t, setup{store: s, upstream: url, routes: payments})
			n := 0
			for protocol, client := range bothClients(t) {
				for _, how := range []string{"announced", "unannounced"} {
					n++
					k := newKey()
					for i, mark := range []string{"", "true"} {
						res := p.ask(t.Context(), t, client, k, how)
						body, err := io.ReadAll(res.Body)
						if err != nil || res.Header.Get(replayHeader) != mark || string(body) != "body" ||
							res.Trailer.Get("X-Sum") != "abc" || strings.Join(res.Trailer["X-Other"], "|") != "1|2" {
							t.Errorf("%s, %s, over %s, answer %d: %q, %v, trailers %v, %v", url, how, protocol, i, body, res.Header, res.Trailer, err)
						}
					}
				}
			}
			up.saw(t, n)
		}
	})
}

// An interim answer comes before the answer does; a replay has none.
func TestFaithfulEarlyHints(t *testing.T) {
	t.Parallel()
	for protocol, client := range bothClients(t) {
		g := newGate(t)
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			g.pass()
			created(w, r)
		})
		p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
		k := newKey()
		for i, guarded := range []bool{true, true, false} {
			hints := make(chan string, 10)
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints <- fmt.Sprint(code, " ", h.Get("Link"))
				return nil
			}})
			answers := make(chan *http.Response, 1)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+p.addr+map[bool]string{true: "/pay", false: "/other"}[guarded], strings.NewReader("x"))
				req.Header.Set("Idempotency-Key", k)
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
				}
				answers <- res
			}()
			replayed := i == 1
			if !replayed {
				g.arrived(t)
				if got := receive(t, "hint over "+protocol, hints); got != "103 </a.css>; rel=preload" {
					t.Errorf("over %s the hint is %q", protocol, got)
				}
				g.open()
			}
			res := receive(t, "answer", answers)
			if res == nil {
				return
			}
			res.Body.Close()
			if res.StatusCode != 201 || res.Header.Get("Link") != "" || (res.Header.Get(replayHeader) == "true") != replayed || len(hints) > 0 {
				t.Errorf("over %s, answer %d: %d, %v, %d more hints", protocol, i, res.StatusCode, res.Header, len(hints))
			}
		}
	}
}

// Answers without a body keep what they say of one.
func TestFaithfulAnswersWithoutABody(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		for name, tc := range map[string]struct {
			method, raw string
			status      int
			length      string
		}{
			"204":                    {"POST", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", 204, ""},
			"205":                    {"POST", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n", 205, "0"},
			"304":                    {"POST", "HTTP/1.1 304 Not Modified\r\nETag: \"7\"\r\nX-A: 1\r\n\r\n", 304, ""},
			"HEAD with a length":     {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nX-A: 1\r\n\r\n", 200, "12345"},
			"HEAD without":           {"HEAD", "HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n", 200, ""},
			"HEAD of a chunked body": {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n", 200, ""},
		} {
			up := newUpstream(t, hijacked(tc.raw))
			p := start(t, setup{store: s, upstream: up.url, routes: payments})
			req := request{method: tc.method, key: newKey()}
			answers := map[string]*response{"unguarded": p.send(t, request{method: tc.method, target: "/other"}).fresh(t, tc.status)}
			if tc.method == "POST" { // HEAD is never guarded
				answers["live"] = p.send(t, req).fresh(t, tc.status)
				answers["replayed"] = p.send(t, req).replays(t, answers["live"])
			}
			for how, res := range answers {
				if got := strings.Join(res.values("Content-Length"), "|"); got != tc.length || res.get("X-A") != "1" || len(res.values("Date")) != 1 || len(res.values("Content-Type")) != 0 {
					t.Errorf("%s, %s: Content-Length %q, want %q:\n%s", name, how, got, tc.length, res)
				}
			}
			up.saw(t, (len(answers)+1)/2)
		}
	})
}

// Redirects are the caller's business.
func TestFaithfulRedirects(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			w.Header().Set("Location", "http://elsewhere.example//a/../b?c=%2F")
			var status int
			fmt.Sscan(string(r.body), &status)
			w.WriteHeader(status)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		for i, status := range []int{301, 302, 303, 307, 308} {
			for _, res := range []*response{
				p.twice(t, request{key: newKey(), body: itoa(status)}, status),
				p.send(t, request{target: "/other", body: itoa(status)}).fresh(t, status),
			} {
				if got := res.get("Location"); got != "http://elsewhere.example//a/../b?c=%2F" {
					t.Errorf("%d: Location %q", status, got)
				}
			}
			up.saw(t, 2*i+2)
		}
	})
}

// What belongs to one connection goes no further, in either direction, and nothing is
// asked that the caller did not ask. (An answer's Connection that also has "close" is
// taken away by net/http before anybody can read the other names: see docs/limits.md.)
func TestFaithfulHopByHop(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, hijacked("HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nConnection: x-other-hop\r\nX-Other-Hop: 2\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nX-End: 1\r\nContent-Length: 1\r\n\r\nx"))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		hops := []string{"X-Hop", "X-Other-Hop", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Te", "Connection", "Upgrade", "Accept-Encoding", "User-Agent"}
		for _, req := range []request{{key: newKey(), body: "x"}, {target: "/other", body: "x"}, {method: "GET", target: "/pay"}} {
			req.header = []string{"Connection: X-Hop, keep-alive", "Connection: x-other-hop", "X-Hop: 1", "X-Other-Hop: 2", "Keep-Alive: 7", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eA==", "TE: gzip", "X-End: 1"}
			res := p.send(t, req).fresh(t, 200)
			got := up.last(t).header
			for _, name := range hops {
				if name == "Te" && strings.Join(got[name], "") == "trailers" {
					continue // our own
				}
				if len(got[name]) > 0 {
					t.Errorf("%s %s: the upstream got %s %q", req.method, req.target, name, got[name])
				}
				if name != "Connection" && len(res.values(name)) > 0 {
					t.Errorf("%s %s: the caller got %s %q", req.method, req.target, name, res.values(name))
				}
			}
			if got.Get("X-End") != "1" || res.get("X-End") != "1" {
				t.Errorf("X-End is lost: %v\n%s", got, res)
			}
			if req.key != "" {
				p.send(t, req).replays(t, res)
			}
		}
	})
}

// Whose word on the original request is passed on is a setting.
func TestFaithfulForwardedHeaders(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	sent := []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 198.51.100.1", "X-Forwarded-Host: shop.example", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.7;proto=https"}
	for server, want := range map[string]map[string]string{
		"": {
			"X-Forwarded-For": "203.0.113.7, 198.51.100.1, 127.0.0.1", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https",
			"Forwarded": `for=203.0.113.7;proto=https, for=127.0.0.1;host="service.example";proto=http`,
		},
		"trusted_proxies: []": {
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "service.example", "X-Forwarded-Proto": "http", "Forwarded": "",
		},
		"trusted_proxies: [192.0.2.0/24, private]": {
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "service.example", "X-Forwarded-Proto": "http", "Forwarded": "",
		},
	} {
		p := start(t, setup{store: memory(), upstream: up.url, server: server, routes: payments})
		k := newKey()
		for _, req := range []request{{key: k, body: "x"}, {target: "/other"}} {
			req.header = sent
			first := p.send(t, req).fresh(t, 201)
			got := up.last(t).header
			for name, value := range want {
				if g := strings.Join(got[name], " | "); g != value {
					t.Errorf("%q, %s: the upstream got %s %q, want %q", server, req.target, name, g, value)
				}
			}
			if req.key != "" { // it is the same request, whatever way it came
				req.header = []string{"X-Forwarded-For: 192.0.2.1"}
				p.send(t, req).replays(t, first)
			}
		}
	}
}
