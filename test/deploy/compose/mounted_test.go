package compose

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// The files that the containers read, checked by those that read them.

// tool is the path of a program of this machine. In CI a missing one is a failure.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath("/usr/sbin/" + name) // not on everybody's PATH
	}
	switch {
	case err != nil && os.Getenv("CI") == "":
		t.Skipf("no %s on PATH", name)
	case err != nil:
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "idemproxy-compose-")
	if err == nil {
		binary = filepath.Join(dir, "idemproxy")
		var out []byte
		if out, err = exec.Command("go", "-C", "../../..", "build", "-o", binary, "./cmd/idemproxy").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the program: %w\n%s", err, out)
		}
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// inside is where a file of a container comes from.
func inside(p *types.Project, s types.ServiceConfig, target string) string {
	for _, v := range s.Volumes {
		if v.Target == target {
			return v.Source
		}
	}
	for _, secret := range s.Secrets {
		if "/run/secrets/"+secret.Source == target {
			return p.Secrets[secret.Source].File
		}
	}
	return ""
}

// configured runs the program with a proxy's file and environment, with files of this
// machine in the place of the container's.
func configured(t *testing.T, p *types.Project, s types.ServiceConfig, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range s.Environment {
		text := *value
		if strings.HasPrefix(text, "/") {
			if text = inside(p, s, text); text == "" {
				t.Fatalf("%s=%s: nothing is mounted there", name, *value)
			}
		}
		cmd.Env = append(cmd.Env, name+"="+text)
	}
	return run(t, cmd)
}

func eachProxy(t *testing.T, test func(t *testing.T, p *types.Project, s types.ServiceConfig)) {
	eachProject(t, func(t *testing.T, p *types.Project) {
		for _, name := range []string{"proxy-1", "proxy-2"} {
			test(t, p, p.Services[name])
		}
	})
}

func TestTheProxiesConfigurationIsValid(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *types.Project, s types.ServiceConfig) {
		if !slices.Equal(s.Command, []string{"serve"}) {
			t.Errorf("command: %q", s.Command)
		}
		out := configured(t, p, s, "validate")
		if !strings.Contains(out, ": ok (2 routes)") {
			t.Error(out)
		}
		out = configured(t, p, s, "explain", "POST", "/payments", "-H", "Idempotency-Key: order-1")
		if !strings.Contains(out, "payments") || strings.Contains(out, "change-me") {
			t.Error(out)
		}
		if url := *s.Environment["IDEMPROXY_UPSTREAM_URL"]; url != "http://legacy:3000" {
			t.Errorf("upstream: %s", url)
		}
		if kind := *s.Environment["IDEMPROXY_STORE_TYPE"]; kind != store(p) {
			t.Errorf("store: %s", kind)
		}
	})
}

// Nobody is killed who still has something to end, and the entry knows in time.
func TestTimesFitTogether(t *testing.T) {
	var config struct {
		Server struct {
			DrainDelay    string `json:"drain_delay"`
			ShutdownGrace string `json:"shutdown_grace"`
		} `json:"server"`
		Upstream struct {
			ResponseTimeout string `json:"response_timeout"`
		} `json:"upstream"`
		Routes any `json:"routes"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, folder+"idemproxy.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	drain, grace := duration(t, config.Server.DrainDelay), duration(t, config.Server.ShutdownGrace)
	response := duration(t, config.Upstream.ResponseTimeout)
	if grace <= response {
		t.Errorf("shutdown_grace %v, requests may take %v", grace, response)
	}

	haproxy := read(t, folder+"haproxy.cfg")
	entry := func(setting string) time.Duration {
		m := regexp.MustCompile(`(?m)^\s+` + setting + `\s+(\d+m?s)\b`).FindStringSubmatch(haproxy)
		if m == nil {
			t.Fatalf("haproxy.cfg has no %s", setting)
		}
		return duration(t, m[1])
	}
	checks := regexp.MustCompile(`inter (\d+m?s) fastinter (\d+m?s) fall (\d+)`).FindStringSubmatch(haproxy)
	if len(checks) != 4 || checks[3] != "2" {
		t.Fatalf("how often the entry asks: %q", checks)
	}
	// The first "no" comes an interval after it could have, the second a short one later; each may take its time.
	noticed := duration(t, checks[1]) + duration(t, checks[2]) + 2*entry("timeout check")
	if drain <= noticed {
		t.Errorf("a proxy serves for %v after it was asked to stop, the entry may take %v to notice", drain, noticed)
	}
	// A guarded request: body_timeout (30s by default), then response_timeout.
	if timeout := entry("timeout server"); timeout < response+30*time.Second {
		t.Errorf("the entry waits %v for a request that may take %v", timeout, response+30*time.Second)
	}

	eachService(t, func(t *testing.T, _ *types.Project, s types.ServiceConfig) {
		if s.StopGracePeriod == nil {
			t.Fatal("Docker kills it 10 s after it was asked to stop")
		}
		stop := time.Duration(*s.StopGracePeriod)
		switch {
		case strings.HasPrefix(s.Name, "proxy-") && stop < drain+grace:
			t.Errorf("killed after %v, needs up to %v", stop, drain+grace)
		case s.Name == "entry" && (s.StopSignal != "SIGUSR1" || stop <= entry("hard-stop-after") || entry("hard-stop-after") <= response):
			t.Errorf("%s, killed after %v, hard stop after %v, a request takes up to %v", s.StopSignal, stop, entry("hard-stop-after"), response)
		case s.Name == "postgres" && s.StopSignal != "SIGINT":
			t.Error("on SIGTERM PostgreSQL waits for the proxies to leave")
		}
	})
}

func TestHAProxyReadsItsConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	// Names that nobody knows here would be warnings.
	text := regexp.MustCompile(`proxy-\d:8080`).ReplaceAllString(read(t, folder+"haproxy.cfg"), "127.0.0.1:8080")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command(tool(t, "haproxy"), "-c", "-dW", "-f", file)) // -dW: a warning is a failure
	eachProject(t, func(t *testing.T, p *types.Project) {
		entry := p.Services["entry"]
		if inside(p, entry, "/usr/local/etc/haproxy/haproxy.cfg") == "" || len(entry.Command) > 0 {
			t.Errorf("the image's own command reads its default file: %+v", entry.Volumes)
		}
	})
}

// laid lays out the files of a container below a folder, as they are mounted.
func laid(t *testing.T, s types.ServiceConfig) string {
	t.Helper()
	root := t.TempDir()
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		file := filepath.Join(root, v.Target)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(read(t, v.Source)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPrometheusReadsItsConfiguration(t *testing.T) {
	s := load(t, projects["redis observed"]).Services["prometheus"]
	root := laid(t, s)
	if !slices.Contains(s.Command, "--config.file=/etc/prometheus/prometheus.yml") {
		t.Errorf("command: %q", s.Command)
	}
	out := run(t, exec.Command(tool(t, "promtool"), "check", "config", root+"/etc/prometheus/prometheus.yml"))
	if !strings.Contains(out, "SUCCESS: 1 rule files found") {
		t.Error(out)
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName       string                       `json:"job_name"`
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, folder+"prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(config.ScrapeConfigs); got != "[{idemproxy [{[proxy-1:9090 proxy-2:9090]}]}]" {
		t.Errorf("it reads %s", got)
	}
}

// Grafana says nothing of fields that it doesn't know: these are all that its documents name.
func TestGrafanaIsProvisioned(t *testing.T) {
	p := load(t, projects["redis observed"])
	s := p.Services["grafana"]
	root := laid(t, s)
	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool           `json:"isDefault"`
			JSONData                     map[string]any `json:"jsonData"`
		} `json:"datasources"`
	}
	provisioned := func(file string, into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(read(t, root+"/etc/grafana/provisioning/"+file)), into); err != nil {
			t.Fatal(err)
		}
	}
	provisioned("datasources/idemproxy.yaml", &sources)
	if len(sources.Datasources) != 1 || sources.APIVersion != 1 {
		t.Fatalf("%+v", sources)
	}
	if d := sources.Datasources[0]; d.Type != "prometheus" || d.URL != "http://prometheus:9090" || !d.IsDefault {
		t.Errorf("%+v", d)
	}
	var dashboards struct {
		APIVersion int `json:"apiVersion"`
		Providers  []struct {
			Name, Type     string
			AllowUIUpdates bool `json:"allowUiUpdates"`
			Options        struct{ Path string }
		}
	}
	provisioned("dashboards/idemproxy.yaml", &dashboards)
	if len(dashboards.Providers) != 1 || dashboards.APIVersion != 1 || dashboards.Providers[0].Type != "file" {
		t.Fatalf("%+v", dashboards)
	}
	var dashboard struct{ UID, Title string }
	file := filepath.Join(root, dashboards.Providers[0].Options.Path, "idemproxy.json")
	if err := yaml.Unmarshal([]byte(read(t, file)), &dashboard); err != nil || dashboard.UID != "idemproxy" {
		t.Errorf("the dashboard that the file names: %+v, %v", dashboard, err)
	}
}
