package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A link is a TCP connection's way from one program to another that a test can spoil.
type link struct {
	addr   string
	target string

	mu    sync.Mutex
	open  *sync.Cond
	held  bool // nothing passes, in either direction
	conns []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{addr: l.Addr().String(), target: target}
	k.open = sync.NewCond(&k.mu)
	t.Cleanup(func() {
		l.Close()
		k.resume()
		k.cut()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go k.carry(conn)
		}
	}()
	return k
}

func (k *link) carry(from net.Conn) {
	to, err := net.Dial("tcp", k.target)
	if err != nil {
		from.Close()
		return
	}
	k.mu.Lock()
	k.conns = append(k.conns, from, to)
	k.mu.Unlock()
	go k.pump(to, from)
	k.pump(from, to)
}

func (k *link) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		k.mu.Lock()
		for k.held {
			k.open.Wait()
		}
		k.mu.Unlock()
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// hold lets nothing pass any more; connections are still accepted.
func (k *link) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = true
}

// resume lets everything pass, also what came while nothing did.
func (k *link) resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = false
	k.open.Broadcast()
}

// cut ends all connections. What was held back on them is lost.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		c.Close()
	}
	k.conns = nil
}

// silent is the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return l.Addr().String()
}
