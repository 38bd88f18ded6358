package config

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"idemproxy/internal/dedup"
)

func load(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Load(Sources{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// loadFaults loads what is wrong and returns the faults, one a line.
func loadFaults(t *testing.T, text string) string {
	t.Helper()
	_, err := Load(Sources{Text: text})
	if bad := (*Error)(nil); !errors.As(err, &bad) {
		t.Fatalf("error %v, want an *Error", err)
	}
	return err.Error()
}

func TestPrecedenceIsFlagEnvironmentFileDefault(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("listen", ":1", "")
	flags.String("log-level", "", "")
	if err := flags.Parse([]string{"--listen", ":4"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("IDEMPROXY_SERVER_LISTEN", ":3")
	t.Setenv("IDEMPROXY_ADMIN_LISTEN", ":33")
	t.Setenv("IDEMPROXY_DEFAULTS_TTL", "3h")
	cfg, err := Load(Sources{
		Text:  "server: {listen: ':2'}\nadmin: {listen: ':22'}\nlog: {level: warn}\nroutes: [{name: a, path: /a}]\n",
		Flags: map[string]*pflag.Flag{"server.listen": flags.Lookup("listen"), "log.level": flags.Lookup("log-level")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{
		"server.listen":   {cfg.Server.Listen, ":4 from flag --listen"},
		"admin.listen":    {cfg.Admin.Listen, ":33 from environment IDEMPROXY_ADMIN_LISTEN"},
		"log.level":       {string(cfg.Log.Level), "warn from built-in configuration:3:14"},
		"log.format":      {string(cfg.Log.Format), "json from default"},
		"routes[0].name":  {cfg.Routes[0].Name, "a from built-in configuration:4:17"},
		"routes[0].ttl":   {cfg.Routes[0].TTL.String(), "3h0m0s from environment IDEMPROXY_DEFAULTS_TTL"},
		"routes[0].lease": {cfg.Routes[0].Lease.String(), "30s from default"},
	} {
		if got := want[0] + " from " + cfg.Origin(path); got != want[1] {
			t.Errorf("%s = %s, want %s", path, got, want[1])
		}
	}
}

func TestFaultOfAFlag(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("upstream", "", "")
	if err := flags.Parse([]string{"--upstream", "nowhere"}); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Sources{Flags: map[string]*pflag.Flag{"upstream.url": flags.Lookup("upstream")}})
	if err == nil || !strings.HasPrefix(err.Error(), "flag --upstream: upstream.url: must begin with") {
		t.Errorf("error %v", err)
	}
}

func TestUnreadableFileIsNoFaultOfTheConfiguration(t *testing.T) {
	_, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if bad := (*Error)(nil); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad) {
		t.Errorf("error %v", err)
	}
}

// A file that got mixed up is refused before it is understood, which would take long.
func TestAFileTooLargeIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(file, bytes.Repeat([]byte("a"), 4<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Sources{File: file})
	if err == nil || errors.As(err, new(*Error)) || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("Load: %v", err)
	}
}

func TestEmptyIsDefault(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "routes: []", "store: {redis: {addresses: []}}", "null"} {
		got := load(t, text)
		got.origins = nil
		if want := Default(); !reflect.DeepEqual(*got, want) {
			t.Errorf("%q: got %+v, want %+v", text, *got, want)
		}
		if len(got.Warnings(nil)) != 1 {
			t.Errorf("%q: no warning that nothing is guarded", text)
		}
	}
}

// TestAnEmptyFileIsRefused: it may be one that is being written.
func TestAnEmptyFileIsRefused(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "null"} {
		file := filepath.Join(t.TempDir(), "empty.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Sources{File: file})
		if err == nil || !strings.HasPrefix(err.Error(), file+":1:1: is empty") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWindowsFile reads what editors on Windows write: a byte order mark, CR LF.
func TestWindowsFile(t *testing.T) {
	cfg := load(t, "\ufeffserver:\r\n  listen: \":8081\"\r\n  drain_delay: 3s\r\n")
	if cfg.Server.Listen != ":8081" || cfg.Origin("server.drain_delay") != "built-in configuration:3:16" {
		t.Errorf("%q, %s", cfg.Server.Listen, cfg.Origin("server.drain_delay"))
	}
}

func TestRoutesShareNothing(t *testing.T) {
	cfg := load(t, "defaults: {tenant_header: T, require_tenant: false}\nroutes: [{name: a, path: /a}, {name: b, path: /b}]\n")
	cfg.Routes[0].ReplayScopeHeaders[0] = "changed"
	*cfg.Routes[0].RequireTenant = true
	if cfg.Routes[1].ReplayScopeHeaders[0] != "Authorization" || *cfg.Routes[1].RequireTenant || *cfg.Defaults.RequireTenant {
		t.Error("routes share memory")
	}
	if dedup.DefaultRule().ReplayScopeHeaders[0] != "Authorization" {
		t.Error("the default was changed")
	}
}

func TestConflictingRoutesAreFoundAtTheirPlace(t *testing.T) {
	got := loadFaults(t, "routes:\n- {name: a, path: /a}\n- {name: b, path: '/a'}\n- {name: c, path: '/{x'}\n")
	for i, want := range []string{"built-in configuration:3:19: routes[1].path: ", "built-in configuration:4:19: routes[2].path: "} {
		if lines := strings.Split(got, "\n"); len(lines) != 2 || !strings.HasPrefix(lines[i], want) {
			t.Errorf("got\n%s\nwant line %d to begin with %s", got, i+1, want)
		}
	}
}

func TestUpstreamIsNotTheProxyItself(t *testing.T) {
	for _, tc := range []struct {
		listen, url string
		own         bool
	}{
		{":8080", "http://127.0.0.1:8080", true},
		{":8080", "http://localhost:8080", true},
		{"0.0.0.0:8080", "h2c://[::1]:8080", true},
		{"app:8080", "http://APP:8080", true},
		{":80", "http://localhost", true},
		{":443", "https://localhost", true},
		{":8080", "http://127.0.0.1:8081", false},
		{":8080", "http://app:8080", false},
		{"127.0.0.1:8080", "http://127.0.0.2:8080", false},
		{"127.0.0.1:0", "http://127.0.0.1:1", false},
		{":8080", "unix:///run/8080.sock", false},
	} {
		cfg := Default()
		cfg.Server.Listen, cfg.Upstream.URL = tc.listen, tc.url
		if faults := cfg.Validate(); (len(faults) > 0) != tc.own {
			t.Errorf("listen %s, upstream %s: %v", tc.listen, tc.url, faults)
		}
	}
}

// TestPrintedIsTheSame prints configurations and reads them again.
func TestPrintedIsTheSame(t *testing.T) {
	for _, text := range []string{"", "defaults: {ttl: 90m, tenant_header: T, require_tenant: false}\nroutes: [{name: 'yes', path: '/x/{$}', version: '1.0', header_name: [A, B]}]\n"} {
		want := load(t, text)
		var printed strings.Builder
		if err := want.Print(&printed); err != nil {
			t.Fatal(err)
		}
		got := load(t, printed.String())
		got.origins, want.origins = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("printed\n%s\nis not %+v", printed.String(), want)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	cfg := load(t, "store: {type: redis, redis: {url: 'redis://u:hunter2@h:1/0'}}")
	var printed strings.Builder
	if err := cfg.Print(&printed); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(printed.String(), "hunter2") || !strings.Contains(printed.String(), "[hidden]") {
		t.Error(printed.String())
	}
}

func TestEverySettingHasItsOwnVariable(t *testing.T) {
	cfg := Default()
	cfg.Routes = make([]dedup.Rule, 12)
	seen := map[string]string{}
	leaves(reflect.ValueOf(&cfg).Elem(), "", func(path string, _ reflect.Value) {
		if other, taken := seen[EnvName(path)]; taken {
			t.Errorf("%s and %s are both %s", path, other, EnvName(path))
		}
		seen[EnvName(path)] = path
	})
	for _, want := range []string{"IDEMPROXY_UPSTREAM_URL", "IDEMPROXY_STORE_REDIS_URL", "IDEMPROXY_DEFAULTS_TTL", "IDEMPROXY_ROUTES_11_FINGERPRINT_ENABLED"} {
		if seen[want] == "" {
			t.Errorf("%s is missing from %v", want, slices.Sorted(maps.Keys(seen)))
		}
	}
	if path, ok := seen["IDEMPROXY_DEFAULTS_NAME"]; ok {
		t.Errorf("defaults have no name: %s", path)
	}
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "EMPTY": "", "REF": "${A}"}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for in, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"${A}":              "1",
		"x${A}y${A}":        "x1y1",
		"${NONE:-d}":        "d",
		"${EMPTY:-d}":       "d",
		"${EMPTY}":          "",
		"${NONE:-}":         "",
		"${NONE:-a:-b c}":   "a:-b c",
		"${REF}":            "${A}",
		"$${A}":             "${A}",
		"/{$}":              "/{$}",
		"pa$$word$":         "pa$$word$",
		"$A":                "$A",
		"${NONE}":           "error",
		"${A":               "error",
		"${}":               "error",
		"${A-d}":            "error",
		"${A B}":            "error",
		"${NONE:-x} ${NO2}": "error",
	} {
		got, err := expand(in, lookup)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("expand(%q) = %q (%v), want %q", in, got, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"ttl", "lease", "header_name", "missing_header", "mode", "path"}
	for word, want := range map[string]string{
		"tll": "ttl", "TTL": "ttl", "leese": "lease", "headerName": "header_name", "header-name": "header_name",
		"heder_name": "header_name", "mdoe": "mode", "x": "", "timeout": "", "": "", "retry": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// FuzzLoad: whatever a file holds, loading it says so and does not crash.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Load(Sources{Text: text})
		if bad := (*Error)(nil); (err == nil) == (cfg == nil) || err != nil && !errors.As(err, &bad) {
			t.Errorf("config %v, error %v", cfg, err)
		}
	})
}
