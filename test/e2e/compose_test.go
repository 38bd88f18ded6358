package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
)

// These tests run what deploy/docker/compose.yaml describes with real processes on
// loopback: its servers with the very commands, environments and files that stand there,
// and only addresses and folders replaced. What they prove they prove of that file.

const composeFolder = "../../deploy/docker"

// A composed is a service of the compose file, as far as these tests read it.
type composed struct {
	Command     []string
	Environment map[string]string
	Volumes     []string
	HealthCheck struct{ Test []string } `yaml:"healthcheck"`
}

// A composition is that file, running.
type composition struct {
	t        *testing.T
	services map[string]composed
	redis    *redisProcess
	proxies  [2]*proxy
	legacy   string // its address
	entry    *entry
}

// compose starts everything, in the file's order.
func compose(t *testing.T) *composition { return composeBefore(t, "") }

// composeBefore starts everything before a service of the test's own, at this address.
func composeBefore(t *testing.T, legacy string) *composition {
	t.Helper()
	c := &composition{t: t, legacy: legacy}
	text, err := os.ReadFile(filepath.Join(composeFolder, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]composed }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	c.services = file.Services
	c.startRedis()
	if legacy == "" {
		c.startLegacy()
	}
	for i := range c.proxies {
		name := fmt.Sprintf("proxy-%d", i+1)
		c.proxies[i] = c.newProxy(name)
		eventually(t, "healthy", func() bool { return c.healthy(name, c.proxies[i].environment) })
	}
	c.startEntry()
	t.Cleanup(c.end)
	return c
}

// service is one that must be there.
func (c *composition) service(name, program string) composed {
	c.t.Helper()
	s, ok := c.services[name]
	if !ok || len(s.Command) == 0 || s.Command[0] != program {
		c.t.Fatalf("compose.yaml: the service %s runs %q, want %s", name, s.Command, program)
	}
	return s
}

// mounted is the file of this repository that stands for one in the container.
func (c *composition) mounted(s composed, target string) string {
	c.t.Helper()
	for _, v := range s.Volumes {
		source, rest, _ := strings.Cut(v, ":")
		if strings.TrimSuffix(rest, ":ro") == target {
			path, err := filepath.Abs(filepath.Join(composeFolder, source))
			if err != nil {
				c.t.Fatal(err)
			}
			return path
		}
	}
	c.t.Fatalf("compose.yaml mounts nothing at %s", target)
	panic("unreachable")
}

func (c *composition) startRedis() {
	c.t.Helper()
	var args []string
	for _, arg := range c.service("redis", "redis-server").Command[1:] {
		if arg == "/data" {
			arg = c.t.TempDir()
		}
		args = append(args, arg)
	}
	c.redis = startProcess(c.t, args...)
}

func (c *composition) startLegacy() {
	c.t.Helper()
	c.legacy = local(freePort())
	var args []string
	for _, arg := range c.service("legacy", "demo").Command {
		args = append(args, strings.Replace(arg, ":3000", c.legacy, 1))
	}
	cmd := command(args...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(c.t, "healthy", func() bool { return c.healthy("legacy", nil) })
}

// healthy runs the check by which Docker knows that a service is, which is our program too.
func (c *composition) healthy(name string, environment []string) bool {
	c.t.Helper()
	check := c.services[name].HealthCheck.Test
	if len(check) < 2 || check[0] != "CMD" || check[1] != "/idemproxy" {
		c.t.Fatalf("compose.yaml checks %s by %q", name, check)
	}
	var args []string
	for _, arg := range check[2:] {
		args = append(args, strings.Replace(arg, "127.0.0.1:3000", c.legacy, 1))
	}
	cmd := command(args...)
	cmd.Env = append(cmd.Env, environment...)
	return cmd.Run() == nil
}

// newProxy starts a proxy; it need not be ready yet.
func (c *composition) newProxy(name string) *proxy {
	c.t.Helper()
	s := c.service(name, "serve")
	p := &proxy{t: c.t, addr: local(freePort()), admin: local(freePort())}
	p.file = c.mounted(s, s.Environment["IDEMPROXY_CONFIG"])
	p.environment = []string{
		"IDEMPROXY_SERVER_LISTEN=" + p.addr, "IDEMPROXY_ADMIN_LISTEN=" + p.admin,
		"IDEMPROXY_STORE_TIMEOUT=5s", // so that a busy machine fails no test
	}
	places := strings.NewReplacer("redis:6379", c.redis.addr(), "legacy:3000", c.legacy, s.Environment["IDEMPROXY_CONFIG"], p.file)
	for name, value := range s.Environment {
		p.environment = append(p.environment, name+"="+places.Replace(value))
	}
	p.run(s.Command...)
	c.t.Cleanup(p.finish)
	return p
}

// end asks both proxies to stop at the same time: each takes its drain_delay.
func (c *composition) end() {
	if c.t.Failed() {
		return // see proxy.finish
	}
	for _, p := range c.proxies {
		p.terminate()
	}
	for _, p := range c.proxies {
		p.ended()
	}
}

// send sends a request through the entry.
func (c *composition) send(r request) *response {
	c.t.Helper()
	for _, p := range c.proxies {
		p.secret(r.secrets()...)
	}
	res, err := exchange(c.entry.addr, r)
	if err != nil {
		c.t.Fatalf("the caller got no answer: %v", err)
	}
	return res
}

// charged checks how often the service acted, in its own words.
func (c *composition) charged(times int) {
	c.t.Helper()
	res, err := exchange(c.legacy, request{method: "GET", target: "/payments"})
	if err != nil {
		c.t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"charges":%d}`, times); strings.TrimSpace(string(res.body)) != want {
		c.t.Errorf("the service says %s, want %s", res.body, want)
	}
}

// An entry is the HAProxy in front of the proxies.
type entry struct {
	addr, health string
	log          *output
}

func (c *composition) startEntry() {
	c.t.Helper()
	path := haproxy(c.t)
	s := c.services["entry"]
	text, err := os.ReadFile(c.mounted(s, "/usr/local/etc/haproxy/haproxy.cfg"))
	if err != nil {
		c.t.Fatal(err)
	}
	e := &entry{addr: local(freePort()), health: local(freePort()), log: &output{}}
	config := string(text)
	replace := func(times int, pattern, with string) {
		c.t.Helper()
		re := regexp.MustCompile(pattern)
		if got := len(re.FindAllString(config, -1)); got != times {
			c.t.Fatalf("haproxy.cfg has %s %d times, want %d", pattern, got, times)
		}
		config = re.ReplaceAllString(config, with)
	}
	replace(1, `bind :8080\b`, "bind "+e.addr)
	replace(1, `bind 127\.0\.0\.1:8404\b`, "bind "+e.health)
	for i, p := range c.proxies {
		_, admin, _ := strings.Cut(p.admin, ":")
		replace(2, fmt.Sprintf(`(server proxy-%d) proxy-%[1]d:8080 port 9090\b`, i+1), "${1} "+p.addr+" port "+admin)
	}
	file := filepath.Join(c.t.TempDir(), "haproxy.cfg")
	write(c.t, file, config)
	cmd := exec.Command(path, "-db", "-f", file)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = e.log, e.log, child()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("log of the entry:\n%s", tail(e.log.String(), 4000))
		}
	})
	// The container's own check, by the address that stands in the file.
	check := s.HealthCheck.Test
	target, ok := strings.CutPrefix(check[len(check)-1], "http://127.0.0.1:8404")
	if !ok {
		c.t.Fatalf("the entry is asked at %q", check)
	}
	eventually(c.t, "healthy", func() bool {
		res, err := exchange(e.health, request{method: "GET", target: target})
		return err == nil && res.status == 200
	})
	c.entry = e
}

// haproxy is where the program is. In CI a missing one is a failure.
func haproxy(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath("/usr/sbin/haproxy") // not on everybody's PATH
	}
	switch {
	case err != nil && os.Getenv("CI") == "":
		t.Skip("no haproxy on PATH")
	case err != nil:
		t.Fatal(err)
	}
	return path
}

func pay(key string) request {
	return request{target: "/payments", key: key, body: `{"amount": 1999}`}
}

// again starts one of the proxies that has ended.
func (c *composition) again(i int) {
	c.t.Helper()
	p := c.proxies[i]
	p.run(c.service(fmt.Sprintf("proxy-%d", i+1), "serve").Command...)
	p.waitReady()
}

func TestComposeOnceForAKey(t *testing.T) {
	t.Parallel()
	c := compose(t)
	req := pay(newKey())
	first := c.send(req).fresh(t, 201)
	for range 4 { // the entry takes them in turn
		c.send(req).replays(t, first)
	}
	for i, p := range c.proxies {
		if !strings.Contains(p.log.String(), `"payments"`) {
			t.Errorf("proxy-%d got none of five requests", i+1)
		}
	}
	other := req
	other.body = `{"amount": 5}`
	c.send(other).refused(t, 422, "key_reuse")
	c.send(pay("")).refused(t, 400, "missing_key")
	if got := c.send(request{method: "GET", target: "/payments"}); got.status != 200 {
		t.Errorf("what is not guarded: %s", got)
	}
	c.charged(1)
}

// The service learns from the entry where a request comes from, not from who sent it; all
// else reaches it as it was sent.
func TestComposeWhereACallerComesFrom(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	c := composeBefore(t, up.addr)
	req := pay(newKey())
	req.target = "/payments?b=2&a=%2F1"
	req.header = []string{"X-Forwarded-For: 203.0.113.66", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "Forwarded: for=203.0.113.66"}
	c.send(req).fresh(t, 201)
	got := up.last(t)
	if strings.Contains(fmt.Sprint(got.header), "203.0.113.66") || strings.Contains(fmt.Sprint(got.header), "evil") || got.header.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("the service believes a caller: %v", got.header)
	}
	if from := got.header.Get("X-Forwarded-For"); !strings.HasPrefix(from, "127.0.0.1") {
		t.Errorf("X-Forwarded-For: %q", from)
	}
	if got.host != "service.example" || got.target != req.target || string(got.body) != req.body || got.header.Get("Idempotency-Key") != req.key {
		t.Errorf("the service got %s %s %q %v", got.host, got.target, got.body, got.header)
	}
}

// Redis crashes: what it acknowledged it still knows. Meanwhile nothing is executed, and
// what is not guarded passes, although no proxy is ready.
func TestComposeRedisCrashes(t *testing.T) {
	t.Parallel()
	c := compose(t)
	req := pay(newKey())
	first := c.send(req).fresh(t, 201)

	c.redis.kill()
	eventually(t, "noticed by Docker", func() bool { return !c.healthy("proxy-1", c.proxies[0].environment) })
	eventually(t, "noticed by the entry", func() bool {
		return strings.Contains(c.entry.log.String(), "backend ready has no server available")
	})
	for range 4 {
		res := c.send(pay(newKey()))
		res.refused(t, 503, "store_unavailable")
		if res.get("Retry-After") == "" {
			t.Errorf("no Retry-After:\n%s", res)
		}
		if got := c.send(request{method: "GET", target: "/payments"}); got.status != 200 {
			t.Errorf("what is not guarded: %s", got)
		}
	}
	c.charged(1)

	c.redis.start()
	for _, p := range c.proxies {
		p.waitReady()
	}
	for range 4 {
		c.send(req).replays(t, first)
	}
	c.send(pay(newKey())).fresh(t, 201)
	c.charged(2)
}

// A proxy crashes: the entry takes to the other one what can't be connected, at once.
func TestComposeAProxyCrashes(t *testing.T) {
	t.Parallel()
	c := compose(t)
	req := pay(newKey())
	first := c.send(req).fresh(t, 201)
	c.proxies[0].kill()
	for range 10 {
		c.send(req).replays(t, first)
		c.send(pay(newKey())).fresh(t, 201)
	}
	c.again(0)
	eventually(t, "in use again", func() bool {
		c.send(req).replays(t, first)
		return strings.Contains(c.proxies[0].log.String(), `"payments"`)
	})
	c.charged(11)
}
