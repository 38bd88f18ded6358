// Package image tests the Dockerfile: what BuildKit and hadolint would find wrong with it,
// the image's content, which is built by the Dockerfile's own lines without a container
// engine, and that content run as a container runtime would.
package image

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	spec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// root is the repository's.
const root = "../../.."

// buildArgs are given by the tests.
var buildArgs = map[string]string{"VERSION": "v1.2.3-test", "REVISION": "0123456789abcdef0123456789abcdef01234567"}

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parse gives the Dockerfile's stages: the one that builds, and the image.
func parse(t testing.TB) (build, image instructions.Stage) {
	t.Helper()
	file, err := parser.Parse(strings.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	stages, arguments, err := instructions.Parse(file.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 || len(arguments) != 0 {
		t.Fatalf("%d stages and %d arguments before them; these tests know a stage that builds and the image", len(stages), len(arguments))
	}
	return stages[0], stages[1]
}

// commands are those of one kind.
func commands[C instructions.Command](stage instructions.Stage) (found []C) {
	for _, c := range stage.Commands {
		if c, ok := c.(C); ok {
			found = append(found, c)
		}
	}
	return found
}

// only is the one command of its kind.
func only[C instructions.Command](t testing.TB, stage instructions.Stage) C {
	t.Helper()
	found := commands[C](stage)
	if len(found) != 1 {
		t.Fatalf("%d commands %T in stage %q, want one", len(found), *new(C), stage.Name)
	}
	return found[0]
}

// anyImage stands for the registry: whatever is asked for is there, and empty. Nothing of
// the image that we test comes from it.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config, err := json.Marshal(ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"}})
	return ref, digest.FromBytes(config), config, err
}

func options(dockerfile string) dockerfile2llb.ConvertOpt {
	platform := ocispec.Platform{OS: "linux", Architecture: "amd64"}
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", []byte(dockerfile))
	source.Definition = new(llb.Definition)
	return dockerfile2llb.ConvertOpt{
		Config:         dockerui.Config{BuildArgs: maps.Clone(buildArgs), BuildPlatforms: []ocispec.Platform{platform}},
		TargetPlatform: &platform,
		MetaResolver:   anyImage{},
		SourceMap:      source,
	}
}

// configuration is that of the image, as BuildKit makes it.
func configuration(t testing.TB) spec.DockerOCIImageConfig {
	t.Helper()
	text := read(t, "Dockerfile")
	result, err := dockerfile2llb.Dockerfile2LLB(t.Context(), []byte(text), options(text))
	if err != nil {
		t.Fatal(err)
	}
	return result.Image.Config
}

// lint has BuildKit check a Dockerfile by all its rules, as `docker build --check` does.
func lint(t *testing.T, text string) (rules []string) {
	t.Helper()
	found, err := dockerfile2llb.DockerfileLint(t.Context(), []byte(text), options(text))
	if err != nil {
		t.Fatal(err)
	}
	if found.Error != nil {
		t.Fatal(found.Error.Message)
	}
	for _, w := range found.Warnings {
		t.Logf("%s: %s (line %v)", w.RuleName, w.Detail, w.Location.GetRanges())
		rules = append(rules, w.RuleName)
	}
	return rules
}

func TestLint(t *testing.T) {
	text := read(t, "Dockerfile")
	if rules := lint(t, text); len(rules) > 0 {
		t.Errorf("it breaks %q", rules)
	}
	// That it does not pass because nothing is checked:
	bad := strings.NewReplacer(
		`ENTRYPOINT ["/idemproxy"]`, "ENTRYPOINT /idemproxy",
		"ENV IDEMPROXY_CONFIG=", "ENV STORE_PASSWORD=x IDEMPROXY_CONFIG=",
	).Replace(text)
	if rules := lint(t, bad); !slices.Contains(rules, "JSONArgsRecommended") || !slices.Contains(rules, "SecretsUsedInArgOrEnv") {
		t.Errorf("a bad one breaks only %q", rules)
	}
}

// TestStages asserts what hadolint asserts, and what our own image needs.
func TestStages(t *testing.T) {
	text := read(t, "Dockerfile")
	if regexp.MustCompile(`(?m)^#\s*syntax=`).MatchString(text) {
		t.Error("a syntax line: it makes Docker fetch a front end")
	}
	build, image := parse(t)
	if image.BaseName != "scratch" {
		t.Errorf("the image is from %s, want scratch", image.BaseName)
	}
	if build.Platform != "$BUILDPLATFORM" {
		t.Errorf("the build runs on %q, want $BUILDPLATFORM: else it is emulated", build.Platform)
	}
	name, tag, tagged := strings.Cut(build.BaseName, ":")
	if !tagged || name != "golang" || !regexp.MustCompile(`^\d+\.\d+\.\d+-`).MatchString(tag) {
		t.Errorf("built from %s, want golang and an exact version", build.BaseName)
	}
	for _, stage := range []instructions.Stage{build, image} {
		for _, c := range stage.Commands {
			switch c := c.(type) {
			case *instructions.AddCommand:
				t.Errorf("ADD fetches and unpacks; COPY says what it does: %v", c)
			case *instructions.MaintainerCommand, *instructions.OnbuildCommand, *instructions.ShellCommand, *instructions.VolumeCommand:
				t.Errorf("unexpected in stage %q: %v", stage.Name, c)
			case *instructions.RunCommand:
				if line := strings.Join(c.CmdLine, " "); regexp.MustCompile(`\b(sudo|curl|wget|apt|apt-get|chmod 777)\b`).MatchString(line) {
					t.Errorf("a build that is not only Go's: %s", line)
				}
			case *instructions.WorkdirCommand:
				if !filepath.IsAbs(c.Path) {
					t.Errorf("WORKDIR %s is relative", c.Path)
				}
			}
		}
	}
	if n := len(commands[*instructions.RunCommand](image)); n != 0 {
		t.Errorf("%d RUN commands in an image without a shell", n)
	}
}

func TestConfiguration(t *testing.T) {
	config := configuration(t)
	if config.User != "65532:65532" {
		t.Errorf("user %q, want a number, so that Kubernetes can see that it is not root", config.User)
	}
	if !slices.Equal(config.Entrypoint, []string{"/idemproxy"}) || !slices.Equal(config.Cmd, []string{"serve"}) {
		t.Errorf("entry point %q, command %q", config.Entrypoint, config.Cmd)
	}
	if health := config.Healthcheck; health == nil || !slices.Equal(health.Test, []string{"CMD", "/idemproxy", "healthcheck"}) {
		t.Errorf("health check %+v, want one without a shell", health)
	} else if health.Timeout <= 2*time.Second || health.Retries < 2 || health.Interval < health.Timeout {
		t.Errorf("health check %+v: its timeout must be longer than the command's own, and one failure is nothing", health)
	}
	if ports := slices.Sorted(maps.Keys(config.ExposedPorts)); !slices.Equal(ports, []string{"8080/tcp", "9090/tcp"}) {
		t.Errorf("ports %v", ports)
	}
	want := map[string]string{
		"title": "idemproxy", "licenses": "Apache-2.0", "version": buildArgs["VERSION"], "revision": buildArgs["REVISION"],
		"description": "A reverse proxy that makes an HTTP service safe to retry",
	}
	for key, value := range want {
		if got := config.Labels["org.opencontainers.image."+key]; got != value {
			t.Errorf("label %s is %q, want %q", key, got, value)
		}
	}
	if license := read(t, "LICENSE"); !strings.Contains(license, "Apache License") {
		t.Error("the label of the licence is not LICENSE's")
	}
	for _, name := range append(slices.Collect(maps.Keys(config.Labels)), config.Env...) {
		if regexp.MustCompile(`(?i)secret|password|token|credential`).MatchString(name) {
			t.Errorf("what is in an image is no secret: %s", name)
		}
	}
}

// TestBuildIsTheMakefiles compares toolchain and flags: one program, however it is built.
func TestBuildIsTheMakefiles(t *testing.T) {
	build, _ := parse(t)
	makefile := read(t, "Makefile")
	toolchain := regexp.MustCompile(`GOTOOLCHAIN \?= go(\S+)`).FindStringSubmatch(makefile)
	if len(toolchain) != 2 || !strings.HasPrefix(build.BaseName, "golang:"+toolchain[1]+"-") {
		t.Errorf("built from %s, by the Makefile with %q", build.BaseName, toolchain)
	}
	if env := only[*instructions.EnvCommand](t, build).Env; len(env) != 1 || env[0].String() != "GOTOOLCHAIN=local" {
		t.Errorf("ENV %v, want GOTOOLCHAIN=local: the image's Go is the one to use", env)
	}
	out, err := exec.Command("make", "-s", "-n", "-C", root, "build", "VERSION=$$VERSION").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := func(line string) string {
		_, line, _ = strings.Cut(line, "CGO_ENABLED=")
		for _, own := range []string{"GOOS=$TARGETOS ", "GOARCH=$TARGETARCH ", "-buildvcs=false ", `"`, `'`} {
			line = strings.ReplaceAll(line, own, "")
		}
		return regexp.MustCompile(` -o \S+`).ReplaceAllString(strings.TrimSpace(line), "")
	}
	if got, want := flags(goBuild(t, build)), flags(string(out)); got != want {
		t.Errorf("the Dockerfile builds by\n%s\nthe Makefile by\n%s", got, want)
	}
}

// goBuild is the line of the Dockerfile that builds.
func goBuild(t *testing.T, build instructions.Stage) string {
	t.Helper()
	for _, run := range commands[*instructions.RunCommand](build) {
		if line := strings.Join(run.CmdLine, " "); strings.Contains(line, "go build") {
			return line
		}
	}
	t.Fatal("no RUN … go build")
	return ""
}

// TestIgnored wants what could hold secrets, or changes without need, out of the build.
func TestIgnored(t *testing.T) {
	have := buildContext(t)
	for _, name := range []string{"go.mod", "go.sum", "cmd/idemproxy/main.go", "internal/config/schema.json", "deploy/image/etc/passwd"} {
		if !slices.Contains(have, name) {
			t.Errorf("%s is not in the build's context", name)
		}
	}
	for _, name := range have {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains([]string{"go.mod", "go.sum", "cmd", "internal", "deploy"}, top) || strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s is in the build's context", name)
		}
	}
	if !strings.Contains(read(t, "deploy/image/etc/passwd"), ":x:65532:65532:") {
		t.Error("the image's user has no name in /etc/passwd")
	}
}
