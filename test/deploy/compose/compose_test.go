package compose

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const folder = "../../../deploy/docker/"

// The projects that the documents name, by the files after each -f.
var projects = map[string][]string{
	"redis":             {"compose.yaml"},
	"postgres":          {"compose.postgres.yaml"},
	"redis observed":    {"compose.yaml", "compose.observability.yaml"},
	"postgres observed": {"compose.postgres.yaml", "compose.observability.yaml"},
}

// load reads a project as docker compose does. Nothing comes from the environment, so
// that a variable without a default would be seen.
func load(t *testing.T, files []string) *types.Project {
	t.Helper()
	var paths []string
	for _, f := range files {
		paths = append(paths, folder+f)
	}
	options, err := cli.NewProjectOptions(paths)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func eachProject(t *testing.T, test func(t *testing.T, p *types.Project)) {
	for name, files := range projects {
		t.Run(name, func(t *testing.T) { test(t, load(t, files)) })
	}
}

func eachService(t *testing.T, test func(t *testing.T, p *types.Project, s types.ServiceConfig)) {
	eachProject(t, func(t *testing.T, p *types.Project) {
		for name, s := range p.Services {
			t.Run(name, func(t *testing.T) { test(t, p, s) })
		}
	})
}

// Every file there is belongs to a project that is tested, and is named in the document.
func TestEveryFileIsKnown(t *testing.T) {
	found, err := filepath.Glob(folder + "compose*.yaml")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	known := map[string]bool{}
	for _, files := range projects {
		for _, f := range files {
			known[f] = true
		}
	}
	document := read(t, "../../../docs/deploying.md")
	for _, f := range found {
		if name := filepath.Base(f); !known[name] || !strings.Contains(document, name) {
			t.Errorf("%s is in no tested project, or not in docs/deploying.md", name)
		}
	}
}

func TestWhatTheProjectsHave(t *testing.T) {
	want := map[string][]string{
		"redis":             {"entry", "legacy", "proxy-1", "proxy-2", "redis"},
		"postgres":          {"entry", "legacy", "postgres", "proxy-1", "proxy-2"},
		"redis observed":    {"entry", "grafana", "legacy", "prometheus", "proxy-1", "proxy-2", "redis"},
		"postgres observed": {"entry", "grafana", "legacy", "postgres", "prometheus", "proxy-1", "proxy-2"},
	}
	for name, files := range projects {
		p := load(t, files)
		if got := slices.Sorted(maps.Keys(p.Services)); !slices.Equal(got, want[name]) {
			t.Errorf("%s has %q, want %q", name, got, want[name])
		}
		if p.Name == "docker" {
			t.Errorf("%s has no name of its own: its volumes would be those of any folder called docker", name)
		}
	}
}

func TestNobodyHasMoreRightsThanNeeded(t *testing.T) {
	eachService(t, func(t *testing.T, _ *types.Project, s types.ServiceConfig) {
		if !s.ReadOnly || s.Privileged {
			t.Error("its root can be written, or it is privileged")
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 {
			t.Errorf("capabilities: drops %q, adds %q", s.CapDrop, s.CapAdd)
		}
		if !slices.Equal(s.SecurityOpt, []string{"no-new-privileges=true"}) {
			t.Errorf("security_opt: %q", s.SecurityOpt)
		}
		if s.Restart != "unless-stopped" {
			t.Errorf("restart: %q", s.Restart)
		}
		if s.Pid != "" || s.Ipc != "" || s.NetworkMode != "" || s.UserNSMode != "" || len(s.Devices) > 0 || s.UseAPISocket {
			t.Error("it has a part of its host")
		}
		// Our own image has its user in itself, which the tests of the Dockerfile check.
		if own := s.Image == "idemproxy:local"; own != (s.User == "") || s.User == "root" || s.User == "0" {
			t.Errorf("%s runs as %q", s.Image, s.User)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
			t.Error("its log grows for ever")
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind && !v.ReadOnly {
				t.Errorf("it could change %s", v.Source)
			}
		}
	})
}

// Whoever can be asked is asked, by his own means, and nobody starts before those he needs.
func TestHealthAndOrder(t *testing.T) {
	needs := map[string][]string{
		"entry": {"proxy-1", "proxy-2"}, "prometheus": {"proxy-1", "proxy-2"}, "grafana": {"prometheus"},
		"proxy-1": {"legacy", "STORE"}, "proxy-2": {"legacy", "STORE"},
	}
	eachService(t, func(t *testing.T, p *types.Project, s types.ServiceConfig) {
		h := s.HealthCheck
		if h == nil || h.Disable || len(h.Test) < 2 || h.Test[0] != "CMD" || h.Interval == nil || h.Timeout == nil || h.Retries == nil || h.StartPeriod == nil {
			t.Fatalf("health check without a shell, with all its times: %+v", h)
		}
		if s.Image == "idemproxy:local" && (h.Test[1] != "/idemproxy" || h.Test[2] != "healthcheck") {
			t.Errorf("our image has only one program: %q", h.Test)
		}
		if strings.HasPrefix(s.Name, "proxy-") && !slices.Contains(h.Test, "--ready") {
			t.Errorf("a proxy is up when it is ready: %q", h.Test)
		}
		var got []string
		for name, d := range s.DependsOn {
			got = append(got, name)
			if d.Condition != types.ServiceConditionHealthy || !d.Required {
				t.Errorf("it needs %s to be %s", name, d.Condition)
			}
		}
		want := slices.Clone(needs[s.Name])
		for i, name := range want {
			if name == "STORE" {
				want[i] = store(p)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("it waits for %q, want %q", got, want)
		}
	})
}

func store(p *types.Project) string {
	if _, ok := p.Services["postgres"]; ok {
		return "postgres"
	}
	return "redis"
}

// Callers get to the entry, and from there to nobody but the proxies.
func TestWhoReachesWhom(t *testing.T) {
	ports := map[string]uint32{"entry": 8080, "prometheus": 9090, "grafana": 3000}
	networks := map[string][]string{
		"entry": {"edge"}, "prometheus": {"edge"}, "grafana": {"edge"},
		"proxy-1": {"edge", "service", "store"}, "proxy-2": {"edge", "service", "store"},
		"legacy": {"service"}, "redis": {"store"}, "postgres": {"store"},
	}
	eachService(t, func(t *testing.T, p *types.Project, s types.ServiceConfig) {
		if port, ok := ports[s.Name]; !ok && len(s.Ports) > 0 || ok && (len(s.Ports) != 1 || s.Ports[0].HostIP != "127.0.0.1" || s.Ports[0].Target != port) {
			t.Errorf("ports: %+v", s.Ports)
		}
		if got := slices.Sorted(maps.Keys(s.Networks)); !slices.Equal(got, networks[s.Name]) {
			t.Errorf("networks %q, want %q", got, networks[s.Name])
		}
		for name := range s.Networks {
			if p.Networks[name].Internal != (name != "edge") {
				t.Errorf("network %s: internal is %v", name, p.Networks[name].Internal)
			}
		}
	})
}

// What a container writes is in a volume that keeps it, or gone with it on purpose.
func TestWhatIsKept(t *testing.T) {
	kept := map[string]string{"redis": "/data", "postgres": "/var/lib/postgresql/data", "prometheus": "/prometheus", "grafana": "/var/lib/grafana"}
	eachService(t, func(t *testing.T, p *types.Project, s types.ServiceConfig) {
		var targets []string
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeVolume {
				targets = append(targets, v.Target)
				if v.Source == "" || p.Volumes[v.Source].Name == "" {
					t.Errorf("the volume at %s has no name", v.Target)
				}
			}
		}
		if got := strings.Join(targets, " "); got != kept[s.Name] {
			t.Errorf("keeps %q, want %q", got, kept[s.Name])
		}
	})
}

// A bind mount of a file that isn't there makes Docker make a folder of its name.
func TestWhatIsMountedIsThere(t *testing.T) {
	eachService(t, func(t *testing.T, p *types.Project, s types.ServiceConfig) {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				readable(t, v.Source)
			}
		}
		for _, secret := range s.Secrets {
			readable(t, p.Secrets[secret.Source].File)
		}
		if s.Build != nil {
			if info, err := os.Stat(filepath.Join(s.Build.Context, "go.mod")); err != nil || info.IsDir() || s.Build.Dockerfile != "Dockerfile" {
				t.Errorf("it is built from %s: %v", s.Build.Context, err)
			}
		}
	})
}

// readable fails unless this is a file that the users within the containers can read.
func readable(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		t.Errorf("no file, or an empty one: %s: %v", path, err)
	} else if info.Mode().Perm()&0o444 != 0o444 {
		t.Errorf("%s is not readable for all: %v", path, info.Mode())
	}
}

// An image without a version is another one tomorrow.
func TestImagesHaveVersions(t *testing.T) {
	version := regexp.MustCompile(`^[a-z/]+:(v?\d[\w.-]*|local)$`)
	eachService(t, func(t *testing.T, _ *types.Project, s types.ServiceConfig) {
		if !version.MatchString(s.Image) || (s.Build != nil) != (s.Image == "idemproxy:local") {
			t.Errorf("image %q, built here: %v", s.Image, s.Build != nil)
		}
	})
}

func TestTheServersKeepWhatTheyAcknowledge(t *testing.T) {
	redis := strings.Join(load(t, projects["redis"]).Services["redis"].Command, " ")
	for _, want := range []string{"--maxmemory-policy noeviction", "--appendonly yes", "--appendfsync always", "--dir /data"} {
		if !strings.Contains(redis, want) {
			t.Errorf("no %q in: %s", want, redis)
		}
	}
	postgres := load(t, projects["postgres"]).Services["postgres"]
	if text := strings.Join(postgres.Command, " "); strings.Contains(text, "fsync") || strings.Contains(text, "synchronous_commit") {
		t.Errorf("PostgreSQL's defaults are right: %s", text)
	}
	var given []string
	for name, value := range postgres.Environment {
		if strings.Contains(name, "PASSWORD") && value != nil {
			given = append(given, name+"="+*value)
		}
	}
	if !slices.Equal(given, []string{"POSTGRES_PASSWORD_FILE=/run/secrets/postgres-password"}) {
		t.Errorf("the password comes from %q", given)
	}
	password := strings.TrimSpace(read(t, folder+"secrets/postgres-password"))
	if url := read(t, folder+"secrets/postgres-url"); !strings.Contains(url, ":"+password+"@postgres:5432/idemproxy") {
		t.Error("postgres-url and postgres-password are of two minds")
	}
}

// Both proxies are the same, but for their names.
func TestTheProxiesAreAlike(t *testing.T) {
	eachProject(t, func(t *testing.T, p *types.Project) {
		one, two := p.Services["proxy-1"], p.Services["proxy-2"]
		if one.Hostname != "proxy-1" || two.Hostname != "proxy-2" {
			t.Errorf("logs call them %q and %q", one.Hostname, two.Hostname)
		}
		one.Name, two.Name, one.Hostname, two.Hostname = "", "", "", ""
		if !reflect.DeepEqual(one, two) {
			t.Errorf("they differ:\n%+v\n%+v", one, two)
		}
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
