package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// These tests are about replay_auth: who may not have an answer any more gets none.

// asking is a proxy whose payments ask this service before a replay.
func asking(t *testing.T, s storage, up, auth *upstream, more string) *proxy {
	t.Helper()
	return start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`
  - {name: payments, path: "/pay/{rest...}", max_response_body: 1KiB, replay_auth: {url: "%s/check?for=pay"%s}}
  - {name: quiet, path: /quiet}`, auth.url, more)})
}

func paying(key string, header ...string) request {
	return request{target: "/pay/a%2Fb?x=1&y=2", key: key, body: "amount=123456", header: append([]string{"Authorization: Bearer credential-0123456789"}, header...)}
}

func TestAPermissionTakenAwayStopsReplays(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, auth := newUpstream(t, created), newUpstream(t, text(204, ""))
		p := asking(t, s, up, auth, "")
		k := newKey()
		first := p.send(t, paying(k)).fresh(t, 201)
		auth.saw(t, 0) // only replays ask
		p.send(t, paying(k)).replays(t, first)
		auth.saw(t, 1)

		// The answer of the service is the caller's, whatever it is.
		for _, answer := range []handler{
			func(w http.ResponseWriter, _ *received) {
				w.Header().Add("Set-Cookie", "a=1")
				w.Header().Add("Set-Cookie", "b=2")
				w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope"`)
				w.Header().Set("X-Idempotent-Replay", "true")
				w.WriteHeader(403)
				_, _ = w.Write([]byte("your account is closed"))
			},
			func(w http.ResponseWriter, _ *received) {
				w.Header().Set("Location", "/login")
				w.WriteHeader(302)
			},
			text(401, "who are you?"), text(404, ""), text(500, "no"), text(503, strings.Repeat("x", 1<<20)),
		} {
			auth.answers(answer)
			direct, err := exchange(auth.addr, request{method: "GET", target: "/check"})
			if err != nil {
				t.Fatal(err)
			}
			got := p.send(t, paying(k)).fresh(t, direct.status)
			if !bytes.Equal(got.body, direct.body) {
				t.Errorf("%d: another body: %.100q", got.status, got.body)
			}
			for _, name := range []string{"Set-Cookie", "WWW-Authenticate", "Location", "Content-Type"} {
				if got, want := got.values(name), direct.values(name); !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}
		up.saw(t, 1)
		auth.answers(text(200, "welcome"))
		p.send(t, paying(k)).replays(t, first)
		p.send(t, paying(newKey())).fresh(t, 201) // permission to act is the service's own to check
		up.saw(t, 2)
		for result, want := range map[string]float64{"allowed": 2, "refused": 6, "unavailable": 0} {
			if got := p.metric(t, fmt.Sprintf(`idemproxy_replay_auths_total{result=%q,route="payments"}`, result)); got != want {
				t.Errorf("%s %v times, want %v", result, got, want)
			}
		}
		if got := p.metric(t, `idemproxy_rejects_total{reason="replay_refused",route="payments"}`); got != 6 {
			t.Errorf("%v refusals counted, want 6", got)
		}
		if !strings.Contains(p.log.String(), `"replay_auth":"refused"`) {
			t.Error("the log doesn't tell of refusals")
		}
	})
}

// The question names the request, as forward-auth does, and nothing of it is made up by
// the caller.
func TestTheQuestionOfReplayAuth(t *testing.T) {
	t.Parallel()
	up, auth := newUpstream(t, created), newUpstream(t, text(200, ""))
	p := asking(t, memory(), up, auth, "")
	k := newKey()
	r := paying(k, "X-Forwarded-Uri: /public", "X-Forwarded-Method: GET", "X-Original-URL: http://service.example/public", "X_Forwarded_Uri: /public", "X_Original_URL: /public",
		"Cookie: c=1", "X-Hop: 1", "Connection: X-Hop, keep-alive, Idempotency-Key", "TE: trailers", "Accept: text/plain", "Expect: ")
	first := p.send(t, r).fresh(t, 201)
	p.send(t, r).replays(t, first)
	got := auth.last(t)
	if got.method != "GET" || got.target != "/check?for=pay" || got.host != auth.addr || len(got.body) > 0 {
		t.Errorf("%s %s to %s with %d bytes", got.method, got.target, got.host, len(got.body))
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer credential-0123456789", "Cookie": "c=1", "Accept": "text/plain", "Idempotency-Key": k,
		"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/pay/a%2Fb?x=1&y=2", "X-Forwarded-Host": "service.example", "X-Forwarded-Proto": "http", "X-Forwarded-For": "127.0.0.1",
		"X-Original-Method": "POST", "X-Original-Uri": "/pay/a%2Fb?x=1&y=2", "X-Original-Url": "http://service.example/pay/a%2Fb?x=1&y=2",
		"X-Hop": "", "Te": "", "Connection": "", "Content-Length": "", "Expect": "", "Transfer-Encoding": "", "X_forwarded_uri": "", "X_original_url": "",
	} {
		if values := got.header.Values(name); strings.Join(values, "|") != want {
			t.Errorf("%s: %q, want %q", name, values, want)
		}
	}
}

func TestReplayAuthIsAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up, auth := newUpstream(t, created), newUpstream(t, text(204, ""))
		p := asking(t, s, up, auth, ", timeout: 1s")
		k := newKey()
		first := p.send(t, paying(k)).fresh(t, 201)
		for name, answer := range map[string]handler{
			"slow":      held(g, text(204, "")),
			"dropped":   dropped(),
			"too large": text(403, strings.Repeat("x", 1<<20+1)),
			"cut":       hijacked("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\nhalf"),
			"switching": hijacked("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
			"switched":  switchedForever(g),
			"no HTTP":   hijacked("hello\r\n\r\n"),
		} {
			t.Log(name)
			auth.answers(answer)
			p.send(t, paying(k)).refused(t, 503, "replay_auth_unavailable")
		}
		g.open()
		auth.answers(text(204, ""))
		p.send(t, paying(k)).replays(t, first)
		auth.server.Close()
		p.send(t, paying(k)).refused(t, 503, "replay_auth_unavailable")
		p.send(t, paying(newKey())).fresh(t, 201)
		up.saw(t, 2)
		if got := p.metric(t, `idemproxy_replay_auths_total{result="unavailable",route="payments"}`); got != 8 {
			t.Errorf("unavailable %v times, want 8", got)
		}
	})
}

// switchedForever switches protocols and says no more.
func switchedForever(g *gate) handler {
	return func(w http.ResponseWriter, _ *received) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
		g.pass()
	}
}

// What tells something of a recorded answer asks too; what tells nothing doesn't.
func TestWhatReplayAuthProtects(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, auth := newUpstream(t, text(200, strings.Repeat("x", 2000))), newUpstream(t, text(403, "no"))
		p := asking(t, s, up, auth, "")
		large := newKey()
		p.send(t, paying(large)).fresh(t, 200)
		p.send(t, paying(large)).fresh(t, 403)
		auth.answers(text(204, ""))
		p.send(t, paying(large)).refused(t, 409, "response_not_stored")
		auth.saw(t, 2)

		other := paying(large)
		other.body = "amount=654321"
		p.send(t, other).refused(t, 422, "key_reuse")
		other = paying(large)
		other.header = nil
		p.send(t, other).refused(t, 409, "replay_scope")
		p.twice(t, request{target: "/quiet", key: newKey()}, 200)
		auth.saw(t, 2)
	})
}

// Nothing is held while replay_auth is asked: many ask at once, and a caller that leaves
// takes its question along.
func TestManyQuestionsAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up, auth := newUpstream(t, created), newUpstream(t, text(204, ""))
		p := asking(t, s, up, auth, ", timeout: 60s")
		k := newKey()
		first := p.send(t, paying(k)).fresh(t, 201)
		gone := make(chan struct{})
		auth.answers(func(w http.ResponseWriter, r *received) {
			g.arrivals <- struct{}{}
			select {
			case <-g.opened:
				w.WriteHeader(204)
			case <-r.ctx.Done():
				gone <- struct{}{}
			}
		})
		var all []pending
		for range 20 {
			all = append(all, p.begin(paying(k)))
		}
		for range 20 {
			g.arrived(t)
		}
		leaver := p.dial(t)
		if _, err := leaver.Write(paying(k).bytes()); err != nil {
			t.Fatal(err)
		}
		g.arrived(t)
		leaver.Close()
		receive(t, "end of the question", gone)
		g.open()
		for _, d := range all {
			d.wait(t).replays(t, first)
		}
		up.saw(t, 1)
		eventually(t, "counted", func() bool { return p.metric(t, `idemproxy_in_flight{route="payments"}`) == 0 })
		if got := p.metric(t, `idemproxy_replay_auths_total{result="unavailable",route="payments"}`); got != 0 {
			t.Errorf("a caller that left was counted as trouble")
		}
	})
}
