package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait: long, so that a busy machine fails no test.
const patience = 20 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v later: not %s", patience, what)
		}
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%v later: no %s", patience, what)
		panic("unreachable")
	}
}

// A gate holds whoever passes it until it is opened.
type gate struct {
	arrivals chan struct{}
	opened   chan struct{}
	open     func()
}

func newGate(t *testing.T) *gate {
	opened := make(chan struct{})
	g := &gate{arrivals: make(chan struct{}, 1000), opened: opened, open: sync.OnceFunc(func() { close(opened) })}
	t.Cleanup(g.open)
	return g
}

func (g *gate) pass() {
	g.arrivals <- struct{}{}
	<-g.opened
}

// arrived waits for somebody to stand before the gate.
func (g *gate) arrived(t *testing.T) {
	t.Helper()
	receive(t, "arrival at the gate", g.arrivals)
}

// output is what a process writes, readable while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var ports struct {
	sync.Mutex
	given map[int]bool
}

// freePort returns a port on which nobody listens. It is below those that systems give
// to outgoing connections, so that none of these takes it in the meantime.
func freePort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = map[int]bool{}
	}
	for range 10_000 {
		port := 15_000 + rand.IntN(15_000)
		if ports.given[port] {
			continue
		}
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			continue
		}
		l.Close()
		ports.given[port] = true
		return port
	}
	panic("no free port")
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// unique returns a word that nothing else has.
func unique(prefix string) string { return fmt.Sprintf("%s-%016x", prefix, rand.Uint64()) }

func newKey() string { return unique("key") }

func itoa(n int) string { return strconv.Itoa(n) }
