package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A setup is the configuration of a proxy. The sections hold what a test adds to the
// settings that every test has, in YAML's flow style: "drain_delay: 1s, idle_timeout: 1s".
type setup struct {
	store    storage
	upstream string // its URL
	routes   string // a list in YAML

	server, admin, control, upstreams, limits, log, tracing string
	defaults                                                string

	unready bool // don't wait for it to be ready
}

// A proxy is a running process of the program.
type proxy struct {
	t           *testing.T
	file        string
	addr, admin string
	cmd         *exec.Cmd
	log         *output
	exited      chan struct{}
	expected    bool // that it has ended
	environment []string

	mu      sync.Mutex
	secrets []string // what was sent and may not be logged
}

// start starts a proxy, and waits until it is ready. When the test ends it must stop
// cleanly.
func start(t *testing.T, s setup) *proxy {
	t.Helper()
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort()), secrets: []string{stripeKey}}
	p.file = filepath.Join(t.TempDir(), "idemproxy.yaml")
	yaml := s.yaml(p.addr, p.admin)
	p.secret(passwords(yaml)...)
	write(t, p.file, yaml)
	p.run("serve", "--config", p.file)
	t.Cleanup(p.finish)
	if s.unready {
		eventually(t, "alive", func() bool { return p.probe("/healthz") == http.StatusOK })
	} else {
		p.waitReady()
	}
	return p
}

func (s setup) yaml(addr, admin string) string {
	more := func(section string) string {
		if section == "" {
			return ""
		}
		return ", " + section
	}
	if !strings.Contains(s.server, "shutdown_grace") {
		s.server = strings.TrimPrefix(s.server+", shutdown_grace: 5s", ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "server: {listen: %q%s}\n", addr, more(s.server))
	fmt.Fprintf(&b, "admin: {listen: %q%s}\n", admin, more(s.admin))
	fmt.Fprintf(&b, "upstream: {url: %q%s}\n", s.upstream, more(s.upstreams))
	fmt.Fprintf(&b, "store: {%s}\n", s.store.yaml)
	if s.control != "" {
		fmt.Fprintf(&b, "control: {%s}\n", s.control)
	}
	if s.limits != "" {
		fmt.Fprintf(&b, "limits: {%s}\n", s.limits)
	}
	if s.log == "" {
		s.log = "level: debug" // so that checkLog sees everything there is
	}
	fmt.Fprintf(&b, "log: {%s}\n", s.log)
	if s.tracing != "" {
		fmt.Fprintf(&b, "tracing: {%s}\n", s.tracing)
	}
	if s.defaults != "" {
		fmt.Fprintf(&b, "defaults: {%s}\n", s.defaults)
	}
	fmt.Fprintf(&b, "routes:\n%s\n", s.routes)
	return b.String()
}

// passwords are those in a configuration, of their own or in URLs.
func passwords(yaml string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`://[^/@\s"]*:([^/@\s"]+)@|password: *"?([^",}\s]+)`).FindAllStringSubmatch(yaml, -1) {
		if password := m[1] + m[2]; len(password) >= 8 {
			found = append(found, password)
		}
	}
	return found
}

// write writes a file. What stands for the store's own file becomes one beside it.
func write(t *testing.T, file, content string) {
	t.Helper()
	content = strings.ReplaceAll(content, ownFile, filepath.Join(filepath.Dir(file), "store", "idemproxy.db"))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command is the program with these arguments, and none of our own settings around it.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(suite.binary, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "IDEMPROXY_") })
	cmd.SysProcAttr = child()
	return cmd
}

// run starts the process.
func (p *proxy) run(args ...string) {
	p.t.Helper()
	p.cmd, p.log, p.exited, p.expected = command(args...), &output{}, make(chan struct{}), false
	p.cmd.Env = append(p.cmd.Env, p.environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(p.cmd, p.exited)
}

// restart ends the process and starts it again with the same configuration.
func (p *proxy) restart() {
	p.t.Helper()
	p.stop()
	p.again()
}

// again starts a process that has ended, with the same configuration.
func (p *proxy) again() {
	p.t.Helper()
	p.run("serve", "--config", p.file)
	p.waitReady()
}

func (p *proxy) waitReady() {
	p.t.Helper()
	eventually(p.t, "ready", func() bool {
		select {
		case <-p.exited:
			p.expected = true
			p.t.Fatalf("the proxy ended: %v\n%s", p.cmd.ProcessState, p.log)
		default:
		}
		return p.probe("/readyz") == http.StatusOK
	})
}

// probe is the status of an admin page; 0 when nobody answers.
func (p *proxy) probe(path string) int {
	res, err := exchange(p.admin, request{method: "GET", target: path})
	if err != nil {
		return 0
	}
	return res.status
}

// stop asks the process to end, and checks that it does so cleanly.
func (p *proxy) stop() {
	p.t.Helper()
	p.terminate()
	p.ended()
}

func (p *proxy) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// ended waits for the end of a process that was asked to end.
func (p *proxy) ended() {
	p.t.Helper()
	receive(p.t, "end of the proxy", p.exited)
	p.expected = true
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("the proxy ended with %v, want exit 0\n%s", p.cmd.ProcessState, p.log)
	}
	p.checkLog()
}

// kill ends the process without a chance to do anything.
func (p *proxy) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.expected = true
	p.checkLog()
}

// pause stops the process; the function that it returns lets it go on.
func (p *proxy) pause() func() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	resume := func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
	p.t.Cleanup(resume)
	return resume
}

// finish ends the process with the test.
func (p *proxy) finish() {
	switch {
	case p.expected:
	case p.t.Failed():
		_ = p.cmd.Process.Kill()
		<-p.exited
		p.checkLog()
	default:
		select {
		case <-p.exited:
			p.t.Errorf("the proxy ended by itself: %v\n%s", p.cmd.ProcessState, p.log)
		default:
			p.stop()
		}
	}
	if p.t.Failed() {
		p.t.Logf("log of the proxy on %s:\n%s", p.addr, tail(p.log.String(), 8000))
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// secret notes what may not be logged.
func (p *proxy) secret(s ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secrets = append(p.secrets, s...)
}

// checkLog checks that a log that is complete tells of no crash and no secret.
func (p *proxy) checkLog() {
	p.t.Helper()
	text := p.log.String()
	for _, word := range []string{"DATA RACE", "panic", "goroutine "} {
		if at := strings.Index(text, word); at >= 0 {
			p.t.Errorf("the proxy's log has %q:\n%s", word, text[at:min(len(text), at+4000)])
		}
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			p.t.Errorf("a line of the proxy's log is no JSON: %s", line)
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.secrets {
		if strings.Contains(text, s) {
			p.t.Errorf("the proxy's log has %q, which a caller sent", s)
		}
	}
}

// once runs the program to its end.
func once(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	cmd := command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
