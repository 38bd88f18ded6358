// Package release tests that .goreleaser.yaml builds what the Makefile builds and names files that
// are there. Whether goreleaser understands it, `make check-release` says.
package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../../.."

type file struct{ Src, Dst, Type string }

type config struct {
	Builds []struct{ Env, Flags, Ldflags []string }
	Nfpms  []struct {
		Contents []file
		Scripts  map[string]string
	}
}

func load(t *testing.T) (c config) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Builds) != 1 || len(c.Nfpms) != 1 {
		t.Fatalf("%d builds, %d kinds of packages; this test knows one each", len(c.Builds), len(c.Nfpms))
	}
	return c
}

func TestBuildIsTheMakefiles(t *testing.T) {
	b := load(t).Builds[0]
	flags := slices.DeleteFunc(slices.Clone(b.Flags), func(f string) bool { return f == "-buildvcs=false" })
	got := strings.Join(b.Env, " ") + " go build " + strings.Join(flags, " ") + " -ldflags '" + strings.Join(b.Ldflags, " ") + "'"
	out, err := exec.Command("make", "-s", "-n", "-C", root, "build", "VERSION=v{{ .Version }}").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := strings.Cut(string(out), " -o ")
	if got != want {
		t.Errorf("it builds by\n%s\nthe Makefile by\n%s", got, want)
	}
}

func TestPackages(t *testing.T) {
	nfpm := load(t).Nfpms[0]
	places := map[string]file{}
	for _, f := range nfpm.Contents {
		places[f.Dst] = f
		if strings.HasPrefix(f.Src, "dist/") {
			continue // `make docs` makes it first
		}
		if _, err := os.Stat(filepath.Join(root, f.Src)); err != nil {
			t.Error(err)
		}
	}
	for _, script := range nfpm.Scripts {
		if out, err := exec.Command("sh", "-n", filepath.Join(root, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	unit, err := os.ReadFile(root + "/deploy/systemd/idemproxy.service")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`IDEMPROXY_CONFIG=(\S+)`).FindSubmatch(unit)
	if len(named) != 2 || places[string(named[1])].Type != "config|noreplace" {
		t.Errorf("the unit's configuration %s is not in the packages, or an upgrade would replace it", named)
	}
	if places["/usr/lib/systemd/system/idemproxy.service"].Src == "" {
		t.Error("the unit is not in the packages")
	}
}
