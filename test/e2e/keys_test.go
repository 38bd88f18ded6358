package e2e

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// These tests are about what operators do to keys by hand.

// A knownKey is what `keys show --json` tells.
type knownKey struct {
	Hash   string `json:"key_hash"`
	State  string `json:"state"`
	Route  string `json:"route"`
	Owner  string `json:"owner"`
	Status int    `json:"status"`
}

// keys runs `idemproxy keys` with the proxy's own configuration.
func (p *proxy) keys(t *testing.T, command string, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	exit, stdout, stderr = once(t, append([]string{"keys", command, "--config", p.file}, args...)...)
	for _, s := range p.secrets {
		if strings.Contains(stdout+stderr, s) {
			t.Errorf("keys %s prints %q, which a caller sent", command, s)
		}
	}
	return exit, stdout, stderr
}

// show is what is known of a request's key.
func (p *proxy) show(t *testing.T, req request) knownKey {
	t.Helper()
	exit, stdout, stderr := p.keys(t, "show", "--json", "--route", "payments", "--key", req.key, "-H", "X-Account: account-0123456789")
	var k knownKey
	if err := json.Unmarshal([]byte(stdout), &k); exit != 0 || err != nil {
		t.Fatalf("keys show: exit %d, %v\n%s%s", exit, err, stdout, stderr)
	}
	return k
}

func (p *proxy) wantState(t *testing.T, req request, state string) knownKey {
	t.Helper()
	k := p.show(t, req)
	if k.State != state || state != "free" && k.Route != "payments" {
		t.Fatalf("known of the key: %+v, want %s", k, state)
	}
	return k
}

const accountPayments = `  - {name: payments, path: /pay, identity_header: X-Account}`

// An unknown outcome is found, seen and freed, and then the key runs once more; every
// proxy logs and counts that, and none tells whose key it was.
func TestAnOperatorReleasesAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := sharedRedis(t)
	up := newUpstream(t, dropped())
	p := start(t, setup{store: s, upstream: up.url, routes: accountPayments})
	other := start(t, setup{store: s, upstream: up.url, routes: accountPayments})
	req := request{key: newKey(), body: `{"amount":100}`, header: []string{"X-Account: account-0123456789"}}
	p.wantState(t, req, "free")
	p.send(t, req).refused(t, 502, "upstream_failed")
	other.send(t, req).refused(t, 409, "outcome_unknown")

	k := p.wantState(t, req, "unknown")
	exit, list, stderr := other.keys(t, "list", "--state", "unknown", "--json")
	var listed knownKey
	if err := json.Unmarshal([]byte(list), &listed); exit != 0 || err != nil || listed != k {
		t.Fatalf("keys list: exit %d, %v, %+v, want %+v alone\n%s", exit, err, listed, k, stderr)
	}
	if exit, stdout, stderr := p.keys(t, "release", "--hash", k.Hash); exit != 0 || !strings.HasPrefix(stdout, "released "+k.Hash+" (it was unknown, route payments, owner ") {
		t.Fatalf("keys release: exit %d\n%s%s", exit, stdout, stderr)
	}
	p.wantState(t, req, "free")

	up.answers(created)
	first := other.send(t, req).fresh(t, 201)
	p.send(t, req).replays(t, first)
	up.saw(t, 2)
	if k := p.wantState(t, req, "completed"); k.Status != 201 {
		t.Errorf("known of the record: %+v", k)
	}
	if exit, _, stderr := p.keys(t, "release", "--yes", "--hash", k.Hash); exit != 1 || !strings.Contains(stderr, "recorded answer") {
		t.Errorf("release of a record: exit %d\n%s", exit, stderr)
	}
	for _, p := range []*proxy{p, other} {
		eventually(t, "counted", func() bool { return p.metric(t, `idemproxy_operator_actions_total{action="release"}`) == 1 })
		line := `"msg":"an operator removed keys","action":"release","keys":1`
		if log := p.log.String(); strings.Count(log, line) != 1 || !strings.Contains(log, `"key_hash":"`+k.Hash+`","state":"unknown","route":"payments"`) {
			t.Errorf("the release is not logged once:\n%s", log)
		}
	}
}

// A claim that is freed while its request runs is its owner's no more: what comes after it
// stays.
func TestAnOperatorReleasesALiveClaim(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	s := sharedRedis(t)
	p := start(t, setup{store: s, upstream: up.url, routes: accountPayments})
	req := request{key: newKey(), body: `{"amount":100}`, header: []string{"X-Account: account-0123456789"}}
	running := p.begin(req)
	g.arrived(t)
	k := p.wantState(t, req, "in-progress")
	if exit, _, stderr := p.keys(t, "release", "--hash", k.Hash); exit != 1 || !strings.Contains(stderr, "--yes") {
		t.Fatalf("release without a word: exit %d\n%s", exit, stderr)
	}
	p.wantState(t, req, "in-progress")
	if exit, stdout, stderr := p.keys(t, "release", "--yes", "--hash", k.Hash); exit != 0 || !strings.Contains(stdout, "it was in-progress") {
		t.Fatalf("release: exit %d\n%s%s", exit, stdout, stderr)
	}
	up.answers(created)
	second := p.send(t, req).fresh(t, 201)
	g.open()
	if res := running.wait(t); res.status != 201 || bytes.Equal(res.body, second.body) {
		t.Errorf("the first caller gets %d %s", res.status, res.body)
	}
	p.send(t, req).replays(t, second)
	up.saw(t, 2)
	eventually(t, "the lost lease is counted", func() bool { return p.metric(t, `idemproxy_lost_leases_total{route="payments"}`) == 1 })
}
