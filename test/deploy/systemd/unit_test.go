// Package systemd tests deploy/systemd by systemd's own tools, which need no running systemd.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const root = "../../.."

// exposure is the highest of systemd's figures for "how much can it do", times ten.
const exposure = "11"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		const message = "NOT TESTED: the systemd unit. systemd-analyze is missing; scripts/services.sh installs it"
		if os.Getenv("CI") == "true" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %v: %v", args, err)
	}
	return string(out)
}

func TestVerify(t *testing.T) {
	unit := filepath.Join(t.TempDir(), "idemproxy.service")
	// The program is not installed here, and systemd wants it to be there.
	text := strings.ReplaceAll(read(t, "deploy/systemd/idemproxy.service"), "/usr/bin/idemproxy", "/bin/true")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := analyze(t, "verify", "--man=no", unit); strings.Contains(out, "idemproxy.service:") {
		t.Errorf("systemd says:\n%s", out)
	}
}

func TestSecurity(t *testing.T) {
	out := analyze(t, "security", "--offline=true", "--no-pager", "--threshold="+exposure, root+"/deploy/systemd/idemproxy.service")
	if t.Failed() {
		t.Log(out)
	}
}

func TestSettings(t *testing.T) {
	unit := read(t, "deploy/systemd/idemproxy.service")
	lines := slices.Collect(strings.Lines(unit))
	for _, want := range []string{
		"DynamicUser=yes", "StateDirectory=idemproxy", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=",
		"SystemCallFilter=@system-service", "MemoryDenyWriteExecute=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
		"ExecStartPre=/usr/bin/idemproxy validate", "ExecStart=/usr/bin/idemproxy serve", "ExecReload=/bin/kill -HUP $MAINPID",
		"Restart=on-failure", "RestartPreventExitStatus=2", "Environment=IDEMPROXY_CONFIG=/etc/idemproxy/idemproxy.yaml",
	} {
		if !slices.Contains(lines, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if !strings.Contains(read(t, "configs/idemproxy.yaml"), "path: /var/lib/idemproxy/") {
		t.Error("the file store's default is not in the state directory")
	}

	duration := func(text, pattern string) time.Duration {
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no %s", pattern)
		}
		d, err := time.ParseDuration(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	defaults := read(t, "configs/idemproxy.yaml")
	needed := duration(defaults, `(?m)^  drain_delay: (\S+)`) + duration(defaults, `(?m)^  shutdown_grace: (\S+)`)
	if stop := duration(unit, `(?m)^TimeoutStopSec=(\S+)`); stop <= needed {
		t.Errorf("it is killed after %v, and may need %v to end", stop, needed)
	}
}
