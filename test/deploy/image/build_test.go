package image

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const (
	// workdir is the only folder in which the Dockerfile builds.
	workdir = "/src"
	// largest is what is promised: 25 MB, in bytes on the disk.
	largest = 25_000_000
)

// buildContext lists the files that .dockerignore lets through.
func buildContext(t testing.TB) (files []string) {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	wanted := func(dir string) bool { // whether an exception may lie below it
		return slices.ContainsFunc(patterns, func(p string) bool { return strings.HasPrefix(p, "!"+dir+"/") })
	}
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch skip, err := ignored.MatchesOrParentMatches(name); {
		case err != nil:
			return err
		case entry.IsDir() && skip && !wanted(name):
			return fs.SkipDir
		case !entry.IsDir() && !skip:
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A builder carries out the Dockerfile's lines in a folder that stands for /src.
type builder struct {
	t   testing.TB
	src string
	env []string
	// image becomes the image's content.
	image string
}

// build builds the image's content in a folder.
func build(t testing.TB, dir string) *builder {
	t.Helper()
	b := &builder{t: t, src: filepath.Join(dir, "src"), image: filepath.Join(dir, "image")}
	for _, folder := range []string{b.src, b.image} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stage, image := parse(t)
	b.env = append(os.Environ(), "PATH="+goroot(t, stage)+"/bin:"+os.Getenv("PATH"))
	for i, c := range stage.Commands {
		switch c := c.(type) {
		case *instructions.WorkdirCommand:
			if i != 0 || c.Path != workdir {
				t.Fatalf("%v: everything must be built in %s, from the first line on", c, workdir)
			}
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				b.env = append(b.env, e.String())
			}
		case *instructions.ArgCommand:
			b.argument(c)
		case *instructions.CopyCommand:
			b.copy(c, b.src, workdir)
		case *instructions.RunCommand:
			b.run(strings.Join(c.CmdLine, " "))
		default:
			t.Fatalf("these tests can't carry out %v", c)
		}
	}
	for _, c := range commands[*instructions.CopyCommand](image) {
		b.copy(c, b.image, "/")
	}
	return b
}

// goroot is where the Go is that the build's base image has.
func goroot(t testing.TB, stage instructions.Stage) string {
	t.Helper()
	_, tag, _ := strings.Cut(stage.BaseName, ":")
	version, _, _ := strings.Cut(tag, "-")
	cmd := exec.Command("go", "env", "GOROOT")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=go"+version)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go env GOROOT with go%s: %v", version, err)
	}
	return strings.TrimSpace(string(out))
}

// argument gives an ARG the value it has in these tests, in BuildKit, or by default.
func (b *builder) argument(c *instructions.ArgCommand) {
	for _, arg := range c.Args {
		value, given := buildArgs[arg.Key]
		switch arg.Key {
		case "TARGETOS":
			value, given = "linux", true
		case "TARGETARCH":
			value, given = runtime.GOARCH, true
		}
		if !given && arg.Value != nil {
			value, given = *arg.Value, true
		}
		if given {
			b.env = append(b.env, arg.Key+"="+value)
		}
	}
}

func (b *builder) run(line string) {
	b.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = b.src, b.env
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("RUN %s: %v\n%s", line, err, out)
	}
}

// copy carries out a COPY into a folder that stands for / or, in a build, for /src.
func (b *builder) copy(c *instructions.CopyCommand, to, stands string) {
	b.t.Helper()
	if c.Parents || len(c.ExcludePatterns) > 0 || len(c.SourceContents) > 0 {
		b.t.Fatalf("these tests can't carry out %v", c)
	}
	dest := c.DestPath
	if !path.IsAbs(dest) {
		dest = path.Join(stands, dest) + strings.Repeat("/", strings.Count(dest[len(dest)-1:], "/"))
	}
	dest = strings.TrimPrefix(dest, strings.TrimSuffix(stands, "/"))
	for _, source := range c.SourcePaths {
		for name, file := range b.sources(c.From, source) {
			target := path.Join(dest, name)
			if name == "." && strings.HasSuffix(dest, "/") { // a file into a folder
				target = path.Join(dest, path.Base(source))
			}
			b.place(c, file, filepath.Join(to, target))
		}
	}
}

// sources are the files that a COPY takes, by their names below the source, "." itself.
func (b *builder) sources(from, source string) map[string]string {
	b.t.Helper()
	found := map[string]string{}
	switch {
	case from == "":
		source = path.Clean(source)
		for _, name := range buildContext(b.t) {
			if below, ok := strings.CutPrefix(name, source+"/"); ok {
				found[below] = filepath.Join(root, name)
			} else if name == source {
				found["."] = filepath.Join(root, name)
			}
		}
	case strings.HasPrefix(source, workdir+"/"):
		b.below(filepath.Join(b.src, strings.TrimPrefix(source, workdir)), found)
	case source == "/etc/ssl/certs/ca-certificates.crt":
		found["."] = source // this machine's: Debian's as in the base image
	default:
		b.t.Fatalf("COPY --from=%s %s: these tests know only %s of the stage that builds", from, source, workdir)
	}
	if len(found) == 0 {
		b.t.Fatalf("COPY %s: there is nothing", source)
	}
	return found
}

// below adds a file, or all files and empty folders in a folder.
func (b *builder) below(source string, found map[string]string) {
	b.t.Helper()
	err := filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entries, err := os.ReadDir(name); err != nil || len(entries) > 0 {
				return err
			}
		}
		below, err := filepath.Rel(source, name)
		found[below] = name
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// place copies a file, or makes an empty folder, with the owner and mode of the COPY.
func (b *builder) place(c *instructions.CopyCommand, from, to string) {
	b.t.Helper()
	check := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	check(os.MkdirAll(filepath.Dir(to), 0o755))
	info, err := os.Stat(from)
	check(err)
	mode := info.Mode().Perm()
	if c.Chmod != "" {
		bits, err := strconv.ParseUint(c.Chmod, 8, 12)
		check(err)
		mode = fs.FileMode(bits)
	}
	if info.IsDir() {
		entries, err := os.ReadDir(from)
		check(err)
		if len(entries) > 0 {
			b.t.Fatalf("%s holds something", from)
		}
		check(os.MkdirAll(to, mode))
	} else {
		data, err := os.ReadFile(from)
		check(err)
		check(os.WriteFile(to, data, mode))
	}
	check(os.Chmod(to, mode))
	owner := 0
	if c.Chown != "" {
		uid, gid, _ := strings.Cut(c.Chown, ":")
		owner, err = strconv.Atoi(uid)
		check(err)
		if uid != gid {
			b.t.Fatalf("these tests can't carry out --chown=%s", c.Chown)
		}
	}
	if os.Getuid() == 0 {
		check(os.Chown(to, owner, owner))
	}
}

// shared is what content builds once for all tests.
var shared *builder

// content is the image's content; who calls it changes nothing in it.
func content(t testing.TB) *builder {
	t.Helper()
	if shared == nil {
		shared = build(t, filepath.Join(scratch, "shared"))
	}
	return shared
}

func TestContent(t *testing.T) {
	b := content(t)
	var size int64
	var files []string
	err := filepath.WalkDir(b.image, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if name = strings.TrimPrefix(name, b.image); entry.Type().IsRegular() {
			size += info.Size()
			files = append(files, name)
		} else if !entry.IsDir() {
			t.Errorf("%s is neither a file nor a folder", name)
		}
		owner := uint32(0)
		if name == "/var/lib/idemproxy" {
			owner = 65532
		}
		if have := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 && (have.Uid != owner || have.Gid != owner) {
			t.Errorf("%s belongs to %d:%d, want %d", name, have.Uid, have.Gid, owner)
		}
		if special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | 0o022); special != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/etc/group", "/etc/idemproxy/idemproxy.yaml", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/idemproxy"}
	if !slices.Equal(files, want) {
		t.Errorf("it holds %q, want %q", files, want)
	}
	if size >= largest {
		t.Errorf("%d bytes, want less than %d", size, largest)
	}
	t.Logf("%d bytes, %d less than the limit", size, largest-size)
	if info, err := os.Stat(b.image + "/var/lib/idemproxy"); err != nil || !info.IsDir() {
		t.Errorf("no place for the file store: %v", err)
	}
	binary, err := elf.Open(filepath.Join(b.image, "idemproxy"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if libraries, _ := binary.ImportedLibraries(); len(libraries) > 0 || slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("not static: %q", libraries)
	}
}

// TestReproducible builds it a second time, elsewhere, under another umask and another
// time zone, without what the first left in Go's cache of linked programs.
func TestReproducible(t *testing.T) {
	sum := func(b *builder) string {
		data, err := os.ReadFile(filepath.Join(b.image, "idemproxy"))
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(data)
		return hex.EncodeToString(digest[:])
	}
	first := sum(content(t))
	t.Setenv("TZ", "Pacific/Kiritimati")
	t.Setenv("HOSTNAME", "elsewhere")
	if second := sum(build(t, t.TempDir())); second != first {
		t.Errorf("two builds give %s and %s", first, second)
	}
	t.Log("sha256", first)
}
