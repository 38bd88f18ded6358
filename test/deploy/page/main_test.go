package page

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"idemproxy/test/deploy/process"
)

// suite is what all tests share.
var suite struct {
	binary  string          // the program, built
	browser context.Context // nil on a machine without Chromium
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("4") // these tests wait more than they compute
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "idemproxy-page-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	suite.binary = filepath.Join(dir, "idemproxy")
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", suite.binary, "./cmd/idemproxy")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build: %w\n%s", err, out))
	}
	program, err := exec.LookPath("chromium")
	switch {
	case err != nil && os.Getenv("CI") == "":
		fmt.Fprintln(os.Stderr, "page: NO chromium ON PATH: THE CONTROL PAGE IS NOT TESTED")
		return m.Run()
	case err != nil:
		return fail(err)
	}
	browser, quit, err := startBrowser(program, filepath.Join(dir, "profile"))
	if err != nil {
		return fail(fmt.Errorf("start chromium: %w", err))
	}
	defer quit()
	suite.browser = browser //nolint:fatcontext // the one of all tests, each of which derives its own
	return m.Run()
}

func startBrowser(program, profile string) (browser context.Context, quit func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(profile),
		chromedp.WSURLReadTimeout(time.Minute), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	all, end := chromedp.NewExecAllocator(context.Background(), options...)
	browser, last := chromedp.NewContext(all)
	return browser, func() { last(); end() }, chromedp.Do(browser)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "page:", err)
	return 1
}

// An upstream does what the key of a request begins with, and counts.
type upstream struct {
	*httptest.Server
	mu    sync.Mutex
	seen  map[string]int
	hang  chan struct{}
	close sync.Once
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{seen: map[string]int{}, hang: make(chan struct{})}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(func() { u.goOn(); u.Close() })
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	u.mu.Lock()
	u.seen[key]++
	n := u.seen[key]
	u.mu.Unlock()
	switch kind, _, _ := strings.Cut(key, "-"); {
	case kind == "hang":
		<-u.hang
	case kind == "drop" && n == 1:
		panic(http.ErrAbortHandler) // the connection breaks: nobody knows what was done
	case kind == "busy":
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"execution": %d}`, n)
}

// goOn lets what hangs be answered.
func (u *upstream) goOn() { u.close.Do(func() { close(u.hang) }) }

func (u *upstream) executed(key string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[key]
}

const (
	token   = "0123456789abcdef-token-of-the-page"
	hostile = `<img src=x onerror=alert(1)>"'&lt;]`
	routes  = `
  - {name: payments, path: /api/payments, identity_header: X-Account, release_statuses: [429], ttl: 24h, lease: 10m, tenant_header: X-Tenant, require_tenant: false}
  - {name: orders, methods: [POST, PUT], path: "/api/orders/{id}", missing_header: pass-through, mode: enforce}
  - {name: '` + "<img src=x onerror=alert(1)>\"''&lt;]" + `', path: '/api/<b>/{rest...}', mode: observe}`
)

// A proxy is the program, running.
type proxy struct {
	url, control, tokenFile string
	process                 *exec.Cmd
	log                     process.Output
}

type setup struct {
	upstream, routes, store string
	open                    bool // without a token
}

func start(t *testing.T, s setup) *proxy {
	t.Helper()
	dir := t.TempDir()
	p := &proxy{tokenFile: filepath.Join(dir, "token")}
	listen, admin, control := process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t)
	p.url, p.control = "http://"+listen, "http://"+control
	p.setToken(t, token)
	file := ""
	if !s.open {
		file = fmt.Sprintf(", token_file: %q", p.tokenFile)
	}
	if s.store == "" {
		s.store = "{type: memory}"
	}
	text := fmt.Sprintf("server: {listen: %q}\nadmin: {listen: %q, ready_requires_store: false}\ncontrol: {listen: %q%s}\nupstream: {url: %q}\nstore: %s\nroutes: %s\n",
		listen, admin, control, file, s.upstream, s.store, s.routes)
	config := filepath.Join(dir, "idemproxy.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.process = exec.Command(suite.binary, "serve", "--config", config)
	p.process.Env = append(os.Environ(), "HOSTNAME=replica-1")
	p.process.Stdout, p.process.Stderr = &p.log, &p.log
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			lines := strings.Split(p.log.String(), "\n")
			t.Logf("the end of the proxy's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	eventually(t, "the proxy serves", func() bool {
		res, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
	return p
}

func (p *proxy) kill() {
	_ = p.process.Process.Signal(syscall.SIGKILL)
	_ = p.process.Wait()
}

func (p *proxy) setToken(t *testing.T, token string) {
	t.Helper()
	// Renamed into place: a half-written token is none.
	if err := os.WriteFile(p.tokenFile+"~", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.tokenFile+"~", p.tokenFile); err != nil {
		t.Fatal(err)
	}
}

// send sends a request to the proxy, and returns the status and whether it was a replay.
func (p *proxy) send(t *testing.T, path, key, body string) (status int, replayed bool) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Account", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode, res.Header.Get("X-Idempotent-Replay") == "true"
}

// sends checks the status too.
func (p *proxy) sends(t *testing.T, want int, path, key, body string) {
	t.Helper()
	if got, _ := p.send(t, path, key, body); got != want {
		t.Fatalf("POST %s with %q: %d, want %d", path, key, got, want)
	}
}

// hangs sends a request that is not answered, and returns once the upstream has it.
func (p *proxy) hangs(t *testing.T, u *upstream, path, key string) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { p.send(t, path, key, "{}") })
	t.Cleanup(func() { u.goOn(); all.Wait() })
	eventually(t, key+" is executed", func() bool { return u.executed(key) == 1 })
}

// ask is a call of the API by somebody who has the token.
func (p *proxy) ask(t *testing.T, method, path string) int {
	t.Helper()
	r, err := http.NewRequest(method, p.control+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// eventually asks again until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); {
		if time.Now().After(end) {
			t.Fatalf("after a minute still not: %s", what)
		}
		time.Sleep(80 * time.Millisecond) // asked again, not waited for
	}
}
