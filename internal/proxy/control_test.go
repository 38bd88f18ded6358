package proxy

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
	"idemproxy/internal/store"
)

const aControlToken = "0123456789abcdef-token"

// controlled is the control listener of a proxy with one rule.
func controlled(t *testing.T, change func(*ControlConfig)) (*control, error) {
	t.Helper()
	rule := dedup.DefaultRule()
	rule.Name, rule.Path = "payments", "/pay"
	m := store.NewMemory(store.DefaultConfig().Memory)
	t.Cleanup(func() { m.Close() })
	cfg := ControlConfig{Listen: "127.0.0.1:9091"}
	if change != nil {
		change(&cfg)
	}
	p, err := New(Options{
		Server: DefaultServerConfig(), Upstream: DefaultUpstreamConfig(), Limits: DefaultLimitsConfig(), Routes: []dedup.Rule{rule},
		Control: cfg, Operations: Operations{
			Level:    zap.NewAtomicLevel(),
			Reload:   func(string) (string, []string) { return "refused", []string{"c.yaml:1:1: wrong"} },
			Settings: func(string) any { return nil },
		},
		Store: m, Metrics: metrics.New("1.2.3"), Log: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return p.control, nil
}

func withToken(t *testing.T, token string) func(*ControlConfig) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, token)
	return func(c *ControlConfig) { c.TokenFile = file }
}

func writeToken(t *testing.T, file, token string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask asks the control listener: "METHOD /target", and header lines.
func (c *control) ask(call, body string, header ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(call, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:9091"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func (c *control) answers(t *testing.T, status int, code, call, body string, header ...string) {
	t.Helper()
	w := c.ask(call, body, header...)
	kind := "application/json"
	if code != "" {
		kind, code = "application/problem+json", `"code":"`+code+`"`
	}
	h := w.Header()
	if w.Code != status || !strings.Contains(w.Body.String(), code) || h.Get("Content-Type") != kind {
		t.Errorf("%s %q: %d %s %s, want %d %s", call, header, w.Code, h.Get("Content-Type"), w.Body, status, code)
	}
	if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%s: header %v", call, h)
	}
	if (status == 401) != (h.Get("WWW-Authenticate") == "Bearer") {
		t.Errorf("%s: %d with WWW-Authenticate %q", call, status, h.Get("WWW-Authenticate"))
	}
}

const aHash = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"

func TestControlWithoutAToken(t *testing.T) {
	c, err := controlled(t, func(c *ControlConfig) { c.PProf = true })
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"GET /api/status", "GET /api/keys", "GET /api/keys?state=unknown&route=payments&older_than=90m&limit=1000", "GET /api/keys/" + aHash, "GET /loglevel"} {
		c.answers(t, 200, "", call, "")
		c.answers(t, 200, "", call, "", "Sec-Fetch-Site: none")
		c.answers(t, 200, "", call, "", "Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:9091")
		for _, host := range []string{"localhost:9091", "[::1]:9091", "127.0.0.1", "LOCALHOST."} {
			c.answers(t, 200, "", call, "", "Host: "+host)
		}
		for _, host := range []string{"rebound.example:9091", "192.0.2.1:9091", "localhost.rebound.example", "127.0.0.1.rebound.example", ""} {
			c.answers(t, 403, "wrong_host", call, "", "Host: "+host)
		}
		for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.example", "Origin: null", "Origin: http://127.0.0.1:3000"} {
			c.answers(t, 403, "cross_origin", call, "", header)
		}
	}
	for _, call := range []string{
		"POST /drain", "POST /reload", "PUT /loglevel", "DELETE /api/keys", "DELETE /api/keys/" + aHash,
		"POST /api/keys/" + aHash + "/release", "GET /api/keys/" + aHash + "?body=1", "POST /nothing", "OPTIONS /drain",
	} {
		c.answers(t, 403, "read_only", call, `{"level": "debug"}`)
		c.answers(t, 403, "read_only", call, `{"level": "debug"}`, "Authorization: Bearer "+aControlToken)
	}
	if c.p.draining.Load() || c.p.options.Operations.Level.Level() != zap.InfoLevel {
		t.Error("something was changed")
	}
	for _, call := range []string{"GET /drain", "GET /reload", "GET /api/keys/" + aHash + "/release", "GET /control_page/page.js", "GET /api/keys/" + aHash + "/x"} {
		c.answers(t, 404, "no_such_call", call, "")
	}
	if w := c.ask("GET /debug/pprof/goroutine?debug=1", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "goroutine profile") {
		t.Errorf("pprof: %d %.100s", w.Code, w.Body)
	}
}

func TestControlWithAToken(t *testing.T) {
	var file string
	set := withToken(t, aControlToken)
	c, err := controlled(t, func(c *ControlConfig) { set(c); file = c.TokenFile })
	if err != nil {
		t.Fatal(err)
	}
	token := "Authorization: Bearer " + aControlToken
	for _, call := range []string{"GET /api/status", "GET /api/keys", "GET /api/keys/" + aHash + "?body=1", "GET /loglevel", "DELETE /api/keys", "POST /drain"} {
		for _, wrong := range []string{"X-Nothing: x", "Authorization: Bearer ", "Authorization: Bearer " + aControlToken + "x", "Authorization: Basic " + aControlToken, "Authorization: " + aControlToken, "Cookie: token=" + aControlToken} {
			c.answers(t, 401, "unauthorized", call, "", wrong)
		}
		c.answers(t, 403, "cross_origin", call, "", token, "Sec-Fetch-Site: cross-site")
		c.answers(t, 403, "cross_origin", call, "", token, "Origin: https://evil.example")
	}
	if c.p.draining.Load() {
		t.Error("drained without a token")
	}
	c.answers(t, 200, "", "GET /api/status", "", token, "Host: idemproxy.example") // the token is what counts
	c.answers(t, 200, "", "GET /api/status", "", "Authorization: bearer  "+aControlToken)
	c.answers(t, 404, "key_free", "DELETE /api/keys/"+aHash, "", token)
	c.answers(t, 404, "key_free", "POST /api/keys/"+aHash+"/release?force=1", "", token)
	c.answers(t, 200, "", "DELETE /api/keys?state=unknown", "", token)
	c.answers(t, 400, "keys_unnamed", "DELETE /api/keys?state=in-progress", "", token)
	c.answers(t, 422, "config_refused", "POST /reload", "", token)
	c.answers(t, 200, "", "PUT /loglevel", `{"level": "debug"}`, token)
	for _, body := range []string{"", "debug", `{"level": "loud"}`, `{"level": "fatal"}`, `{}`, `{"level": "warn", "x": 1}`, strings.Repeat(" ", maxControlBody+1)} {
		c.answers(t, 400, "bad_request", "PUT /loglevel", body, token)
	}
	if got := c.p.options.Operations.Level.Level(); got != zap.DebugLevel {
		t.Errorf("level %v", got)
	}
	c.answers(t, 404, "no_such_call", "GET /debug/pprof/", "", token)
	c.answers(t, 200, "", "POST /drain", "", token)
	if !c.p.draining.Load() {
		t.Error("not drained")
	}

	writeToken(t, file, "another-0123456789abcdef")
	later := time.Now().Add(time.Hour) // whatever the grain of the file's times
	if err := os.Chtimes(file, later, later); err != nil {
		t.Fatal(err)
	}
	c.token.checked = time.Time{}
	c.answers(t, 401, "unauthorized", "GET /api/status", "", token)
	c.answers(t, 200, "", "GET /api/status", "", "Authorization: Bearer another-0123456789abcdef")
}

// A key is looked up by what its caller sends, with or without a token: that changes nothing,
// and what was sent is in no answer.
func TestControlLooksUp(t *testing.T) {
	open, err := controlled(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := controlled(t, withToken(t, aControlToken))
	if err != nil {
		t.Fatal(err)
	}
	const call = "POST " + lookupPath
	closed.answers(t, 401, "unauthorized", call, `{"route": "payments", "key": "abc"}`)
	for _, c := range []*control{open, closed} {
		token := "Authorization: Bearer " + aControlToken
		c.answers(t, 403, "cross_origin", call, `{"route": "payments", "key": "abc"}`, token, "Sec-Fetch-Site: same-site")
		w := c.ask(call, `{"route": "payments", "key": "abc"}`, token)
		quoted := c.ask(call, `{"route": "payments", "key": "\"abc\"", "headers": {"X-Other": "x"}}`, token)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"state":"free"`) || w.Body.String() != quoted.Body.String() {
			t.Errorf("%d %s, quoted %s", w.Code, w.Body, quoted.Body)
		}
		for _, body := range []string{"", "x", `{"key": "secret-key"}`, `{"route": "secret-route", "key": "secret-key"}`, `{"route": "payments"}`, `{"route": "payments", "key": "secret key"}`, `{"route": "payments", "key": "a", "secret-x": 1}`} {
			c.answers(t, 400, "bad_request", call, body, token)
			if w := c.ask(call, body, token); strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s: %s", body, w.Body)
			}
		}
		c.answers(t, 400, "bad_request", call+"?key=abc", `{"route": "payments", "key": "abc"}`, token)
		c.answers(t, 404, "no_such_call", "GET "+lookupPath, "", token)
	}
}

// The page can be had without the token, since it holds nothing; what it shows can't. It
// runs and loads nothing but its own files.
func TestControlPage(t *testing.T) {
	c, err := controlled(t, withToken(t, aControlToken))
	if err != nil {
		t.Fatal(err)
	}
	for path, mediaType := range map[string]string{
		"/": "text/html", "/page.css": "text/css", "/icon.svg": "image/svg+xml",
		"/page.js": "text/javascript", "/keys.js": "text/javascript", "/routes.js": "text/javascript", "/plot.js": "text/javascript", "/words.js": "text/javascript",
	} {
		w := c.ask("GET "+path, "")
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), mediaType) || w.Header().Get("Content-Security-Policy") != pagePolicy || len(text) < 100 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		for _, never := range []string{"://", "innerHTML", "insertAdjacent", "document.write", "eval(", " style=", "onclick=", "onload=", "localStorage", "cookie", "<style", "url("} {
			if strings.Contains(text, never) {
				t.Errorf("%s has %s", path, never)
			}
		}
		c.answers(t, 401, "unauthorized", "POST "+path, "")
		c.answers(t, 403, "cross_origin", "GET "+path, "", "Sec-Fetch-Site: cross-site")
	}
	index := c.ask("GET /", "").Body.String()
	if strings.Count(index, "<script") != 1 || !strings.Contains(index, `<script type="module" src="/page.js"></script>`) {
		t.Errorf("scripts of the page:\n%s", index)
	}
	c.answers(t, 401, "unauthorized", "GET /api/status", "")
}

// A purge whose filter is misspelt would be one of everything.
func TestControlRefusesWhatItDoesNotKnow(t *testing.T) {
	c, err := controlled(t, withToken(t, aControlToken))
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"older-than=1h", "state=done", "state=", "state=unknown&state=completed", "older_than=1", "older_than=-1h", "older_than=0s",
		"limit=0", "limit=1001", "limit=x", "cursor=x", "State=unknown", "a;b", "%zz", "=x",
	} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			c.answers(t, 400, "bad_request", method+" /api/keys?"+query, "", "Authorization: Bearer "+aControlToken)
		}
	}
	for _, call := range []string{
		"GET /api/keys/x", "GET /api/keys/" + aHash + "=", "GET /api/keys/" + aHash + "?body=0", "GET /api/keys/" + aHash + "?force=1",
		"DELETE /api/keys/" + aHash + "?force=1", "POST /api/keys/" + aHash + "/release?force=yes", "POST /drain?x=1", "GET /api/status?x", "POST /reload?x",
	} {
		c.answers(t, 400, "bad_request", call, "", "Authorization: Bearer "+aControlToken)
	}
}

func TestControlNeedsAGoodToken(t *testing.T) {
	for _, token := range []string{"", "   ", "short"} {
		if _, err := controlled(t, withToken(t, token)); err == nil || !strings.Contains(err.Error(), "control.token_file") || token != "" && strings.Contains(err.Error(), "short") {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if _, err := controlled(t, func(c *ControlConfig) { c.TokenFile = "/nowhere/token" }); err == nil || !strings.Contains(err.Error(), "/nowhere/token") {
		t.Errorf("no file: %v", err)
	}
}

func TestControlConfig(t *testing.T) {
	for _, tc := range []struct {
		c    ControlConfig
		path string
	}{
		{ControlConfig{}, ""},
		{ControlConfig{Listen: "127.0.0.1:9091"}, ""},
		{ControlConfig{Listen: "127.9.9.9:9091"}, ""},
		{ControlConfig{Listen: "[::1]:9091"}, ""},
		{ControlConfig{Listen: "localhost:9091", PProf: true}, ""},
		{ControlConfig{Listen: ":9091", TokenFile: "/t"}, ""},
		{ControlConfig{Listen: "10.0.0.1:9091", TokenFile: "/t"}, ""},
		{ControlConfig{Listen: ":9091"}, "listen"},
		{ControlConfig{Listen: "0.0.0.0:9091"}, "listen"},
		{ControlConfig{Listen: "[::]:9091"}, "listen"},
		{ControlConfig{Listen: "10.0.0.1:9091"}, "listen"},
		{ControlConfig{Listen: "localhost.example:9091"}, "listen"},
		{ControlConfig{Listen: "9091"}, "listen"},
		{ControlConfig{TokenFile: "/t"}, "token_file"},
		{ControlConfig{PProf: true}, "pprof"},
	} {
		faults := tc.c.Validate()
		if got := len(faults); tc.path == "" && got > 0 || tc.path != "" && (got != 1 || faults[0].Path != tc.path) {
			t.Errorf("%+v: %v, want %q", tc.c, faults, tc.path)
		}
	}
}
