//go:build unix

package documents

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What should take a moment, and what compiles, on a machine that may be busy.
const (
	patience = time.Minute
	building = 10 * time.Minute
)

// A session is a reader who does what a document says, from its beginning to its end, in a
// directory that has bin/idemproxy and configs.
type session struct {
	t        *testing.T
	dir      string
	ports    map[string]int    // a port in the document → the one that is used
	replace  map[string]string // more that is written otherwise than in the document
	payments map[string]string // a payment in the document → the real one
	output   string            // what the last commands printed
	server   *service          // has port 8080
	serve    string            // its command, if it has a configuration
	others   []*service
}

func newSession(t *testing.T) *session {
	s := &session{t: t, dir: t.TempDir(), ports: map[string]int{}, payments: map[string]string{}}
	s.replace = map[string]string{"/run/secrets/": s.dir + "/secrets/", "/var/lib/idemproxy/": s.dir + "/"}
	for name, to := range map[string]string{"bin": bin, "configs": filepath.Join(root, "configs")} {
		if err := os.Symlink(to, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.dir, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	// On a terminal, as a reader has one, curl shows no progress.
	if err := os.WriteFile(filepath.Join(s.dir, ".curlrc"), []byte("no-progress-meter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range append(s.others, s.server) {
			o.stop()
		}
	})
	return s
}

var address = regexp.MustCompile(`((?:127\.0\.0\.1|localhost|["' ]):)(\d{4,5})\b`)

// here is a text of the document with the ports and paths of this session.
func (s *session) here(text string) string {
	for from, to := range s.replace {
		text = strings.ReplaceAll(text, from, to)
	}
	return address.ReplaceAllStringFunc(text, func(found string) string {
		m := address.FindStringSubmatch(found)
		return m[1] + strconv.Itoa(s.port(m[2]))
	})
}

// port is the one that stands for a port of the document. Services are started when they
// are named: Redis on 6379, an application on 8000, a gRPC service on 50051.
func (s *session) port(number string) int {
	if s.ports[number] == 0 {
		s.ports[number] = freePort(s.t)
		switch number {
		case "6379":
			s.startRedis(s.ports[number])
		case "8000":
			serveNumbers(s.t, s.ports[number])
		case "50051":
			serveTill(s.t, s.ports[number])
		}
	}
	return s.ports[number]
}

var ports struct {
	sync.Mutex
	given map[int]bool
}

// freePort is one that no session has, below those that the kernel gives to connections.
func freePort(t *testing.T) int {
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = map[int]bool{}
	}
	for range 10_000 {
		port := 30_000 + rand.IntN(2_700)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l.Close()
		if ports.given[port] {
			continue
		}
		ports.given[port] = true
		return port
	}
	t.Fatal("no free port")
	return 0
}

func (s *session) startRedis(port int) {
	need(s.t, "redis-server")
	s.others = append(s.others, s.start("redis-server --save '' --appendonly no --bind 127.0.0.1 --maxmemory-policy noeviction --port "+strconv.Itoa(port), port))
}

// need skips the test if a command is missing, or, in CI, fails it.
func need(t *testing.T, command string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// command is a command line of the document, as bash reads it.
func (s *session) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.dir+"/bin:"+os.Getenv("PATH"), "NO_COLOR=1", "CURL_HOME="+s.dir)
	// What a configuration doesn't say would be the ports that documents name.
	cmd.Env = append(cmd.Env, "IDEMPROXY_SERVER_LISTEN=127.0.0.1:"+strconv.Itoa(s.port("8080")),
		"IDEMPROXY_ADMIN_LISTEN=127.0.0.1:"+strconv.Itoa(s.port("9090")),
		"IDEMPROXY_STORE_TIMEOUT=5s") // the machine may be busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

var (
	serving  = regexp.MustCompile(`^(make run$|(?:bin/)?idemproxy (?:serve|demo)\b)`)
	ofTheAPI = regexp.MustCompile(`--api 127\.0\.0\.1:(\d+)`)
	listens  = regexp.MustCompile(`--listen 127\.0\.0\.1:(\d+)`)
)

// run does a block of commands. Those that serve go on in the background; s.output is what
// the others print, or, if there are none, what the last one that serves has printed so far.
func (s *session) run(b block) {
	var now, rest strings.Builder
	var started *service
	for line := range strings.Lines(s.here(b.text)) {
		trimmed, _, _ := strings.Cut(line, " #")
		trimmed = strings.TrimSpace(trimmed)
		if !serving.MatchString(trimmed) {
			rest.WriteString(line)
			continue
		}
		s.execute(b, rest.String(), &now)
		rest.Reset()
		started = s.background(trimmed)
	}
	s.execute(b, rest.String(), &now)
	if s.output = now.String(); s.output == "" && started != nil {
		s.output = started.out.String()
	}
}

func (s *session) execute(b block, script string, out *strings.Builder) {
	if strings.TrimSpace(script) == "" {
		return
	}
	limit := patience
	if regexp.MustCompile(`(?m)^(make|go) `).MatchString(script) { // of the repository
		script, limit = "cd '"+root+"'\n"+script, building
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	cmd := s.command(ctx, script)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	out.WriteString(both.String())
	if err != nil {
		s.t.Errorf("%s: %v\n%s%s%s", b.place, err, script, both.String(), s.log())
	}
}

// log is what the proxy has said, for the one who looks for a fault.
func (s *session) log() string {
	if s.server == nil {
		return ""
	}
	said := s.server.out.String()
	return "\nthe proxy, at the end:\n" + said[max(0, len(said)-1000):]
}

// background starts a command that serves. One on the proxy's port takes the place of the
// one before.
func (s *session) background(line string) *service {
	if m := ofTheAPI.FindStringSubmatch(line); m != nil {
		port, _ := strconv.Atoi(m[1])
		o := s.start(line, port)
		s.others = append(s.others, o)
		return o
	}
	if line == "make run" {
		s.server = s.start("cd '"+root+"'; "+line, 0)
		s.ports["8080"] = s.server.port
		return s.server
	}
	port := s.port("8080")
	if m := listens.FindStringSubmatch(line); m != nil {
		if other, _ := strconv.Atoi(m[1]); other != port { // a second replica
			o := s.start(line, other)
			s.others = append(s.others, o)
			return o
		}
	}
	s.server.stop()
	if s.server != nil && strings.Contains(s.server.line, "make run") {
		delete(s.ports, "8080") // it chose the port itself
		port = s.port("8080")
	}
	s.server = s.start(line, port)
	if s.serve = ""; strings.Contains(line, "idemproxy.yaml") {
		s.serve = line
	}
	return s.server
}

// configure makes a block the configuration idemproxy.yaml. A proxy that runs with it is
// started again.
func (s *session) configure(b block) {
	file := filepath.Join(s.dir, "idemproxy.yaml")
	if err := os.WriteFile(file, []byte(s.here(b.text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.execute(b, "idemproxy validate idemproxy.yaml", new(strings.Builder))
	if s.serve != "" {
		s.background(s.serve)
	}
}

// A service is a command that runs until it is stopped.
type service struct {
	line string
	port int
	cmd  *exec.Cmd
	out  *lines
	done chan error
}

// start waits until the port is listened on; port 0 is one that `idemproxy demo` tells.
func (s *session) start(line string, port int) *service {
	s.t.Helper()
	// Not by s.t.Context: that ends before the cleanup, which stops it in order.
	v := &service{line: line, port: port, cmd: s.command(context.Background(), "exec "+line), out: &lines{}, done: make(chan error, 1)}
	limit := patience
	if port == 0 {
		v.cmd, limit = s.command(context.Background(), line), building
	}
	v.cmd.Stdout, v.cmd.Stderr = v.out, v.out
	if err := v.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { v.done <- v.cmd.Wait() }()
	for end := time.Now().Add(limit); time.Now().Before(end) && len(v.done) == 0; time.Sleep(20 * time.Millisecond) {
		if m := told.FindStringSubmatch(v.out.String()); port == 0 && m != nil {
			v.port, _ = strconv.Atoi(m[1])
			return v
		}
		if port == 0 {
			continue
		}
		if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			c.Close()
			return v
		}
	}
	v.stop()
	s.t.Fatalf("%s does not listen on port %d:\n%s", line, port, v.out)
	return nil
}

var told = regexp.MustCompile(`(?s)the proxy +http://127\.0\.0\.1:(\d+).*Ctrl-C ends it`)

func (v *service) stop() {
	if v == nil || v.cmd == nil {
		return
	}
	_ = syscall.Kill(-v.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-v.done:
	case <-time.After(5 * time.Second): // a request may still run
		_ = syscall.Kill(-v.cmd.Process.Pid, syscall.SIGKILL)
		<-v.done
	}
	v.cmd = nil
}

// lines can be read while they are written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
