package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// needCommand is a client that others wrote; without it a test is skipped, but not in CI.
func needCommand(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("no %s on PATH: scripts/services.sh should have seen to it", name)
	default:
		t.Skipf("NO %s ON PATH: THIS TEST IS SKIPPED", name)
	}
	return path
}

func TestFaithfulToCurl(t *testing.T) {
	t.Parallel()
	curl, up := needCommand(t, "curl"), newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	for i, protocol := range []string{"--http1.1", "--http2-prior-knowledge"} {
		k := newKey()
		for _, mark := range []string{"", "true"} {
			cmd := exec.CommandContext(t.Context(), curl, "-sS", "-m", "20", "--noproxy", "*", protocol, "-H", "Idempotency-Key: "+k, "-d", "amount=100",
				"-w", "\n%{http_code} %header{x-idempotent-replay}", "http://"+p.addr+"/pay")
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf("{\"execution\":%d}\n201 %s", i+1, mark); err != nil || string(out) != want {
				t.Errorf("%s: %q, %v, want %q", protocol, out, err, want)
			}
		}
	}
	up.saw(t, 2)
}

func TestFaithfulToH2load(t *testing.T) {
	t.Parallel()
	h2load, up := needCommand(t, "h2load"), newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	body := t.TempDir() + "/body"
	write(t, body, "amount=100")
	p.twice(t, request{key: "h2load", body: "amount=100"}, 201)
	for _, protocol := range []string{"--h1", "-ph2c"} {
		cmd := exec.CommandContext(t.Context(), h2load, "-n", "400", "-c", "8", "-m", "10", protocol, "-d", body, "-H", "idempotency-key: h2load", "http://"+p.addr+"/pay")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "400 succeeded, 0 failed, 0 errored, 0 timeout") || !strings.Contains(string(out), "400 2xx") {
			t.Errorf("%s: %v\n%s", protocol, err, out)
		}
	}
	up.saw(t, 1)
}
