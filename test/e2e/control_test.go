package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// These tests are about the listener for operators.

const controlToken = "token-of-the-control-listener"

// A controlled proxy has a control listener.
type controlled struct {
	*proxy
	control, tokenFile string
	setup              setup
}

// startControlled starts a proxy with a control listener, with a token if there is one.
func startControlled(t *testing.T, s setup, token string, more ...string) *controlled {
	t.Helper()
	c := &controlled{control: local(freePort())}
	s.control = strings.Join(append([]string{fmt.Sprintf("listen: %q", c.control)}, more...), ", ")
	if token != "" {
		c.tokenFile = filepath.Join(t.TempDir(), "token")
		write(t, c.tokenFile, token+"\n")
		s.control += fmt.Sprintf(", token_file: %q", c.tokenFile)
	}
	c.setup = s
	c.proxy = start(t, s)
	if token != "" {
		c.secret(token)
	}
	return c
}

// ask sends a call to the control listener as somebody who has the token, if there is one.
func (c *controlled) ask(t *testing.T, method, target, body string, header ...string) *response {
	t.Helper()
	header = append(header, "Host: "+c.control)
	if c.tokenFile != "" {
		header = append(header, "Authorization: Bearer "+controlToken)
	}
	return c.plainly(t, method, target, body, header...)
}

// plainly sends a call with these header lines alone.
func (c *controlled) plainly(t *testing.T, method, target, body string, header ...string) *response {
	t.Helper()
	raw := fmt.Sprintf("%s %s HTTP/1.1\r\n%s\r\nContent-Length: %d\r\n\r\n%s", method, target, strings.Join(header, "\r\n"), len(body), body)
	res, err := exchange(c.control, request{method: method, raw: raw})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	for _, s := range c.secretsNow() {
		if strings.Contains(res.String(), s) {
			t.Errorf("%s %s tells %q:\n%s", method, target, s, res)
		}
	}
	return res
}

func (p *proxy) secretsNow() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.secrets...)
}

// told checks an answer of the control listener, and reads it.
func told[T any](t *testing.T, res *response, status int, code string) (v T) {
	t.Helper()
	var problem struct{ Code, Detail string }
	if err := json.Unmarshal(res.body, &problem); err != nil || res.status != status || problem.Code != code || code != "" && problem.Detail == "" {
		t.Fatalf("want %d %s; the answer (%v):\n%s", status, code, err, res)
	}
	if err := json.Unmarshal(res.body, &v); err != nil {
		t.Fatalf("%v:\n%s", err, res)
	}
	return v
}

type anything map[string]any

// listed is all that is listed, page by page: those of a Redis that many use may be empty.
func (c *controlled) listed(t *testing.T, query string) (keys []knownKey) {
	t.Helper()
	for cursor := ""; ; {
		page := told[struct {
			Keys []knownKey
			Next string
		}](t, c.ask(t, "GET", "/api/keys?"+query+cursor, ""), 200, "")
		keys = append(keys, page.Keys...)
		if page.Next == "" {
			return keys
		}
		cursor = "&cursor=" + url.QueryEscape(page.Next)
	}
}

// purged is how many keys a purge removes, page by page.
func (c *controlled) purged(t *testing.T, query string) (removed int) {
	t.Helper()
	for cursor := ""; ; {
		part := told[struct {
			Removed int
			Next    string
		}](t, c.ask(t, "DELETE", "/api/keys?"+query+cursor, ""), 200, "")
		removed += part.Removed
		if part.Next == "" {
			return removed
		}
		cursor = "&cursor=" + url.QueryEscape(part.Next)
	}
}

// An unknown outcome is found and freed through the control listener: the next request with
// the key is executed, who did it is in the log, and nothing that a caller sent is told.
func TestControlReleasesAKey(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, dropped())
		p := startControlled(t, setup{store: s, upstream: up.url, routes: accountPayments}, controlToken)
		req := request{key: newKey(), body: `{"amount":100,"card":"card-0123456789"}`, header: []string{"X-Account: account-0123456789"}}
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, req).refused(t, 409, "outcome_unknown")

		keys := p.listed(t, "state=unknown&route=payments")
		if len(keys) != 1 || keys[0].State != "unknown" || keys[0].Route != "payments" {
			t.Fatalf("listed: %+v", keys)
		}
		key := "/api/keys/" + keys[0].Hash
		if k := told[knownKey](t, p.ask(t, "GET", key, ""), 200, ""); k != keys[0] {
			t.Errorf("shown: %+v, listed: %+v", k, keys[0])
		}
		told[anything](t, p.ask(t, "GET", key+"/release", ""), 404, "no_such_call")
		if k := told[knownKey](t, p.ask(t, "POST", key+"/release", ""), 200, ""); k != keys[0] {
			t.Errorf("released: %+v", k)
		}
		told[anything](t, p.ask(t, "POST", key+"/release", ""), 404, "key_free")

		up.answers(created)
		first := p.send(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		up.saw(t, 2)
		told[anything](t, p.ask(t, "POST", key+"/release?force=1", ""), 409, "key_completed")
		if res := p.ask(t, "GET", key, ""); strings.Contains(string(res.body), "response") {
			t.Errorf("an answer that nobody asked for:\n%s", res)
		}
		shown := told[struct{ Response struct{ Body []byte } }](t, p.ask(t, "GET", key+"?body=1", ""), 200, "")
		if !bytes.Equal(shown.Response.Body, first.body) {
			t.Errorf("recorded %q, want %q", shown.Response.Body, first.body)
		}
		told[anything](t, p.ask(t, "DELETE", key, ""), 200, "")
		p.send(t, req).fresh(t, 201)
		if done := p.purged(t, "route=payments&state=completed"); done != 1 {
			t.Errorf("purged: %v", done)
		}
		p.send(t, req).fresh(t, 201)

		eventually(t, "counted", func() bool {
			return p.metric(t, `idemproxy_operator_actions_total{action="release"}`) == 1 && p.metric(t, `idemproxy_operator_actions_total{action="purge"}`) == 2
		})
		p.logged(t, "an operator removed keys", `"action":"release"`, `"by":"control@`, "from 127.0.0.1", keys[0].Hash)
	})
}

// Who waits for an operation whose claim is freed by hand doesn't wait on.
func TestControlReleaseWakes(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		p := startControlled(t, setup{store: s, upstream: up.url, routes: waiting}, controlToken)
		req := request{key: newKey(), body: "x"}
		owner := p.begin(req)
		g.arrived(t)
		waiters := p.wait(t, 2, req)
		keys := p.listed(t, "limit=1000")
		if len(keys) != 1 || keys[0].State != "in-progress" {
			t.Fatalf("listed: %+v", keys)
		}
		up.answers(created)
		key := "/api/keys/" + keys[0].Hash
		told[anything](t, p.ask(t, "DELETE", key, ""), 409, "key_live")
		if k := told[struct{ Result knownKey }](t, p.ask(t, "POST", key+"/release", ""), 409, "key_live"); k.Result != keys[0] {
			t.Errorf("what would not be freed: %+v", k)
		}
		told[anything](t, p.ask(t, "POST", key+"/release?force=1", ""), 200, "")
		replays := 0
		for _, w := range waiters {
			if res := w.wait(t); res.status != 201 {
				t.Errorf("a waiter gets:\n%s", res)
			} else if res.get(replayHeader) == "true" {
				replays++
			}
		}
		if replays != 1 {
			t.Errorf("%d of 2 waiters got a replay, want 1", replays)
		}
		g.open()
		owner.wait(t).fresh(t, 201)
		up.saw(t, 2)
	})
}

func TestControlStatus(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	up := newUpstream(t, held(g, created))
	p := startControlled(t, setup{
		store: memory(), upstream: up.url, log: "level: warn",
		routes: "  - {name: payments, path: /pay, ttl: 48h}\n  - {name: orders, path: /orders, methods: [POST], mode: observe}",
	}, controlToken)
	req := request{key: newKey(), body: "x"}
	running := p.begin(req)
	g.arrived(t)
	p.send(t, req).refused(t, 409, "in_progress")
	p.send(t, request{}).refused(t, 400, "missing_key")
	type counts struct {
		Name, Mode, Path             string
		InFlight                     int `json:"in_flight"`
		Requests, Conflicts, Rejects map[string]int
		Settings                     []struct {
			Path, From string
			Value      any
		}
	}
	type status struct {
		Version, Go string
		Draining    bool
		LogLevel    string `json:"log_level"`
		Passed      int    `json:"passed_through"`
		Routes      []counts
	}
	read := func() status { t.Helper(); return told[status](t, p.ask(t, "GET", "/api/status", ""), 200, "") }
	eventually(t, "counted", func() bool { return read().Routes[0].InFlight == 1 })
	s := read()
	pay := s.Routes[0]
	if s.Version == "" || s.Go == "" || s.Draining || s.LogLevel != "warn" || len(s.Routes) != 2 || s.Routes[1].Mode != "observe" {
		t.Errorf("status: %+v", s)
	}
	if pay.Name != "payments" || pay.Path != "/pay" || pay.Conflicts["in_progress"] != 1 || pay.Rejects["missing_key"] != 1 || pay.Requests["rejected"] != 2 {
		t.Errorf("payments: %+v", pay)
	}
	ttl := ""
	for _, setting := range pay.Settings {
		if setting.Path == "ttl" {
			ttl = fmt.Sprint(setting.Value, " from ", setting.From)
		}
	}
	if !strings.HasPrefix(ttl, "48h from "+p.file+":") {
		t.Errorf("ttl %s", ttl)
	}
	g.open()
	running.wait(t).fresh(t, 201)
	p.send(t, req).get(replayHeader)
	p.send(t, request{target: "/elsewhere"}).fresh(t, 201)
	eventually(t, "counted", func() bool {
		s := read()
		return s.Routes[0].InFlight == 0 && s.Routes[0].Requests["executed"] == 1 && s.Routes[0].Requests["replayed"] == 1 && s.Passed == 1
	})
}

// Drained, a replica is not ready and serves on, until it is told to end.
func TestControlDrains(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startControlled(t, setup{store: memory(), upstream: up.url, routes: payments}, controlToken)
	told[anything](t, p.ask(t, "POST", "/drain", ""), 200, "")
	if p.probe("/readyz") != 503 || p.probe("/healthz") != 200 {
		t.Error("want not ready, and alive")
	}
	p.twice(t, request{key: newKey(), body: "x"}, 201)
	if s := told[anything](t, p.ask(t, "GET", "/api/status", ""), 200, ""); s["draining"] != true {
		t.Errorf("status: %v", s)
	}
	p.logged(t, "draining was asked for", `"by":"control@`)
	p.stop()
}

func TestControlReloads(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startControlled(t, setup{store: memory(), upstream: up.url, routes: payments}, controlToken)
	if r := told[anything](t, p.ask(t, "POST", "/reload", ""), 200, ""); r["result"] != "unchanged" {
		t.Errorf("nothing has changed: %v", r)
	}
	more := p.setup
	more.routes += "\n  - {name: orders, path: /orders}"
	p.configure(t, more)
	// The file's own change may be noticed first.
	told[anything](t, p.ask(t, "POST", "/reload", ""), 200, "")
	p.send(t, request{target: "/orders"}).refused(t, 400, "missing_key")
	if s := told[struct{ Routes []anything }](t, p.ask(t, "GET", "/api/status", ""), 200, ""); len(s.Routes) != 2 {
		t.Errorf("routes: %v", s)
	}
	bad := p.setup
	bad.routes = "  - {name: payments, path: /pay, tll: 1h}"
	p.configure(t, bad)
	refused := told[struct {
		Result struct {
			Result string
			Faults []string
		}
	}](t, p.ask(t, "POST", "/reload", ""), 422, "config_refused").Result
	if refused.Result != "refused" || len(refused.Faults) != 1 || !strings.Contains(refused.Faults[0], "did you mean ttl?") {
		t.Errorf("refused: %+v", refused)
	}
	p.send(t, request{target: "/orders"}).refused(t, 400, "missing_key")
	p.logged(t, "the new configuration was refused", `"because":"control@`)
}

func TestControlSetsTheLogsLevel(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startControlled(t, setup{store: memory(), upstream: up.url, routes: payments, log: "level: warn"}, controlToken)
	level := func() any { return told[anything](t, p.ask(t, "GET", "/loglevel", ""), 200, "")["level"] }
	lines := func() int { return strings.Count(p.log.String(), `"msg":"request"`) }
	p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
	if level() != "warn" || lines() != 0 {
		t.Errorf("level %v, %d lines", level(), lines())
	}
	told[anything](t, p.ask(t, "PUT", "/loglevel", `{"level": "info"}`), 200, "")
	p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
	eventually(t, "a line", func() bool { return lines() == 1 })
	told[anything](t, p.ask(t, "PUT", "/loglevel", `{"level": "loud"}`), 400, "bad_request")
	if level() != "info" {
		t.Errorf("level %v", level())
	}
}

// Without a token the listener shows what goes on to this machine alone, and changes nothing.
func TestControlWithoutAToken(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startControlled(t, setup{store: memory(), upstream: up.url, routes: payments}, "", "pprof: true")
	req := request{key: newKey(), body: "body-0123456789"}
	p.send(t, req).fresh(t, 201)
	page := told[struct{ Keys []knownKey }](t, p.ask(t, "GET", "/api/keys", ""), 200, "")
	key := "/api/keys/" + page.Keys[0].Hash
	for _, call := range []string{"POST /drain", "POST /reload", "PUT /loglevel", "DELETE /api/keys", "DELETE " + key, "POST " + key + "/release", "GET " + key + "?body=1"} {
		method, target, _ := strings.Cut(call, " ")
		told[anything](t, p.ask(t, method, target, `{"level": "debug"}`), 403, "read_only")
	}
	told[anything](t, p.plainly(t, "GET", "/api/keys", "", "Host: rebound.example:"+p.control[strings.LastIndex(p.control, ":")+1:]), 403, "wrong_host")
	told[anything](t, p.ask(t, "GET", "/api/keys", "", "Sec-Fetch-Site: cross-site"), 403, "cross_origin")
	told[anything](t, p.ask(t, "GET", "/api/keys", "", "Origin: http://rebound.example"), 403, "cross_origin")
	told[anything](t, p.ask(t, "GET", "/api/keys", "", "Origin: http://"+p.control), 200, "")
	if res := p.ask(t, "GET", "/debug/pprof/goroutine?debug=1", ""); res.status != 200 {
		t.Errorf("pprof:\n%s", res)
	}
	if p.probe("/readyz") != 200 {
		t.Error("not ready")
	}
	p.send(t, req).get(replayHeader)
	up.saw(t, 1)
}

func TestControlWithAToken(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startControlled(t, setup{store: memory(), upstream: up.url, routes: payments}, controlToken)
	host := "Host: " + p.control
	for _, call := range []string{"GET /api/keys", "GET /api/status", "POST /drain", "POST /reload", "GET /loglevel", "GET /debug/pprof/"} {
		method, target, _ := strings.Cut(call, " ")
		told[anything](t, p.plainly(t, method, target, "", host), 401, "unauthorized")
		told[anything](t, p.plainly(t, method, target, "", host, "Authorization: Bearer token-of-another-listener"), 401, "unauthorized")
		told[anything](t, p.plainly(t, method, target, "", host, "Cookie: token="+controlToken), 401, "unauthorized")
		told[anything](t, p.ask(t, method, target, "", "Sec-Fetch-Site: same-site"), 403, "cross_origin")
	}
	if res := p.plainly(t, "GET", "/", "", host); res.status != 200 || !strings.Contains(res.get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
		t.Errorf("the page, which holds nothing:\n%s", res)
	}
	told[anything](t, p.plainly(t, "GET", "/", "", host, "Sec-Fetch-Site: cross-site"), 403, "cross_origin")
	told[anything](t, p.ask(t, "GET", "/debug/pprof/", ""), 404, "no_such_call")
	if p.probe("/readyz") != 200 {
		t.Error("somebody without the token drained it")
	}
	for _, path := range []string{"/api/keys", "/loglevel", "/debug/pprof/"} {
		if p.probe(path) != 404 {
			t.Errorf("%s is on the admin port", path)
		}
	}

	// Another token in the file is taken up; the old one opens nothing any more.
	write(t, p.tokenFile+".new", "the-next-token-of-the-listener")
	p.secret("the-next-token-of-the-listener")
	if err := os.Rename(p.tokenFile+".new", p.tokenFile); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour) // whatever the grain of the file's times
	if err := os.Chtimes(p.tokenFile, later, later); err != nil {
		t.Fatal(err)
	}
	eventually(t, "taken up", func() bool {
		return p.plainly(t, "GET", "/api/keys", "", host, "Authorization: Bearer the-next-token-of-the-listener").status == 200
	})
	told[anything](t, p.ask(t, "GET", "/api/keys", ""), 401, "unauthorized")
}
