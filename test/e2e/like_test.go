package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// These tests walk what the documents promise that idemproxy grew out of, each against the
// configuration that is to behave like it. docs/coming-from.md says where we differ.

// startLike starts a proxy with one of the shipped configurations.
func startLike(t *testing.T, name string, up *upstream) *proxy {
	t.Helper()
	redis := needRedis(t)
	file, err := filepath.Abs("../../configs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, file: file, addr: local(freePort()), admin: local(freePort())}
	p.environment = []string{
		"UPSTREAM_URL=" + up.url, "REDIS_URL=redis://" + local(redis.port) + "/0",
		"IDEMPROXY_SERVER_LISTEN=" + p.addr, "IDEMPROXY_ADMIN_LISTEN=" + p.admin, "IDEMPROXY_SERVER_SHUTDOWN_GRACE=5s",
	}
	p.run("serve", "--config", p.file)
	t.Cleanup(p.finish)
	p.waitReady()
	return p
}

// saysSimply checks a refusal as {"error": …}.
func (r *response) saysSimply(t *testing.T, status int) {
	t.Helper()
	var body struct{ Error string }
	if err := json.Unmarshal(r.body, &body); err != nil || r.status != status || body.Error == "" || r.get("Content-Type") != "application/json" {
		t.Fatalf("want a simple %d (%v); the answer:\n%s", status, err, r)
	}
	r.checkSilent(t)
}

func TestLikeActorTS(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startLike(t, "like-actor-ts.yaml", up)
	pay := func(key, target, body string, header ...string) request {
		return request{target: "/api/payments" + target, key: key, body: body, header: header}
	}

	// The second time the answer comes from the record, whatever its status is.
	p.twice(t, pay(newKey(), "", "100"), 201)
	for _, status := range []int{400, 401, 429, 500, 503} {
		up.answers(text(status, "failed"))
		p.twice(t, pay(newKey(), "", "100"), status)
	}
	up.answers(created)
	up.saw(t, 6)

	// Method, path, canonical query and body are the request.
	k := newKey()
	first := p.send(t, pay(k, "?a=1&b=2&tag=a&tag=b", "x")).fresh(t, 201)
	p.send(t, pay(k, "?b=2&tag=a&a=1&tag=b", "x")).replays(t, first)
	p.send(t, pay(k, "?a=1&b=2&tag=b&tag=a", "x")).saysSimply(t, 422)
	p.send(t, pay(k, "?a=9999&b=2&tag=a&tag=b", "x")).saysSimply(t, 422)
	p.send(t, pay(k, "?a=1&b=2&tag=a&tag=b", "y")).saysSimply(t, 422)
	up.saw(t, 7)

	// The header and the identity are checked; the refusal repeats neither.
	p.send(t, pay("", "", "x")).saysSimply(t, 400)
	p.send(t, pay(strings.Repeat("k", 256), "", "x")).saysSimply(t, 400)
	p.send(t, pay("spaced out key", "", "x")).saysSimply(t, 400)
	p.send(t, pay(newKey(), "", "x", "X-Account: "+strings.Repeat("a", 256))).saysSimply(t, 400)
	p.send(t, pay(strings.Repeat("k", 255-len(k))+k, "", "x", "X-Account: "+strings.Repeat("a", 255))).fresh(t, 201)
	up.saw(t, 8)

	// A caller never gets the answer of another one.
	k = newKey()
	p.twice(t, pay(k, "", "x", "X-Account: a"), 201)
	p.twice(t, pay(k, "", "x", "X-Account: b"), 201)
	p.twice(t, pay(k, "", "x"), 201)
	up.saw(t, 11)

	// Of two at the same time the second is refused at once.
	g := newGate(t)
	up.answers(held(g, created))
	k = newKey()
	running := p.begin(pay(k, "", "x"))
	g.arrived(t)
	p.send(t, pay(k, "", "x")).simply(t, 409, "in_progress", "idempotency-key in-flight; retry shortly")
	g.open()
	p.send(t, pay(k, "", "x")).replays(t, running.wait(t).fresh(t, 201))
	up.saw(t, 12)
	up.answers(created)

	// pass-through runs the handler without deduplication; other methods are not guarded.
	for range 2 {
		p.send(t, request{target: "/api/orders/7", body: "x"}).fresh(t, 201)
		p.send(t, request{method: "GET", target: "/api/payments", key: k}).fresh(t, 201)
	}
	up.saw(t, 16)
	p.twice(t, request{method: "DELETE", target: "/api/orders/7", key: newKey()}, 201)
}

func TestLikeCQRSDDD(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startLike(t, "like-cqrs-ddd.yaml", up)
	caller := func(tenant, user, digest string) []string {
		return []string{"X-Tenant-Id: " + tenant, "X-User-Id: " + user, "X-Ability-Digest: " + digest}
	}
	charge := func(key, body string, header []string) request {
		return request{target: "/commands/charge-payment", key: key, body: body, header: header}
	}
	alice := caller("acme", "alice", "may-charge-0123456789")

	// Once for each key, and each of tenant, principal and action is a part of it.
	k := newKey()
	first := p.twice(t, charge(k, "100", alice), 201)
	p.twice(t, charge(k, "100", caller("acme", "bob", "may-charge-0123456789")), 201)
	p.twice(t, charge(k, "100", caller("other", "alice", "may-charge-0123456789")), 201)
	p.twice(t, request{target: "/commands/create-invoice", key: k, body: "100", header: alice}, 201)
	up.saw(t, 4)

	// The three conflicts.
	p.send(t, charge(k, "999", alice)).refused(t, 422, "key_reuse")
	p.send(t, charge(k, "100", caller("acme", "alice", "may-nothing-0123456789"))).refused(t, 409, "replay_scope")
	p.send(t, charge(k, "100", alice)).replays(t, first)
	g := newGate(t)
	up.answers(held(g, created))
	k = newKey()
	running := p.begin(charge(k, "100", alice))
	g.arrived(t)
	p.send(t, charge(k, "100", alice)).refused(t, 409, "in_progress")
	g.open()
	running.wait(t).fresh(t, 201)
	up.answers(created)

	// No partition, no execution; no operation: by the route.
	up.saw(t, 5)
	p.send(t, charge(newKey(), "1", alice[1:])).refused(t, 400, "missing_identity")
	p.send(t, charge(newKey(), "1", alice[:1])).refused(t, 400, "missing_identity")
	p.send(t, charge("", "1", alice)).refused(t, 400, "missing_key")
	up.saw(t, 5)
	p.send(t, request{target: "/commands/create-invoice", body: "1"}).fresh(t, 201)
	up.saw(t, 6)

	// releaseOnError: a command that failed may be sent again.
	k = newKey()
	for _, status := range []int{409, 422, 500, 503} {
		up.answers(text(status, "failed"))
		p.send(t, charge(k, "100", alice)).fresh(t, status)
	}
	up.answers(created)
	p.twice(t, charge(k, "100", alice), 201)
	up.saw(t, 11)

	// Where we differ: an answer that was lost may have been a charge.
	up.answers(dropped())
	k = newKey()
	p.send(t, charge(k, "100", alice)).refused(t, 502, "upstream_failed")
	p.send(t, charge(k, "100", alice)).refused(t, 409, "outcome_unknown")
	up.saw(t, 12)
}

func TestLikeCaptainDNS(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startLike(t, "like-captaindns.yaml", up)
	const key1, key2 = "Authorization: Bearer cdns_live_0123456789abcdef", "Authorization: Bearer cdns_live_fedcba9876543210"
	score := func(key, body string, header ...string) request {
		return request{target: "/public/v1/deliverability/score", key: key, body: body, header: header}
	}

	// The second call gets the stored answer, marked.
	k := newKey()
	body := `{"email":"contact@captaindns.com"}`
	first := p.twice(t, score(k, body, key1), 201)
	up.saw(t, 1)

	// Another body is a conflict, by a single character; another path is none.
	conflict := p.send(t, score(k, body+" ", key1))
	var problem struct{ Code string }
	if err := json.Unmarshal(conflict.body, &problem); err != nil || conflict.status != http.StatusConflict || problem.Code != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("want 409 IDEMPOTENCY_CONFLICT (%v); the answer:\n%s", err, conflict)
	}
	conflict.checkSilent(t)
	other := score(k, body, key1)
	other.target = "/public/v1/other?x=1"
	p.send(t, other).replays(t, first)
	up.saw(t, 1)

	// Each API key has a name space of its own.
	p.twice(t, score(k, body, key2), 201)
	p.twice(t, score(k, body), 201)
	up.saw(t, 3)

	// The header is optional, only POST is guarded, and the key has its bounds.
	for range 2 {
		p.send(t, score("", body, key1)).fresh(t, 201)
		put := score(k, body, key1)
		put.method = "PUT"
		p.send(t, put).fresh(t, 201)
	}
	up.saw(t, 7)
	p.send(t, score(strings.Repeat("k", 256), body, key1)).refused(t, 400, "invalid_key")
	p.send(t, score("with space", body, key1)).refused(t, 400, "invalid_key")
	up.saw(t, 7)

	// Only success is stored.
	k = newKey()
	for _, status := range []int{302, 401, 404, 422, 500} {
		up.answers(text(status, "no"))
		p.send(t, score(k, body, key1)).fresh(t, status)
	}
	up.answers(created)
	p.twice(t, score(k, body, key1), 201)
	up.saw(t, 13)
}
