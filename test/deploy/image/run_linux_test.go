package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"idemproxy/test/deploy/process"
)

// TestVersion runs the smallest command there is.
func TestVersion(t *testing.T) {
	c := start(t, confinement{}, "version")
	if code := c.exit(); code != 0 || !strings.Contains(c.said.String(), buildArgs["VERSION"]) {
		t.Errorf("exit code %d, %q", code, c.said.String())
	}
}

// TestNothingElse wants no shell and no other program in it.
func TestNothingElse(t *testing.T) {
	for _, program := range []string{"/bin/sh", "/bin/busybox", "/usr/bin/env"} {
		if c := start(t, confinement{Args: []string{program}}, "-c", "exit 0"); c.exit() != 125 {
			t.Errorf("%s runs: %s", program, c.said.String())
		}
	}
}

// TestReadOnly wants the one thing that writes, the file store, to say so where it can't.
func TestReadOnly(t *testing.T) {
	c := start(t, confinement{Env: []string{"IDEMPROXY_UPSTREAM_URL=http://127.0.0.1:3000", "IDEMPROXY_STORE_TYPE=file"}})
	if code := c.exit(); code != 1 || !strings.Contains(c.said.String(), "read-only file system") {
		t.Errorf("a file store without a volume: exit code %d, %q", code, c.said.String())
	}
}

// TestDefaults runs it as `docker run -e IDEMPROXY_UPSTREAM_URL=…` does: ports, file and
// health check are the image's own, in a network of its own.
func TestDefaults(t *testing.T) {
	c := start(t, confinement{})
	if code := c.exit(); code != 2 || !strings.Contains(c.said.String(), "upstream.url") {
		t.Errorf("without an upstream: exit code %d, %q", code, c.said.String())
	}

	health := configuration(t).Healthcheck.Test[1:]
	api := start(t, confinement{Loopback: true}, "demo", "--api", "127.0.0.1:3000")
	inside := func(command ...string) (int, string) {
		c := start(t, confinement{Network: api.cmd.Process.Pid, Args: command[:1]}, command[1:]...)
		return c.exit(), c.said.String()
	}
	healthy := func() bool { code, _ := inside(health...); return code == 0 }
	api.await("the sample answers", func() bool {
		code, _ := inside("/idemproxy", "healthcheck", "--url", "http://127.0.0.1:3000/payments")
		return code == 0
	})
	if code, said := inside(health...); code != 1 {
		t.Errorf("healthy before it runs: exit code %d, %q", code, said)
	}
	for _, way := range []struct{ env, args []string }{
		{env: []string{"IDEMPROXY_UPSTREAM_URL=http://127.0.0.1:3000"}},
		{args: []string{"serve", "--upstream", "http://127.0.0.1:3000"}},
	} {
		proxy := start(t, confinement{Network: api.cmd.Process.Pid, Env: way.env}, way.args...)
		proxy.await("it is healthy", healthy)
		if code, said := inside("/idemproxy", "healthcheck", "--url", "http://127.0.0.1:8080/payments"); code != 0 {
			t.Errorf("%v: the sample is not behind port 8080: %s", way, said)
		}
		confined(t, proxy)
		proxy.stop()
	}
	api.stop()
}

// confined asks the kernel whether the process is what the image's user may be.
func confined(t *testing.T, c *container) {
	t.Helper()
	for name, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532", "Groups": "",
		"CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "0", "CapAmb": "0", "NoNewPrivs": "1",
	} {
		got := c.status(name)
		if strings.HasPrefix(name, "Cap") && strings.Trim(got, "0") == "" {
			got = "0"
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if fields := strings.Fields(c.status("NSpid")); fields[len(fields)-1] != "1" {
		t.Errorf("its pid is %v, want 1: signals are different there", fields)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / ro,\S* `).Match(mounts) {
		t.Errorf("its root can be written:\n%s", mounts)
	}
}

// TestStores runs it on every store, with a configuration mounted over the image's.
func TestStores(t *testing.T) {
	stores := map[string]func(t *testing.T) (settings, state string){
		"memory": func(*testing.T) (string, string) { return "", "" },
		"file":   func(t *testing.T) (string, string) { return "", volume(t) },
		"redis": func(t *testing.T) (string, string) {
			return fmt.Sprintf(", redis: {url: %q}", "redis://"+startRedis(t)+"/0"), ""
		},
		"postgres": func(t *testing.T) (string, string) {
			return fmt.Sprintf(", postgres: {url: %q}", "postgres://postgres@"+startPostgres(t)+"/postgres?sslmode=disable"), ""
		},
	}
	for name, prepare := range stores {
		t.Run(name, func(t *testing.T) {
			needRoot(t)
			settings, state := prepare(t)
			listen, admin, upstream := process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t)
			file := filepath.Join(volume(t), "idemproxy.yaml")
			text := fmt.Sprintf(`server: {listen: %q}
admin: {listen: %q}
upstream: {url: "http://%s"}
store: {type: %s%s}
routes: [{name: payments, path: /payments}]
`, listen, admin, upstream, name, settings)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			api := start(t, confinement{}, "demo", "--api", upstream)
			api.await("the sample answers", answers("http://"+upstream+"/payments"))
			serve := func() *container {
				c := start(t, confinement{Config: file, State: state})
				c.await("it is ready", answers("http://"+admin+"/readyz"))
				return c
			}
			proxy := serve()
			if health := start(t, confinement{Config: file}, configuration(t).Healthcheck.Test[2:]...); health.exit() != 0 {
				t.Errorf("not healthy: %s", health.said.String())
			}
			first, replayed := pay(t, listen)
			second, again := pay(t, listen)
			if replayed || !again || first != second {
				t.Errorf("first %q (a replay: %v), then %q (a replay: %v)", first, replayed, second, again)
			}
			confined(t, proxy)
			proxy.stop()
			if name != "memory" { // what was recorded is there after a restart
				proxy = serve()
				if third, again := pay(t, listen); third != first || !again {
					t.Errorf("after a restart %q (a replay: %v), before %q", third, again, first)
				}
				proxy.stop()
			}
			if got := charges(t, upstream); got != 1 {
				t.Errorf("the sample was charged %d times, want once", got)
			}
			api.stop()
		})
	}
}

// pay sends one payment, always the same, and tells whether the answer is a replay.
func pay(t *testing.T, proxy string) (body string, replay bool) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+proxy+"/payments", strings.NewReader(`{"amount": 1999}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", "order-1")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatalf("status %d, %q, error %v", answer.StatusCode, data, err)
	}
	return string(data), answer.Header.Get("X-Idempotent-Replay") == "true"
}

// charges is what the sample API says of itself.
func charges(t *testing.T, api string) (n int) {
	t.Helper()
	answer, err := http.Get("http://" + api + "/payments")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var said struct{ Charges *int }
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || said.Charges == nil {
		t.Fatalf("the sample says nothing of its charges: %v", err)
	}
	return *said.Charges
}
