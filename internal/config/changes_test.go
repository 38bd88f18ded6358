package config

import (
	"slices"
	"testing"
)

func loaded(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Load(Sources{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestChanges(t *testing.T) {
	const before = "store: {key_prefix: a}\nlog: {level: info}\nroutes: [{name: a, path: /a}, {name: b, path: /b, ttl: 1h}]\n"
	for name, tc := range map[string]struct {
		after string
		want  []string
	}{
		"nothing":                   {before, nil},
		"a default that is written": {before + "limits: {max_concurrent: 0}\n", nil},
		"values":                    {"store: {key_prefix: b}\nlog: {level: debug}\nroutes: [{name: a, path: /a}, {name: b, path: /b, ttl: 2h, require_tenant: false, tenant_header: X}]\n", []string{"store.key_prefix", "log.level", "routes[1].ttl", "routes[1].tenant_header", "routes[1].require_tenant"}},
		"a route less":              {"store: {key_prefix: a}\nroutes: [{name: a, path: /a}]\n", []string{"routes"}},
		"defaults, where taken":     {before + "defaults: {ttl: 3h}\n", []string{"routes[0].ttl"}},
		"lists":                     {before + "server: {trusted_proxies: []}\n", []string{"server.trusted_proxies"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := loaded(t, before).Changes(loaded(t, tc.after))
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReloadable(t *testing.T) {
	for path, want := range map[string]bool{
		"routes": true, "routes[3].ttl": true, "limits.max_concurrent": true, "log.level": true, "log.access": true,
		"log.format": false, "log": false, "store.type": false, "server.listen": false, "limitsx": false, "upstream.url": false,
	} {
		if Reloadable(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
