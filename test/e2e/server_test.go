package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// These tests are about the life of the process.

func TestABadFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bad.yaml")
	write(t, file, `server:
  listen: 8080
  lisen: ":1"
upstream: {url: "ftp://somewhere", response_timeout: soon}
store:
  type: reddis
  timeout: -1s
defaults: {ttl: 5}
routes:
  - name: a
    path: /a
    methods: [GET]
    mismatch_status: 418
    release_statuses: [42]
  - name: a
    path: b
    max_request_body: lots
  - {name: c, path: "/{x}/y", headername: X}
  - {name: d, path: "/z/{x}"}
log: {level: loud}
`)
	for _, args := range [][]string{{"validate", "--config", file}, {"serve", "--config", file}} {
		exit, stdout, stderr := once(t, args...)
		if exit != 2 {
			t.Errorf("%s: exit %d, want 2", args[0], exit)
		}
		said := stdout + stderr
		for _, want := range []string{
			`:2:\d+: .*server\.listen`, `:3:\d+: .*lisen`, `:4:\d+: .*upstream\.url`, `:4:\d+: .*response_timeout`,
			`:6:\d+: .*store\.type`, `:7:\d+: .*store\.timeout`, `:8:\d+: .*ttl`,
			`:12:\d+: .*methods`, `:13:\d+: .*mismatch_status`, `:14:\d+: .*release_statuses`,
			`:15:\d+: .*name`, `:16:\d+: .*path`, `:17:\d+: .*max_request_body`, `:18:\d+: .*headername`, `:19:\d+: .*path`, `:20:\d+: .*level`,
		} {
			if !regexp.MustCompile(regexp.QuoteMeta(file) + want).MatchString(said) {
				t.Errorf("%s: says nothing like %q", args[0], want)
			}
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", args[0], said)
		}
	}
}

func TestAGoodFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "good.yaml")
	write(t, file, setup{store: memory(), upstream: "http://127.0.0.1:1", routes: payments}.yaml("127.0.0.1:0", "127.0.0.1:0"))
	if exit, stdout, stderr := once(t, "validate", "--config", file); exit != 0 {
		t.Errorf("exit %d: %s%s", exit, stdout, stderr)
	}
}

func TestWhatEndsTheStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	config := func(name, addr, admin string) string {
		file := filepath.Join(dir, name)
		write(t, file, setup{store: memory(), upstream: "http://127.0.0.1:1", routes: payments}.yaml(addr, admin))
		return file
	}
	unreadable := filepath.Join(dir, "a-directory")
	if err := os.Mkdir(unreadable, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		exit int
		says string // on one line, with what it is about
	}{
		{"port in use", []string{"serve", "--config", config("port.yaml", taken.Addr().String(), local(freePort()))}, 1, taken.Addr().String()},
		{"admin port in use", []string{"serve", "--config", config("admin.yaml", local(freePort()), taken.Addr().String())}, 1, taken.Addr().String()},
		{"no such file", []string{"serve", "--config", filepath.Join(dir, "nothing.yaml")}, 1, "nothing.yaml"},
		{"no such file to validate", []string{"validate", "--config", filepath.Join(dir, "nothing.yaml")}, 1, "nothing.yaml"},
		{"unreadable file", []string{"serve", "--config", unreadable}, 1, "a-directory"},
		{"no such command", []string{"server"}, 2, "server"},
		{"no such flag", []string{"serve", "--confg", "x"}, 2, "confg"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exit, stdout, stderr := once(t, tc.args...)
			if exit != tc.exit {
				t.Errorf("exit %d, want %d", exit, tc.exit)
			}
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, tc.says) && !strings.Contains(lines[0], tc.says) {
				t.Errorf("says nothing of %q:\n%s%s", tc.says, stdout, stderr)
			}
			if tc.exit == 1 && len(lines) != 1 {
				t.Errorf("%d lines, want one clear one:\n%s", len(lines), stderr)
			}
		})
	}
}

// A request that runs when the process is told to end gets its answer, and a record.
func TestTerminationWaitsForRequests(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, server: "drain_delay: 300ms", routes: payments}
		p, other := start(t, s), start(t, s)
		req := request{key: newKey(), body: "x"}
		running := p.begin(req)
		g.arrived(t)
		orphan := request{key: newKey(), body: "y"} // its caller leaves
		c := p.dial(t)
		if _, err := c.Write(orphan.bytes()); err != nil {
			t.Fatal(err)
		}
		g.arrived(t)
		c.Close()

		p.terminate()
		eventually(t, "not ready any more", func() bool { return p.probe("/readyz") != 200 })
		eventually(t, "refusing connections", func() bool {
			conn, err := net.Dial("tcp", p.addr)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		other.send(t, req).refused(t, 409, "in_progress") // it is alive, and so is its claim
		g.open()
		first := running.wait(t).fresh(t, 201)
		p.ended()
		other.send(t, req).replays(t, first)
		if again := other.send(t, orphan); again.status != 201 || again.get(replayHeader) != "true" {
			t.Errorf("what ran for a caller that left was not recorded:\n%s", again)
		}
		up.saw(t, 2)
	})
}

// While it drains, the process says that it is not ready, and still serves.
func TestTheDrainDelay(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, server: "drain_delay: 2s", routes: payments})
	p.terminate()
	eventually(t, "not ready any more", func() bool { return p.probe("/readyz") == 503 })
	if alive := p.probe("/healthz"); alive != 200 {
		t.Errorf("healthz %d, want 200", alive)
	}
	p.send(t, request{key: newKey()}).fresh(t, 201)
	p.ended()
}

// While it drains, answers tell callers to leave their connections, so that none of these
// is cut when a request is on its way.
func TestADrainingProxyLetsConnectionsGo(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]func(*http.Protocols, bool){"HTTP/1.1": (*http.Protocols).SetHTTP1, "HTTP/2": (*http.Protocols).SetUnencryptedHTTP2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t, created)
			p := start(t, setup{store: memory(), upstream: up.url, server: "drain_delay: 3s", routes: payments})
			transport := &http.Transport{Protocols: new(http.Protocols)}
			version(transport.Protocols, true)
			defer transport.CloseIdleConnections()
			reused := func() (kept bool) {
				trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { kept = i.Reused }}
				req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", "http://"+p.addr+"/pay", strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Idempotency-Key", newKey())
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 201 {
					t.Fatalf("status %d, %v", res.StatusCode, err)
				}
				return kept
			}
			reused()
			if !reused() {
				t.Error("no connection is kept while nothing ends")
			}
			p.terminate()
			eventually(t, "not ready any more", func() bool { return p.probe("/readyz") == 503 })
			reused() // it is told here
			eventually(t, "on a connection of its own", func() bool { return !reused() })
			p.ended()
		})
	}
}

// What can't end within the grace is an unknown outcome, and does not hold the process.
func TestTheGraceIsLimited(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		s := setup{store: shared, upstream: up.url, server: "shutdown_grace: 300ms", routes: `  - {name: payments, path: /pay, lease: 1s}`}
		p, other := start(t, s), start(t, s)
		req := request{key: newKey(), body: "x"}
		p.begin(req)
		g.arrived(t)
		p.terminate()
		receive(t, "end of the proxy", p.exited)
		p.expected = true
		eventually(t, "held as unknown", func() bool {
			code := problemOf(other.send(t, req)).Code
			return code == "outcome_unknown"
		})
		up.saw(t, 1)
	})
}

func TestEveryPathOfTheProxyIsTheUpstreams(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	for i, path := range []string{"/metrics", "/healthz", "/readyz", "/livez", "/debug/pprof/", "/favicon.ico"} {
		p.send(t, request{method: "GET", target: path}).fresh(t, 201)
		up.saw(t, i+1)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/livez": 200, "/startupz": 200, "/metrics": 200, "/debug/pprof/": 404, "/": 404, "/pay": 404} {
		if got := p.probe(path); got != want {
			t.Errorf("admin %s: %d, want %d", path, got, want)
		}
	}
	if res, err := exchange(p.admin, request{target: "/readyz"}); err != nil || res.status != 405 {
		t.Errorf("POST to the admin port: %v, %v; nothing there changes anything", res, err)
	}
}

// Without a file every mutating request that carries a key is guarded.
func TestServeWithoutAFile(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort())}
	t.Cleanup(p.finish)
	p.environment = []string{"IDEMPROXY_SERVER_LISTEN=" + p.addr, "IDEMPROXY_ADMIN_LISTEN=" + p.admin}
	p.run("serve", "--upstream", up.url)
	p.waitReady()
	seen := 0
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, target := range []string{"/", "/a", "/a/b/c?x=1"} {
			req := request{method: method, target: target, key: newKey(), body: "x"}
			p.twice(t, req, 201)
			seen++
			up.saw(t, seen)
			req.key = ""
			p.send(t, req).fresh(t, 201)
			p.send(t, req).fresh(t, 201)
			seen += 2
			up.saw(t, seen)
		}
	}
	p.send(t, request{method: "GET", target: "/a", key: newKey()}).fresh(t, 201)
}

// The environment comes before the file, and values may name variables.
func TestTheEnvironment(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort())}
	p.file = filepath.Join(t.TempDir(), "idemproxy.yaml")
	write(t, p.file, setup{store: memory(), upstream: "http://${UPSTREAM_ADDRESS:-127.0.0.1:1}", routes: payments}.yaml("127.0.0.1:1", p.admin))
	p.environment = []string{"IDEMPROXY_SERVER_LISTEN=" + p.addr, "UPSTREAM_ADDRESS=" + up.addr, "IDEMPROXY_ROUTES_0_MISMATCH_STATUS=409"}
	t.Cleanup(p.finish)
	p.run("serve", "--config", p.file)
	p.waitReady()
	req := request{key: newKey(), body: "x"}
	p.twice(t, req, 201)
	req.body = "y"
	p.send(t, req).refused(t, 409, "key_reuse")
	up.saw(t, 1)
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	p := start(t, setup{store: memory(), upstream: "http://127.0.0.1:1", routes: payments})
	if exit, stdout, stderr := once(t, "healthcheck", "--config", p.file); exit != 0 {
		t.Errorf("exit %d of a live proxy: %s%s", exit, stdout, stderr)
	}
	p.stop()
	if exit, stdout, stderr := once(t, "healthcheck", "--config", p.file); exit != 1 {
		t.Errorf("exit %d of a dead proxy, want 1: %s%s", exit, stdout, stderr)
	}
}
