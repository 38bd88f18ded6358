package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// These tests are about a configuration that changes while the proxy serves.

// configure puts another configuration in the place of the proxy's, all at once.
func (p *proxy) configure(t *testing.T, s setup) {
	t.Helper()
	write(t, p.file+".new", s.yaml(p.addr, p.admin))
	if err := os.Rename(p.file+".new", p.file); err != nil {
		t.Fatal(err)
	}
}

func (p *proxy) hangUp() { _ = p.cmd.Process.Signal(syscall.SIGHUP) }

// reloaded waits for this many reloads with this result.
func (p *proxy) reloaded(t *testing.T, result string, times float64) {
	t.Helper()
	p.grew(t, fmt.Sprintf("config_reloads_total{result=%q}", result), times)
}

func TestReload(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		old := setup{store: s, upstream: up.url, routes: payments}
		p := start(t, old)
		req := request{key: newKey(), body: "x"}
		first := p.send(t, req).fresh(t, 201)
		other := req
		other.body = "y"
		p.send(t, other).refused(t, 422, "key_reuse")
		p.hangUp()
		p.reloaded(t, "unchanged", 1)

		changed := old
		changed.defaults = "mismatch_status: 409"
		p.configure(t, changed)
		p.reloaded(t, "ok", 1)
		p.logged(t, "configuration loaded again", "the file changed", "routes[0].mismatch_status")
		p.send(t, other).refused(t, 409, "key_reuse")
		p.send(t, req).replays(t, first) // what was recorded under the old rules is there

		changed.routes += "\n  - {name: orders, path: /orders}"
		p.configure(t, changed)
		p.hangUp() // now, without waiting for the file to settle; the file's change may come first all the same
		p.reloaded(t, "ok", 2)
		p.logged(t, "configuration loaded again", "SIGHUP")
		p.send(t, request{target: "/orders"}).refused(t, 400, "missing_key")

		p.configure(t, old)
		p.reloaded(t, "ok", 3)
		p.send(t, request{target: "/orders"}).fresh(t, 201)
		if p.metric(t, `idemproxy_rejects_total{reason="missing_key",route="orders"}`) != 1 {
			t.Error("the counters of a route that is gone are gone, too")
		}
		p.send(t, req).replays(t, first)
		up.executed(t, "x", 1)
	})
}

// A ConfigMap's volume: the file is a symlink through ..data, which is exchanged.
func TestReloadOfAConfigMap(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	s := setup{store: memory(), upstream: up.url, routes: payments}
	dir := t.TempDir()
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort()), file: filepath.Join(dir, "idemproxy.yaml")}
	mount := func(version string, s setup) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "idemproxy.yaml"), s.yaml(p.addr, p.admin))
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("..2026_1", s)
	if err := os.Symlink(filepath.Join("..data", "idemproxy.yaml"), p.file); err != nil {
		t.Fatal(err)
	}
	p.run("serve", "--config", p.file)
	t.Cleanup(p.finish)
	p.waitReady()
	for i, status := range []int{409, 422, 409} {
		s.defaults = fmt.Sprintf("mismatch_status: %d", status)
		mount(fmt.Sprintf("..2026_%d", i+2), s)
		_ = os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1)))
		p.reloaded(t, "ok", float64(i+1))
		req := request{key: newKey(), body: "x"}
		p.send(t, req).fresh(t, 201)
		req.body = "y"
		p.send(t, req).refused(t, status, "key_reuse")
	}
}

// A request ends by the rules by which it began, and the room it takes is not forgotten.
func TestReloadWhileARequestRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, held(g, created))
		old := setup{store: s, upstream: up.url, routes: payments}
		p := start(t, old)
		req := request{key: newKey(), body: strings.Repeat("x", 3000)}
		running := p.begin(req)
		g.arrived(t)

		strict := old
		strict.routes = `  - {name: payments, path: /pay, max_request_body: 1KiB, max_response_body: 1B, header_name: Another-Key}`
		strict.limits = "max_concurrent: 1"
		p.configure(t, strict)
		p.reloaded(t, "ok", 1)
		p.send(t, req).refused(t, 400, "missing_key")
		p.send(t, request{header: []string{"Another-Key: another-1"}}).refused(t, 503, "overloaded")

		strict.limits = "max_buffered_bytes: 2KiB"
		p.configure(t, strict)
		p.reloaded(t, "ok", 2)
		p.send(t, request{header: []string{"Another-Key: another-2"}, body: "x"}).refused(t, 503, "overloaded")
		g.open()
		first := running.wait(t).fresh(t, 201)
		eventually(t, "room again", func() bool { return p.metric(t, "idemproxy_buffered_bytes") == 0 })
		p.send(t, request{header: []string{"Another-Key: another-2"}, body: "x"}).fresh(t, 201)
		p.send(t, request{header: []string{"Another-Key: another-2"}, body: strings.Repeat("x", 3000)}).refused(t, 413, "request_too_large")

		p.configure(t, old)
		p.reloaded(t, "ok", 3)
		p.send(t, req).replays(t, first) // it was recorded whole, as its rule said
		up.executed(t, req.body, 1)
	})
}

func TestAReloadIsRefused(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	good := setup{store: memory(), upstream: up.url, routes: payments, log: "level: info"}
	p := start(t, good)
	refused := 0.0
	check := func(words ...string) {
		t.Helper()
		refused++
		p.reloaded(t, "refused", refused)
		p.logged(t, append([]string{"the new configuration was refused"}, words...)...)
		p.send(t, request{}).refused(t, 400, "missing_key")
		p.twice(t, request{key: newKey(), body: "x"}, 201)
	}

	bad := good
	bad.routes = "  - {name: payments, path: /pay, tll: 1h}\n  - {name: payments, path: pay}"
	p.configure(t, bad)
	at := func(line, column int) string { return fmt.Sprintf("%s:%d:%d: routes", p.file, line, column) }
	check(at(7, 34), at(8, 12), at(8, 28), "did you mean ttl?")

	write(t, p.file, "upstream: {url: "+up.url)
	check(p.file+":1:", "not YAML")

	write(t, p.file, "upstream: {url: \""+up.url+"\"}\n") // cut off, or so it seems
	check("no routes any more")

	write(t, p.file, "")
	check("no routes any more")

	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	check("read configuration", "no such file")

	p.configure(t, good)
	p.reloaded(t, "unchanged", 1)
	none := good
	none.routes = "  []"
	p.configure(t, none)
	p.reloaded(t, "ok", 1)
	p.logged(t, "there are none: every request passes through")
	p.send(t, request{}).fresh(t, 201)
}

// What needs a restart is named, and the rest is applied. What the environment says stays.
func TestAReloadThatNeedsARestart(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	s := setup{store: memory(), upstream: up.url, routes: payments, log: "level: warn"}
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort()), file: filepath.Join(t.TempDir(), "idemproxy.yaml")}
	write(t, p.file, s.yaml(p.addr, p.admin))
	p.environment = []string{"IDEMPROXY_ROUTES_0_MISMATCH_STATUS=409"}
	t.Cleanup(p.finish)
	p.run("serve", "--config", p.file)
	p.waitReady()

	s.upstream = "http://127.0.0.1:1"
	s.server = "body_timeout: 7s"
	s.store.yaml = `type: redis, redis: {password: "hidden-in-the-file"}`
	s.defaults = "mismatch_status: 422"
	s.routes = `  - {name: payments, path: /pay, docs_url: "https://docs.example/keys"}`
	p.secret("hidden-in-the-file")
	p.configure(t, s)
	p.reloaded(t, "ok", 1)
	p.logged(t, `"level":"warn"`, "changed settings that need a restart: server.body_timeout, upstream.url, store.type, store.redis.password")
	req := request{key: newKey(), body: "x"}
	p.send(t, req).fresh(t, 201)
	req.body = "y"
	if res := p.send(t, req); res.status != 409 || !strings.Contains(res.get("Link"), "https://docs.example/keys") {
		t.Errorf("want 409 by the environment and a link by the new file:\n%s", res)
	}
	before := strings.Count(p.log.String(), "need a restart")
	s.routes = payments
	p.configure(t, s)
	p.reloaded(t, "ok", 2)
	eventually(t, "reminded", func() bool { return strings.Count(p.log.String(), "need a restart") == before+1 })
}

func TestReloadOfTheLogsLevel(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	s := setup{store: memory(), upstream: up.url, routes: payments, log: "level: info"}
	p := start(t, s)
	lines := func() int { return strings.Count(p.log.String(), `"msg":"request"`) }
	reloads := 0.0
	for _, tc := range []struct {
		log  string
		more int
	}{{"level: info, access: true", 0}, {"level: warn", 0}, {"level: info", 1}, {"level: info, access: false", 0}, {"level: debug, access: true", 1}} {
		s.log = tc.log
		p.configure(t, s)
		if reloads++; reloads == 1 {
			p.reloaded(t, "unchanged", 1)
			continue
		}
		p.reloaded(t, "ok", reloads-1)
		before := lines()
		p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
		eventually(t, "counted", func() bool { return p.metric(t, `idemproxy_in_flight{route="payments"}`) == 0 })
		eventually(t, "logged as "+tc.log, func() bool { return lines() >= before+tc.more })
		if got := lines() - before; got != tc.more {
			t.Errorf("%d lines with %s, want %d", got, tc.log, tc.more)
		}
	}
}

// Fifty callers, while the rules change all the time.
func TestReloadUnderLoad(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		one := setup{store: s, upstream: up.url, routes: payments, log: "level: warn"}
		other := one
		other.routes = `  - {name: payments, path: /pay, mismatch_status: 409, max_request_body: 2KiB}
  - {name: orders, path: /orders}`
		other.limits = "max_concurrent: 60, max_buffered_bytes: 64MiB"
		p := start(t, one)
		var stop atomic.Bool
		var keys atomic.Int64
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for !stop.Load() {
					keys.Add(1)
					req := request{key: newKey(), body: "x"}
					first, err := exchange(p.addr, req)
					if err != nil || first.status != 201 {
						t.Errorf("a request failed: %v, %v", first, err)
						return
					}
					again, err := exchange(p.addr, req)
					if err != nil || again.status != 201 || again.get("X-Idempotent-Replay") != "true" || !bytes.Equal(again.body, first.body) {
						t.Errorf("a replay failed: %v, %v", again, err)
						return
					}
				}
			})
		}
		reloads := func() float64 { return p.metric(t, `idemproxy_config_reloads_total{result="ok"}`) }
		for begun, i := time.Now(), 0; time.Since(begun) < 3*time.Second || reloads() < 5 && time.Since(begun) < patience; i++ {
			p.configure(t, []setup{other, one}[i%2])
			p.hangUp()
			time.Sleep(50 * time.Millisecond)
		}
		stop.Store(true)
		callers.Wait()
		up.saw(t, int(keys.Load()))
		if reloads() < 5 {
			t.Errorf("only %v reloads", reloads())
		}
		if n := p.metric(t, `idemproxy_config_reloads_total{result="refused"}`); n != 0 {
			t.Errorf("%v reloads were refused", n)
		}
		if p.metric(t, "idemproxy_buffered_bytes") != 0 {
			t.Error("bytes are held by nobody")
		}
	})
}

// Without a file there is nothing to reload, and SIGHUP does not end the proxy.
func TestReloadWithoutAFile(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort())}
	t.Cleanup(p.finish)
	p.run("serve", "--upstream", up.url, "--listen", p.addr, "--admin-listen", p.admin)
	p.waitReady()
	p.hangUp()
	p.reloaded(t, "unchanged", 1)
	p.twice(t, request{key: newKey(), body: "x"}, 201)
}
