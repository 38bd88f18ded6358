package e2e

import (
	"strings"
	"testing"
)

// These tests ask in which scope a key counts.

func TestCallersDoNotShareKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: account, path: /account, identity_header: X-Account}
  - {name: two, path: /two, identity: {headers: [X-Account, X-User]}}
  - {name: anonymous, path: /anonymous, identity: {headers: [X-Account], on_missing: anonymous}}
  - {name: tenant, path: /tenant, tenant_header: X-Tenant, identity_header: X-Account}
  - {name: maybe, path: /maybe, tenant_header: X-Tenant, require_tenant: false}
  - {name: long, path: /long, identity_header: X-Account, max_scope_length: 10}`})
		k := newKey()
		seen := 0
		// Each line is another operation, although they look alike.
		for _, tc := range []struct {
			target, key string
			header      []string
		}{
			{"/account", "c", []string{"X-Account: a:b"}},
			{"/account", "b:c", []string{"X-Account: a"}},
			{"/account", "a:b:c", []string{"X-Account: a:b:c"}},
			{"/account", k, []string{"X-Account: a"}},
			{"/account", k, []string{"X-Account: A"}},
			{"/account", k, []string{"X-Account: a,b"}},
			{"/two", k, []string{"X-Account: a", "X-User: bc"}},
			{"/two", k, []string{"X-Account: ab", "X-User: c"}},
			{"/two", k, []string{"X-Account: a:b", "X-User: c"}},
			{"/two", k, []string{"X-Account: a", "X-User: b:c"}},
			{"/two", k, []string{"X-Account: bc", "X-User: a"}},
			{"/anonymous", k, nil},
			{"/anonymous", k, []string{"X-Account: b"}},
			{"/anonymous", k, []string{"X-Account: anonymous"}},
			{"/tenant", k, []string{"X-Tenant: a", "X-Account: b"}},
			{"/tenant", k, []string{"X-Tenant: b", "X-Account: a"}},
			{"/tenant", k, []string{"X-Tenant: ab", "X-Account: c"}},
			{"/tenant", k, []string{"X-Tenant: a", "X-Account: bc"}},
			{"/maybe", k + "2", nil},
			{"/maybe", k + "2", []string{"X-Tenant: a"}},
			{"/long", k, []string{"X-Account: 0123456789"}},
		} {
			req := request{target: tc.target, key: tc.key, header: tc.header}
			first := p.send(t, req)
			if first.status != 201 {
				t.Fatalf("%v: %s", tc, first)
			}
			first.fresh(t, 201)
			seen++
			p.send(t, req).replays(t, first)
			up.saw(t, seen)
		}
	})
}

func TestOneKeyOnTwoRoutes(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: a, path: /a}
  - {name: b, path: /b}
  - {name: own-a, path: /own/a, scope_by_route: true}
  - {name: own-b, path: /own/b, scope_by_route: true}`})
		k := newKey()
		first := p.send(t, request{target: "/a", key: k}).fresh(t, 201)
		p.send(t, request{target: "/b", key: k}).refused(t, 422, "key_reuse")
		p.send(t, request{target: "/a", key: k}).replays(t, first)
		up.saw(t, 1)

		own := p.send(t, request{target: "/own/a", key: k}).fresh(t, 201)
		p.send(t, request{target: "/own/b", key: k}).fresh(t, 201)
		p.send(t, request{target: "/own/a", key: k}).replays(t, own)
		up.saw(t, 3)
	})
}

func TestAnotherVersionForgets(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newUpstream(t, created)
		s := setup{store: shared, upstream: up.url, routes: `  - {name: payments, path: /pay, version: "1"}`}
		req := request{key: newKey(), body: "x"}
		first := start(t, s).send(t, req).fresh(t, 201)
		s.routes = `  - {name: payments, path: /pay, version: "2"}`
		start(t, s).send(t, req).fresh(t, 201)
		s.routes = `  - {name: payments, path: /pay, version: "1"}`
		start(t, s).send(t, req).replays(t, first)
		up.saw(t, 2)
	})
}

// Nothing in the store tells who called, with which key, or what credentials.
func TestTheStoreHasNoCredentials(t *testing.T) {
	t.Parallel()
	server := needRedis(t)
	s := sharedRedis(t)
	up := newUpstream(t, created)
	p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, tenant_header: X-Tenant, identity_header: X-Account}`})
	k := newKey()
	secrets := []string{"tenant-0123456789", "account-0123456789", "bearer-0123456789", "request-0123456789", k}
	p.send(t, request{key: k, body: secrets[3], header: []string{"X-Tenant: " + secrets[0], "X-Account: " + secrets[1], "Authorization: Bearer " + secrets[2]}}).fresh(t, 201)
	key := onlyKey(t, server, s.prefix)
	value, err := server.client(t).Get(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(key, secret) || strings.Contains(value, secret) {
			t.Errorf("Redis has %q", secret)
		}
	}
}
