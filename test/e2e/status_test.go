package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// These tests are about server.status_path, where callers ask what is known of a key.

type standing struct {
	State     string    `json:"state"`
	Status    int       `json:"status"`
	Completed time.Time `json:"completed_at"`
	NotStored bool      `json:"response_not_stored"`
}

// asks asks about a request's key, with the headers of that request.
func (p *proxy) asks(t *testing.T, req request) standing {
	t.Helper()
	res := p.send(t, request{method: "GET", target: "/.idempotency?route=payments", key: req.key, header: req.header})
	var s standing
	if err := json.Unmarshal(res.body, &s); err != nil || res.status != 200 || res.get("Content-Type") != "application/json" || res.get("Cache-Control") != "no-store" {
		t.Fatalf("%v, want a 200 with JSON:\n%s", err, res)
	}
	if len(res.values(replayHeader)) > 0 || strings.Contains(string(res.body), "execution") {
		t.Errorf("it tells the recorded answer:\n%s", res)
	}
	return s
}

func TestStatusForCallers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{
			store: s, upstream: up.url, server: "status_path: /.idempotency",
			routes: accountPayments + "\n  - {name: orders, path: /orders, identity_header: X-Account, replay_scope_headers: []}",
		})
		mine := request{key: newKey(), body: "x", header: []string{"X-Account: account-0123456789", "Authorization: Bearer credential-0123456789"}}
		if got := p.asks(t, mine); got != (standing{State: "free"}) {
			t.Errorf("before: %+v", got)
		}
		running := p.begin(mine)
		g.arrived(t)
		if got := p.asks(t, mine); got != (standing{State: "in-progress"}) {
			t.Errorf("while it runs: %+v", got)
		}
		g.open()
		first := running.wait(t).fresh(t, 201)
		got := p.asks(t, mine)
		if got.State != "completed" || got.Status != 201 || time.Since(got.Completed).Abs() > time.Hour || got.NotStored {
			t.Errorf("after: %+v", got)
		}
		stranger, changed := mine, mine
		stranger.header = []string{"X-Account: account-9876543210", mine.header[1]}
		changed.header = []string{mine.header[0], "Authorization: Bearer another-0123456789"}
		for _, other := range []request{stranger, changed} {
			if got := p.asks(t, other); got != (standing{State: "free"}) {
				t.Errorf("another's: %+v", got)
			}
		}
		if res := p.send(t, request{method: "GET", target: "/.idempotency?route=orders", key: mine.key, header: mine.header[:1]}); !strings.Contains(string(res.body), `"free"`) {
			t.Errorf("a route that is not bound to credentials tells of one that is:\n%s", res)
		}
		p.send(t, mine).replays(t, first)

		up.answers(dropped())
		lost := mine
		lost.key = newKey()
		p.send(t, lost).refused(t, 502, "upstream_failed")
		if got := p.asks(t, lost); got != (standing{State: "unknown"}) {
			t.Errorf("unknown: %+v", got)
		}
		up.saw(t, 2)
		for state, n := range map[string]float64{"free": 3, "in-progress": 1, "completed": 1, "unknown": 1} {
			if got := p.metric(t, `idemproxy_status_requests_total{route="payments",state="`+state+`"}`); got != n {
				t.Errorf("%s: %v counted, want %v", state, got, n)
			}
		}
		p.logged(t, `"msg":"status"`, `"state":"completed"`, `"key_hash"`)
	})
}

// A question is checked as a request would be; what is no question is the upstream's.
func TestStatusIsChecked(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{
		store: memory(), upstream: up.url, server: "status_path: /.idempotency",
		routes: accountPayments + "\n  - {name: orders, path: /orders, mode: off}\n  - {name: refunds, path: /refunds, mode: observe}",
	})
	ask := func(query string, key string, header ...string) *response {
		t.Helper()
		return p.send(t, request{method: "GET", target: "/.idempotency" + query, key: key, header: header})
	}
	ask("", "key-1").refused(t, 400, "bad_request")
	ask("?route=orders", "key-1").refused(t, 400, "bad_request")
	ask("?route=not-a-route-at-all", "key-1").refused(t, 400, "bad_request")
	ask("?route=payments&route=refunds", "key-1").refused(t, 400, "bad_request")
	ask("?route=payments;x", "key-1").refused(t, 400, "bad_request")
	ask("?route=payments", "").refused(t, 400, "missing_key")
	ask("?route=payments", "key 1").refused(t, 400, "invalid_key")
	ask("?route=payments", "key-1").refused(t, 400, "missing_identity")
	ask("?route=payments", "key-1", "X-Account: account-0123456789", "X_Account: account-9876543210").refused(t, 400, "bad_request")
	up.saw(t, 0)
	p.send(t, request{method: "POST", target: "/.idempotency"}).fresh(t, 201)
	p.send(t, request{method: "GET", target: "/.idempotency/x"}).fresh(t, 201)
	up.saw(t, 2)

	plain := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	plain.send(t, request{method: "GET", target: "/.idempotency", key: "key-1"}).fresh(t, 201)
	up.saw(t, 3)
}
