//go:build unix

package documents

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	root string // the repository
	bin  string // a directory with the program
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run makes the program as people do, and takes a copy: README.md makes it again.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "idemproxy-documents-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if root, err = filepath.Abs("../.."); err == nil {
		build := exec.Command("bash", "-c", `make build && cp bin/idemproxy "$0"`, bin)
		build.Dir = root
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("make build: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// documents are those for people.
func documents(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"}
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) < 8 {
		t.Fatal(found, err)
	}
	for _, f := range found {
		names = append(names, "docs/"+filepath.Base(f))
	}
	return names
}

// untested are all the blocks that are not tried out: a new one must be argued for here.
var untested = []string{
	"ARCHITECTURE.md: text untested: a drawing",
	"ARCHITECTURE.md: text untested: a drawing",
	"CONTRIBUTING.md: sh untested: takes many minutes, and CI runs it",
	"CONTRIBUTING.md: go untested: a template",
	"README.md: sh untested: this test is part of it",
	"docs/deploy-verified.md: text untested: what the target printed",
	"docs/deploy-verified.md: text untested: what the target printed",
	"docs/deploying.md: sh untested: it installs; test/deploy/systemd checks the unit",
}

// before are commands that make what a document takes for granted. What they write into the
// file key_hash is meant wherever the document shows the hash of a key.
var before = map[string]string{
	"docs/cookbook.md": `
openssl rand -hex 32 >/run/secrets/idem-k1
openssl rand -hex 32 >/run/secrets/idem-k2
`,
	// A payment that takes long, and what tells its state.
	"docs/control-api.md": `
head -c 32 /dev/urandom | base64 >/run/secrets/idem-control
cat >idemproxy.yaml <<END
upstream: {url: "http://127.0.0.1:3000"}
control: {listen: "127.0.0.1:9091", token_file: /run/secrets/idem-control}
routes: [{name: payments, path: /payments}]
END
idemproxy demo --api 127.0.0.1:3000
idemproxy serve -c idemproxy.yaml
curl -s 'http://127.0.0.1:8080/payments?slow=30s' -H 'Idempotency-Key: order-17' -d '{"amount": 1}' >slow 2>&1 &
until idemproxy keys list -c idemproxy.yaml --control http://127.0.0.1:9091 --token-file /run/secrets/idem-control --json | grep -oE '"key_hash": ?"[^"]+"' | cut -d '"' -f 4 | grep . >key_hash; do sleep 0.1; done
`,
	// Two payments with an unknown outcome, one with the hash and one with the key that is shown.
	"docs/operations.md": `
head -c 32 /dev/urandom | base64 >/run/secrets/idem-k1
head -c 32 /dev/urandom | base64 >/run/secrets/idem-k2
cat >idemproxy.yaml <<END
upstream: {url: "http://127.0.0.1:3000", response_timeout: 100ms}
store: {type: redis, redis: {url: "redis://127.0.0.1:6379/0"}}
routes: [{name: payments, path: "/{rest...}", identity_header: X-Account}]
END
echo '{"amount": 1}' >payment.json
idemproxy demo --api 127.0.0.1:3000
idemproxy serve -c idemproxy.yaml
curl -s 'http://127.0.0.1:8080/payments?slow=1s' -H 'X-Account: acme' -H 'Idempotency-Key: order-16' -d '{"amount": 1}' | grep upstream_timeout
idemproxy keys list -c idemproxy.yaml --state unknown --json | grep -oE '"key_hash": ?"[^"]+"' | cut -d '"' -f 4 | grep . >key_hash
curl -s 'http://127.0.0.1:8080/payments?slow=1s' -H 'X-Account: acme' -H 'Idempotency-Key: order-17' -d '{"amount": 1}' | grep upstream_timeout
`,
}

// TestDocuments reads every document as its reader does: the commands are run, one after the
// other, the configurations used, the answers compared.
func TestDocuments(t *testing.T) {
	need(t, "curl")
	var skipped []string
	names := documents(t)
	for _, name := range names {
		for _, b := range blocks(t, name) {
			if strings.HasPrefix(b.mark, "untested: ") {
				skipped = append(skipped, name+": "+b.info)
				if err := named(b); err != nil {
					t.Errorf("%s: %v", b.place, err)
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follow(t, name)
		})
	}
	want := slices.Clone(untested)
	slices.Sort(want)
	slices.Sort(skipped)
	if !slices.Equal(skipped, want) {
		t.Errorf("blocks that are not tried out:\n%s\nwant\n%s", strings.Join(skipped, "\n"), strings.Join(want, "\n"))
	}
}

// follow does what a document says.
func follow(t *testing.T, name string) {
	s := newSession(t)
	if script := before[name]; script != "" {
		s.run(block{place: "before " + name, text: script})
		if hash, err := os.ReadFile(filepath.Join(s.dir, "key_hash")); err == nil {
			s.replace["47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"] = strings.TrimSpace(string(hash))
		}
	}
	for _, b := range blocks(t, name) {
		switch {
		case strings.HasPrefix(b.mark, "untested: "):
		case strings.HasPrefix(b.mark, "elsewhere: make "):
			if err := elsewhere(b); err != nil {
				t.Errorf("%s: %v", b.place, err)
			}
		case b.info == "sh":
			s.run(b)
		case b.info == "yaml":
			s.configure(b)
		case b.info == "yaml fragment":
			s.fragment(b)
		case b.info == "text" || b.info == "json":
			if !answers(b.text, s.output) || !s.samePayments(b.text, s.output) {
				t.Errorf("%s: the answer is\n%s\nshown is\n%s%s", b.place, s.output, b.text, s.log())
			}
		case programs[b.info].with != "":
			s.program(b)
		case b.info == "redis":
			s.redis(b)
		default:
			t.Errorf("%s: what is a block marked %q? CONTRIBUTING.md says which there are", b.place, b.info)
		}
	}
}

// fragment checks a part of a configuration.
func (s *session) fragment(b block) {
	whole := b.text
	for _, section := range []string{"upstream: {url: \"http://127.0.0.1:3000\"}", "routes: [{name: orders, path: /orders}]"} {
		key, _, _ := strings.Cut(section, " ")
		if !regexp.MustCompile(`(?m)^` + key).MatchString(whole) {
			whole += section + "\n"
		}
	}
	file := filepath.Join(s.t.TempDir(), "fragment.yaml")
	if err := os.WriteFile(file, []byte(s.here(whole)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.execute(b, "idemproxy validate "+file, new(strings.Builder))
}

// programs are languages of whole programs, and what runs them.
var programs = map[string]struct{ file, with string }{
	"go":         {"client.go", "go run"},
	"python":     {"client.py", "python3"},
	"javascript": {"client.mjs", "node"},
}

// program runs one; like commands it prints what a following block may show.
func (s *session) program(b block) {
	p := programs[b.info]
	tool, _, _ := strings.Cut(p.with, " ")
	need(s.t, tool)
	if err := os.WriteFile(filepath.Join(s.dir, p.file), []byte(s.here(b.text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	script := p.with + " '" + filepath.Join(s.dir, p.file) + "'" // go: with the modules of the repository
	s.execute(b, script, &out)
	s.output = out.String()
}

// redis sends commands, each a line, to a Redis.
func (s *session) redis(b block) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.port("6379")))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for line := range strings.Lines(b.text) {
		answer := make([]byte, 200)
		if _, err := fmt.Fprintf(conn, "%s\r\n", strings.TrimSpace(line)); err != nil {
			s.t.Fatal(err)
		}
		n, err := conn.Read(answer)
		if err != nil || !strings.HasPrefix(string(answer[:n]), "+OK") {
			s.t.Errorf("%s: %s: %s, %v", b.place, line, answer[:n], err)
		}
	}
}

// elsewhere checks that a block is one for tools that this test hasn't got, and that what
// tries it out exists.
func elsewhere(b block) error {
	if err := isTarget(strings.TrimPrefix(b.mark, "elsewhere: make ")); err != nil {
		return err
	}
	switch b.lang {
	case "yaml":
		if regexp.MustCompile(`(?m)^(upstream|routes|defaults|store):`).MatchString(b.text) {
			return errors.New("this configuration could be tried out here")
		}
	case "sh":
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			words := strings.Fields(line)
			if len(words) > 0 && words[0] != "#" && !slices.Contains(tools, words[0]) && !strings.HasPrefix(line, "make image ") {
				return fmt.Errorf("%s could be tried out here", words[0])
			}
		}
	default:
		return errors.New("only commands and YAML are tried out elsewhere")
	}
	return nil
}

// tools are those that need more than this test has got.
var tools = []string{"docker", "helm", "kubectl", "systemctl"}

var (
	targets = regexp.MustCompile(`(?m)^make ([a-z0-9-]+)`)
	files   = regexp.MustCompile(`(?m)(?:^| )((?:\./|scripts/|\.ci/)[\w./-]+)`)
)

// named checks that what an untested block names exists.
func named(b block) error {
	for _, m := range targets.FindAllStringSubmatch(b.text, -1) {
		if err := isTarget(m[1]); err != nil {
			return err
		}
	}
	for _, m := range files.FindAllStringSubmatch(b.text, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			return err
		}
	}
	return nil
}

func isTarget(target string) error {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
		return fmt.Errorf("the Makefile has no target %s", target)
	}
	return nil
}

// TestMarks: a block doesn't escape by its mark.
func TestMarks(t *testing.T) {
	for _, test := range []struct {
		mark, text string
		fine       bool
	}{
		{"sh elsewhere: make test", "docker run x \\\n  --rm\nkubectl get pods\n", true},
		{"sh elsewhere: make nothing", "docker run x\n", false},
		{"sh elsewhere: make test", "docker run x\ncurl -s localhost\n", false},
		{"yaml elsewhere: make test", "services:\n  redis: {}\n", true},
		{"yaml elsewhere: make test", "upstream:\n  url: http://127.0.0.1:3000\n", false},
		{"text elsewhere: make test", "fine\n", false},
	} {
		b := block{info: test.mark, text: test.text}
		b.lang, b.mark, _ = strings.Cut(b.info, " ")
		if err := elsewhere(b); (err == nil) != test.fine {
			t.Errorf("%s, %q: %v", test.mark, test.text, err)
		}
	}
	if err := named(block{text: "make nothing\n"}); err == nil {
		t.Error("a target that isn't there is let pass")
	}
	if err := named(block{text: "bash scripts/nothing.sh\n"}); err == nil {
		t.Error("a script that isn't there is let pass")
	}
}
