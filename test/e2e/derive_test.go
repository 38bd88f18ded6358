package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests come without a key, contract §6.

const webhooks = `
  - {name: github, path: /github, missing_header: derive, key_from: [{header: X-GitHub-Delivery}], forward_key: false}
  - {name: stripe, path: /stripe, missing_header: derive, key_from: [{json: /id}], fingerprint: {body: json, ignore: [/pending_webhooks]}, scope_by_route: true}
  - {name: several, path: /several, missing_header: derive, key_from: [{header: X-Event}, {json: /event/id}, {query: request_id}, {form: token}], max_key_length: 20, scope_by_route: true}
  - {name: account, path: /account, missing_header: derive, key_from: [{header: X-Event}], identity_header: X-Account}
  - {name: plain, path: /plain}`

func TestWebhooks(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: webhooks})
		delivery := unique("delivery")
		github := request{target: "/github", body: `{"action":"opened"}`, header: []string{"X-GitHub-Delivery: " + delivery, "X-GitHub-Event: pull_request"}}
		first := p.twice(t, github, 201)
		if got := up.last(t).header.Values("X-GitHub-Delivery"); len(got) != 1 || got[0] != delivery {
			t.Errorf("the upstream got %q", got)
		}
		hidden := github
		hidden.header = append([]string{"Connection: X-GitHub-Delivery"}, github.header...)
		p.send(t, hidden).replays(t, first)
		other := github
		other.body = `{"action":"closed"}`
		p.send(t, other).refused(t, 422, "key_reuse")
		other.header = []string{"X-GitHub-Delivery: " + unique("delivery")}
		p.twice(t, other, 201)
		up.saw(t, 2)

		event := unique("evt")
		stripe := request{target: "/stripe", body: `{"id":"` + event + `","type":"charge.succeeded","pending_webhooks":2}`, header: []string{"Stripe-Signature: t=1,v1=0123456789abcdef"}}
		first = p.send(t, stripe).fresh(t, 201)
		stripe.body = `{"id":"` + event + `","type":"charge.succeeded","pending_webhooks":1}`
		stripe.header = []string{"Stripe-Signature: t=2,v1=fedcba9876543210"}
		p.send(t, stripe).replays(t, first)
		up.saw(t, 3)

		// The same words as a key that was sent, or in another place, are another operation.
		p.twice(t, request{target: "/stripe", key: event, body: stripe.body}, 201)
		p.twice(t, request{target: "/github", key: delivery, body: github.body}, 201)
		p.twice(t, request{target: "/github", header: []string{"X-GitHub-Delivery: " + event}, body: stripe.body}, 201)
		up.saw(t, 6)
	})
}

func TestAKeyThatWasSentWins(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: webhooks})
		one := request{target: "/github", key: newKey(), header: []string{"X-GitHub-Delivery: " + unique("delivery")}}
		first := p.twice(t, one, 201)
		two := one
		two.header = []string{"X-GitHub-Delivery: " + unique("delivery")}
		p.send(t, two).replays(t, first)
		two.key = newKey()
		p.twice(t, two, 201)
		up.saw(t, 2)
		if got := up.last(t).header.Values("Idempotency-Key"); len(got) != 0 {
			t.Errorf("the upstream got %q", got)
		}
		for _, bad := range []string{"Idempotency-Key:", `Idempotency-Key: "abc`, "Idempotency-Key: a b"} {
			p.send(t, request{target: "/github", header: append([]string{bad}, one.header...)}).refused(t, 400, "invalid_key")
		}
		up.saw(t, 2)
	})
}

func TestPlacesOfDerivedKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: webhooks})
		json := func(body string) request { return request{target: "/several", body: body} }
		multi := func(fields ...string) request { return posted(t, "/several", fields...) }
		seen := 0
		for name, req := range map[string]request{
			"header":                    {target: "/several", header: []string{"X-Event: 1"}},
			"header, any bytes":         {target: "/several", header: []string{"X-Event: a b\xff"}},
			"header before JSON":        {target: "/several", header: []string{"X-Event: 2"}, body: `{"event":{"id":"1"}}`},
			"JSON string":               json(`{"event":{"id":"1"}}`),
			"JSON number":               json(`{"event":{"id":1}}`),
			"JSON big number":           json(`{"event":{"id":9007199254740993}}`),
			"JSON the next number":      json(`{"event":{"id":9007199254740992}}`),
			"an empty header, JSON":     {target: "/several", header: []string{"X-Event:"}, body: `{"event":{"id":"2"}}`},
			"query":                     {target: "/several?request_id=1"},
			"query after JSON null":     {target: "/several?request_id=2", body: `{"event":{"id":null}}`},
			"urlencoded form":           encoded("/several", "token=1&a=b"),
			"urlencoded form, in turn":  encoded("/several?request_id=", "token=2"),
			"multipart form":            multi("a=b", "token=3"),
			"multipart form, of a file": multi("token@name=5", "token=4"),
		} {
			t.Run(name, func(t *testing.T) {
				p.twice(t, req, 201)
				seen++
				up.saw(t, seen)
			})
		}
		// The same token by another boundary: the same key, and by bytes another request.
		p.send(t, multi("a=b", "token=3")).refused(t, 422, "key_reuse")

		long := strings.Repeat("secret-", 3)
		for name, tc := range map[string]struct {
			request
			code string
		}{
			"nothing":             {request{target: "/several"}, "missing_key"},
			"all empty":           {request{target: "/several?request_id=", header: []string{"X-Event:"}, body: `{"event":{"id":""}}`}, "missing_key"},
			"a file":              {multi("token@name=5"), "missing_key"},
			"an object":           {json(`{"event":{"id":{}}}`), "missing_key"},
			"header twice":        {request{target: "/several", header: []string{"X-Event: 1", "X-Event: 1"}}, "invalid_key"},
			"header too long":     {request{target: "/several", header: []string{"X-Event: " + long}}, "invalid_key"},
			"member twice":        {json(`{"event":{"id":1,"id":1}}`), "invalid_key"},
			"member too long":     {json(`{"event":{"id":"` + long + `"}}`), "invalid_key"},
			"parameter twice":     {request{target: "/several?request_id=1&request_id=1"}, "invalid_key"},
			"parameter too long":  {request{target: "/several?request_id=" + long}, "invalid_key"},
			"field twice":         {encoded("/several", "token=1&token=1"), "invalid_key"},
			"field too long":      {encoded("/several", "token="+long), "invalid_key"},
			"part twice":          {multi("token=1", "token=1"), "invalid_key"},
			"an underscore twin":  {request{target: "/several", header: []string{"X_Event: 1"}}, "bad_request"},
			"without derive":      {request{target: "/plain", header: []string{"X-Event: 1"}}, "missing_key"},
			"an upgrade":          {request{target: "/several", header: []string{"X-Event: 3", "Connection: Upgrade", "Upgrade: websocket"}}, "bad_request"},
			"without an identity": {request{target: "/account", header: []string{"X-Event: 1"}}, "missing_identity"},
		} {
			t.Run(name, func(t *testing.T) {
				got := p.send(t, tc.request).refused(t, 400, tc.code)
				if tc.code != "bad_request" && strings.Contains(got.Detail, long) {
					t.Errorf("the detail repeats the key: %s", got.Detail)
				}
			})
		}
		up.saw(t, seen)
		if got := p.send(t, request{target: "/several"}).refused(t, 400, "missing_key").Detail; !strings.Contains(got, "X-Event, /event/id of a JSON body") {
			t.Errorf("the detail doesn't name the places: %s", got)
		}

		p.twice(t, request{target: "/account", header: []string{"X-Event: 1", "X-Account: a"}}, 201)
		p.twice(t, request{target: "/account", header: []string{"X-Event: 1", "X-Account: b"}}, 201)
		up.saw(t, seen+2)
		if got := p.metric(t, `idemproxy_rejects_total{reason="invalid_key",route="several"}`); got != 9 {
			t.Errorf("%v invalid keys counted, want 9", got)
		}
	})
}

const clicks = `
  - {name: orders, path: /orders, missing_header: derive, key_from: [{fingerprint: 5s}], fingerprint: {body: form, headers: [Cookie]}}
  - {name: quick, path: /quick, missing_header: derive, key_from: [{fingerprint: 1s}]}
  - {name: unsure, path: /unsure, missing_header: derive, key_from: [{fingerprint: 1s}], lease: 3s}`

func TestADoubleClick(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: clicks})
		click := func(item string) request {
			r := posted(t, "/orders", "item="+item, "count=1")
			r.header = append(r.header, "Cookie: session=0123456789abcdef")
			return r
		}
		running := p.begin(click("chair"))
		g.arrived(t)
		p.send(t, click("chair")).refused(t, 409, "in_progress")
		opened := time.Now()
		g.open()
		first := running.wait(t).fresh(t, 201)
		p.send(t, click("chair")).replays(t, first)
		p.send(t, click("table")).fresh(t, 201)
		other := click("chair")
		other.header[1] = "Cookie: session=fedcba9876543210"
		p.send(t, other).fresh(t, 201)
		up.saw(t, 3)

		// A click that is replayed doesn't begin the window anew.
		var second *response
		eventually(t, "a second order", func() bool {
			second = p.send(t, click("chair"))
			return len(second.values(replayHeader)) == 0
		})
		if since := time.Since(opened); since < 5*time.Second {
			t.Errorf("the window of 5s was over after %v", since)
		}
		p.send(t, click("chair")).replays(t, second.fresh(t, 201))
		up.saw(t, 4)
	})
}

// Of many clicks at once one is executed.
func TestManyClicks(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: clicks})
		req := encoded("/orders", "item=chair")
		running := p.begin(req)
		g.arrived(t)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if res, err := exchange(p.addr, req); err != nil || res.status != 409 {
					t.Errorf("%v %v", res, err)
				}
			})
		}
		all.Wait()
		g.open()
		running.wait(t).fresh(t, 201)
		up.saw(t, 1)
	})
}

// The window is shorter than the lease and than the request.
func TestAClickDuringALongRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := start(t, setup{store: s, upstream: up.url, routes: clicks})
		quick, unsure := request{target: "/quick"}, request{target: "/unsure"} // leases of 30s and 3s
		running := []pending{p.begin(quick), p.begin(unsure)}
		g.arrived(t)
		g.arrived(t)
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			p.send(t, quick).refused(t, 409, "in_progress")
			p.send(t, unsure).refused(t, 409, "in_progress")
		}
		g.open()
		for _, r := range running {
			r.wait(t).fresh(t, 201)
		}
		up.saw(t, 2)
	})
}

// What nobody knows is held for the window, and at least for the lease; not for the TTL.
func TestAClickOfUnknownOutcome(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, dropped())
		p := start(t, setup{store: s, upstream: up.url, routes: clicks})
		began := time.Now()
		req := request{target: "/unsure"}
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, req).refused(t, 409, "outcome_unknown")
		up.answers(created)
		eventually(t, "executed again", func() bool { return p.send(t, req).status == 201 })
		if since := time.Since(began); since < 2900*time.Millisecond {
			t.Errorf("it was held for %v, and the lease is 3s", since)
		}
		up.saw(t, 2)
	})
}
