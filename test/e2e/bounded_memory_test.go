package e2e

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// plainBinary is the program without the race detector, which takes many times the memory.
var plainBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "idemproxy-plain-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "idemproxy")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/idemproxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	content, err := os.ReadFile(binary)
	_ = os.RemoveAll(dir)
	return string(content), err
})

// startPlain is start for the program as it is shipped; its memory can be measured.
func startPlain(t *testing.T, s setup) *proxy {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	content, err := plainBinary()
	if err != nil {
		t.Fatalf("build the program: %v\n%s", err, content)
	}
	p := &proxy{t: t, addr: local(freePort()), admin: local(freePort()), log: &output{}, exited: make(chan struct{})}
	p.file = filepath.Join(t.TempDir(), "idemproxy.yaml")
	binary := filepath.Join(t.TempDir(), "idemproxy")
	syscall.ForkLock.RLock() // or a process that another test starts now keeps the file busy
	err = os.WriteFile(binary, []byte(content), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, s.yaml(p.addr, p.admin))
	p.cmd = command("serve", "--config", p.file)
	p.cmd.Path = binary
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.finish)
	p.waitReady()
	return p
}

// memory is a line of the process's status, in KiB: VmRSS now, VmHWM at most so far.
func (p *proxy) memory(t *testing.T, name string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// stays checks that the process never took more memory than this.
func (p *proxy) stays(t *testing.T, below int, doing string) {
	t.Helper()
	peak := p.memory(t, "VmHWM")
	t.Logf("%s: at most %d KiB", doing, peak)
	if peak > below {
		t.Errorf("%s took %d KiB of memory, want at most %d", doing, peak, below)
	}
}

const mebibyte = 1 << 20

// Twenty-four answers of 30 MB at once, through a guarded route.
func TestBoundedMemoryOfLargeAnswers(t *testing.T) {
	t.Parallel()
	const answers, size = 24, 30_000_000
	g := newGate(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
		block, first := make([]byte, 100_000), true
		for range size / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
			if first {
				first = false
				g.pass()
			}
		}
	})
	p := startPlain(t, setup{store: memory(), upstream: up.url, routes: payments})
	client := bothClients(t)["HTTP/1.1"]
	var all sync.WaitGroup
	for range answers {
		k := newKey()
		all.Go(func() {
			req, _ := http.NewRequestWithContext(context.Background(), "POST", "http://"+p.addr+"/pay", strings.NewReader("x"))
			req.Header.Set("Idempotency-Key", k)
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size {
				t.Errorf("%d bytes came through, want %d; %v", n, size, err)
			}
		})
	}
	for range answers {
		g.arrived(t)
	}
	g.open()
	all.Wait()
	up.saw(t, answers)
	p.stays(t, 100*mebibyte/1024, "24 answers of 30 MB")
}

// Two hundred callers that announce a mebibyte each and take their time.
func TestBoundedMemoryOfSlowUploads(t *testing.T) {
	t.Parallel()
	const callers, size = 200, mebibyte
	up := newUpstream(t, created)
	p := startPlain(t, setup{store: memory(), upstream: up.url, routes: payments})
	conns := make([]*caller, callers)
	for i := range conns {
		c, err := dial(p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c
		head := request{key: newKey(), unframed: true, header: []string{"Content-Length: " + itoa(size)}}
		if _, err := c.Write(head.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	part := make([]byte, 20_000)
	for range 5 {
		for _, c := range conns {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	eventually(t, "holding what was sent", func() bool { return p.metric(t, "idemproxy_buffered_bytes") >= callers*5*20_000 })
	p.send(t, request{key: newKey(), body: "x"}).fresh(t, 201)
	up.saw(t, 1)
	p.stays(t, 100*mebibyte/1024, "200 slow uploads")
}

// A thousand connections that send a head and never end it, a thousand idle ones, and a
// thousand idle ones of HTTP/2 leave another caller alone.
func TestBoundedMemoryOfConnections(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := startPlain(t, setup{store: memory(), upstream: up.url, server: "read_header_timeout: 20s", routes: payments})
	const each = 1000
	before := p.memory(t, "VmRSS")
	for _, kind := range []struct {
		name, begin string
		answered    bool
		most        int // KiB a connection
	}{
		{"slow-loris", "POST /pay HTTP/1.1\r\nHost: service.example\r\nX-Slow: ", false, 40},
		{"idle", "GET /x HTTP/1.1\r\nHost: service.example\r\n\r\n", true, 40},
		{"idle HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", true, 100},
	} {
		var conns []net.Conn
		for range each {
			c, err := net.DialTimeout("tcp", p.addr, patience)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := io.WriteString(c, kind.begin); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		if kind.answered {
			for _, c := range conns {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := bufio.NewReaderSize(c, 16).ReadByte(); err != nil {
					t.Fatalf("%s: %v", kind.name, err)
				}
			}
		}
		began := time.Now()
		p.twice(t, request{key: newKey(), body: "x"}, 201)
		took, after := time.Since(began), p.memory(t, "VmRSS")
		t.Logf("%s: %.1f KiB a connection; another caller waits %v", kind.name, float64(after-before)/each, took)
		if took > 5*time.Second || after-before > each*kind.most {
			t.Errorf("%s: %d KiB for %d connections, want at most %d each; another caller waited %v", kind.name, after-before, each, kind.most, took)
		}
		before = after
	}
}
