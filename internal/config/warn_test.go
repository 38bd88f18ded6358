package config

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string // the beginnings of the warnings, after the file's name
	}{
		"nothing":                   {"routes: [{name: a, path: /a}]", nil},
		"no identity, no scope":     {"routes:\n- {name: a, path: /a, replay_scope_headers: []}", []string{"2:45: warning: routes[0].replay_scope_headers: is empty, and nothing says who is calling"}},
		"a header":                  {"routes: [{name: a, path: /a, replay_scope_headers: [], identity_header: X-A}]", nil},
		"a token":                   {"routes: [{name: a, path: /a, replay_scope_headers: [], identity: {jwt: {claim: sub, jwks_file: f}}}]", nil},
		"a tenant":                  {"routes: [{name: a, path: /a, replay_scope_headers: [], tenant_header: X-T}]", nil},
		"nothing is replayed there": {"routes: [{name: a, path: /a, replay_scope_headers: [], mode: observe}]", nil},
		"shared by two routes, said once": {
			"defaults: {ttl: 10m}\nroutes: [{name: a, path: /a}, {name: b, path: /b}, {name: c, path: /c, ttl: 59m59s}, {name: d, path: /d, ttl: 1h}]",
			[]string{"1:17: warning: defaults.ttl: is 10m0s: a client", "2:77: warning: routes[2].ttl: is 59m59s"},
		},
		"of use in one route":      {"defaults: {wait_timeout: 5s}\nroutes: [{name: a, path: /a}, {name: b, path: /b, in_flight: wait}]", nil},
		"of use in none":           {"defaults: {wait_timeout: 5s}\nroutes: [{name: a, path: /a}, {name: b, path: /b}, {name: c, path: /c, mode: off}]", []string{"1:26: warning: defaults.wait_timeout: has no effect unless"}},
		"of no use, yet default":   {"routes: [{name: a, path: /a, wait_timeout: 10s, mismatch_status: 422, fingerprint: {enabled: false}}]", nil},
		"off, as an exception":     {"defaults: {lease: 10s}\nroutes: [{name: a, path: /a, methods: [POST], mode: off}]", nil},
		"off, with other settings": {"routes: [{name: a, path: /a, mode: off, ttl: 2h, identity: {headers: [X-A]}}]", []string{"1:36: warning: routes[0].mode: is off, so that the route's other settings (identity, ttl) have no effect"}},
		"never matches":            {"routes: [{name: a, path: /a/%2e%2e/b}]", []string{"1:26: warning: routes[0].path: no request can match it: paths are compared after cleaning"}},
		"no routes":                {"", []string{"1:1: warning: routes: there are none"}},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := load(t, tc.text).Warnings(nil)
			if len(warnings) != len(tc.want) {
				t.Fatalf("warnings %v, want %q", warnings, tc.want)
			}
			for i, w := range warnings {
				if !strings.HasPrefix(w.Warning(), "built-in configuration:"+tc.want[i]) {
					t.Errorf("got  %s\nwant %s", w.Warning(), tc.want[i])
				}
			}
		})
	}
}

func TestWarningsInKubernetes(t *testing.T) {
	for text, want := range map[string]string{
		"routes: [{name: a, path: /a}]":                                                               "built-in configuration:1:1: warning: store.type: is memory",
		"store: {type: file}\nroutes: [{name: a, path: /a}]":                                          "built-in configuration:1:15: warning: store.type: is file",
		"store: {type: redis, redis: {url: 'redis://r'}}\nroutes: [{name: a, path: /a}]":              "",
		"store: {type: postgres, postgres: {url: 'postgres://u@h/d'}}\nroutes: [{name: a, path: /a}]": "",
		"routes: [{name: a, path: /a, mode: observe}]":                                                "",
	} {
		got := ""
		for _, w := range load(t, text).Warnings([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}) {
			got += w.Warning()
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestMisspeltVariables: one that nearly names a setting is told; what Kubernetes makes for
// a Service called idemproxy is not.
func TestMisspeltVariables(t *testing.T) {
	cfg := load(t, "routes: [{name: a, path: /a}]")
	for name, want := range map[string]string{
		"IDEMPROXY_SOTRE_TYPE":         "IDEMPROXY_STORE_TYPE",
		"IDEMPROXY_UPSTREAMURL":        "IDEMPROXY_UPSTREAM_URL",
		"IDEMPROXY_ROUTES_0_TLL":       "IDEMPROXY_ROUTES_0_TTL",
		"IDEMPROXY_DEFAULT_TTL":        "IDEMPROXY_DEFAULTS_TTL",
		"IDEMPROXY_STORE_TYPE":         "",
		"IDEMPROXY_CONFIG":             "",
		"IDEMPROXY_PORT":               "",
		"IDEMPROXY_SERVICE_HOST":       "",
		"IDEMPROXY_SERVICE_PORT_HTTP":  "",
		"IDEMPROXY_PORT_8080_TCP_ADDR": "",
		"OTHER_STORE_TYPO":             "",
	} {
		got, suggestion := cfg.Warnings([]string{name + "=secret"}), ""
		if want != "" {
			suggestion = "environment " + name + ": warning: names no setting; did you mean " + want + "?"
		}
		if len(got) != min(len(suggestion), 1) || len(got) > 0 && got[0].Warning() != suggestion {
			t.Errorf("%s: %v, want %q", name, got, suggestion)
		}
	}
}

// TestBodiesFitIntoMemory: a body for which there is never room is refused for ever.
func TestBodiesFitIntoMemory(t *testing.T) {
	for text, wrong := range map[string]bool{
		"limits: {max_buffered_bytes: 1MiB}\nroutes: [{name: a, path: /a}]":                                                            true,
		"limits: {max_buffered_bytes: 1048577}\nroutes: [{name: a, path: /a}]":                                                         false,
		"routes: [{name: a, path: /a}, {name: b, path: /b, max_request_body: 1GiB}]":                                                   true,
		"routes: [{name: a, path: /a, max_request_body: 1GiB, mode: observe}, {name: b, path: /b, max_request_body: 1GiB, mode: off}]": false,
	} {
		if !wrong {
			load(t, text)
		} else if got := loadFaults(t, text); !strings.Contains(got, "limits.max_buffered_bytes: must be more than max_request_body") || !strings.Contains(got, "].max_request_body (") {
			t.Errorf("%q: %s", text, got)
		}
	}
}
