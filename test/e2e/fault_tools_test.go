package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// The fault tests (fault_*_test.go) let everything between the proxy, its store and its
// upstream fail. Each counts what the upstream executed, by key, and compares bytes.

// Leases. A brief one is waited for; a steady one must not end while it is renewed, on a
// busy machine either. Where nothing is waited for it is the default of 30 s.
const (
	brief  = 600 * time.Millisecond
	steady = 2 * time.Second
)

// A shim is the way from proxies to their store. Unlike a link it looks at what passes: it can
// lose the reply to a command that was applied, be slow, and lead elsewhere.
type shim struct {
	addr string

	mu     sync.Mutex
	open   *sync.Cond
	target string
	held   bool          // nothing passes, in either direction
	delay  time.Duration // of what comes from the store
	losing *loss
	conns  map[net.Conn]bool
}

// A loss is a reply that is to get lost, once.
type loss struct {
	stall bool // the connection stays, silent; otherwise it ends
	once  sync.Once
	done  chan struct{}
}

func (l *loss) happened() { l.once.Do(func() { close(l.done) }) }

func newShim(t *testing.T, target string) *shim {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &shim{addr: l.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	s.open = sync.NewCond(&s.mu)
	t.Cleanup(func() {
		l.Close()
		s.resume()
		s.cut()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.carry(conn)
		}
	}()
	return s
}

func (s *shim) carry(client net.Conn) {
	s.mu.Lock()
	target := s.target
	s.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	s.mu.Lock()
	s.conns[client], s.conns[server] = true, true
	s.mu.Unlock()
	c := &crossing{shim: s, client: client, server: server}
	go c.forth()
	c.back()
}

// A crossing is one connection through a shim.
type crossing struct {
	shim           *shim
	client, server net.Conn

	mu     sync.Mutex
	doomed *loss // the next reply gets lost
}

func (c *crossing) forth() {
	defer c.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		if l := c.shim.pass(buf[:n]); l != nil {
			c.mu.Lock()
			c.doomed = l
			c.mu.Unlock()
		}
		if _, werr := c.server.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (c *crossing) back() {
	defer c.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		c.shim.wait()
		c.mu.Lock()
		doomed := c.doomed
		c.mu.Unlock()
		if doomed != nil && n > 0 {
			doomed.happened()
			if !doomed.stall {
				return
			}
			continue
		}
		if _, werr := c.client.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (c *crossing) end() {
	c.client.Close()
	c.server.Close()
	c.shim.mu.Lock()
	defer c.shim.mu.Unlock()
	delete(c.shim.conns, c.client)
	delete(c.shim.conns, c.server)
}

// pass waits until something may pass, and says whether the reply to it is to get lost.
func (s *shim) pass(request []byte) *loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held {
		s.open.Wait()
	}
	l := s.losing
	request = bytes.ToLower(request)
	if l == nil || !bytes.Contains(request, []byte("evalsha")) && !bytes.Contains(request, []byte("with found as")) {
		return nil
	}
	s.losing = nil
	return l
}

func (s *shim) wait() {
	s.mu.Lock()
	delay := s.delay
	for s.held {
		s.open.Wait()
	}
	s.mu.Unlock()
	time.Sleep(delay)
}

// lose lets the reply to the next script of Redis, or statement of PostgreSQL on an entry,
// get lost, after it was applied: with the
// connection, or, if it stalls, in silence. The channel says when that has happened.
func (s *shim) lose(stall bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losing = &loss{stall: stall, done: make(chan struct{})}
	return s.losing.done
}

// hold lets nothing pass any more; connections are still accepted.
func (s *shim) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// resume lets everything pass, also what came while nothing did.
func (s *shim) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.open.Broadcast()
}

// slow delays what comes from the store.
func (s *shim) slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// cut ends all connections. What was held back on them is lost.
func (s *shim) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// redirect leads new connections to another server. Those that are open stay.
func (s *shim) redirect(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = target
}

// counted waits until series stand at these values.
func (p *proxy) counted(t *testing.T, want map[string]float64) {
	t.Helper()
	var got map[string]float64
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		all := p.metrics(t)
		got = maps.Clone(want)
		for series := range want {
			got[series] = all["idemproxy_"+series]
		}
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the metrics are %v,\nwant %v", got, want)
		}
	}
}

// grew waits until a series is at least this.
func (p *proxy) grew(t *testing.T, series string, least float64) {
	t.Helper()
	eventually(t, series+" grown", func() bool { return p.metric(t, "idemproxy_"+series) >= least })
}

// logged waits for a line of the log that has all these words.
func (p *proxy) logged(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("logged: %q", words), func() bool {
		for line := range strings.Lines(p.log.String()) {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return true
			}
		}
		return false
	})
}

// settled asks until the answer is neither "in progress" nor "the store is away".
func (p *proxy) settled(t *testing.T, r request) (res *response) {
	t.Helper()
	eventually(t, "settled", func() bool {
		res = p.send(t, r)
		code := problemOf(res).Code
		return code != "in_progress" && code != "store_unavailable"
	})
	return res
}

// never checks for a while that something stays as it is.
func never(t *testing.T, d time.Duration, check func()) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(d / 10) {
		check()
	}
}
