package storetest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Shim is a TCP proxy of one test that stands between a store and its server, and does
// to the connection what networks do.
type Shim struct {
	t        testing.TB
	listener net.Listener
	target   atomic.Pointer[string]
	lose     atomic.Int64 // replies still to lose
	trips    atomic.Int64
	lost     atomic.Int64
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

// StartShim listens on a port of its own and hands connections on to target, a host:port,
// until the test ends.
func StartShim(t testing.TB, target string) *Shim {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start shim: %v", err)
	}
	s := &Shim{t: t, listener: l, conns: make(map[net.Conn]bool)}
	s.Redirect(target)
	t.Cleanup(func() {
		_ = l.Close()
		s.Cut()
	})
	go s.accept()
	return s
}

// Addr is the host:port to connect to.
func (s *Shim) Addr() string { return s.listener.Addr().String() }

// Redirect sends new connections to another target. Open ones stay where they are.
func (s *Shim) Redirect(target string) { s.target.Store(&target) }

// LoseReplies makes the next n replies vanish: the server has done what it was asked,
// and then the connection breaks instead of answering.
func (s *Shim) LoseReplies(n int) { s.lose.Store(int64(n)) }

// Lost returns how many replies have been lost.
func (s *Shim) Lost() int { return int(s.lost.Load()) }

// Trips returns how many replies have come back since the start: round trips, as long as
// one reply fits one read (32 KiB).
func (s *Shim) Trips() int { return int(s.trips.Load()) }

// Cut breaks every open connection.
func (s *Shim) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *Shim) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", *s.target.Load())
		if err != nil {
			_ = client.Close()
			continue
		}
		s.mu.Lock()
		s.conns[client], s.conns[server] = true, true
		s.mu.Unlock()
		go func() {
			_, _ = io.Copy(server, client)
			s.drop(client, server)
		}()
		go func() {
			s.answer(client, server)
			s.drop(client, server)
		}()
	}
}

// answer hands replies back, or loses them.
func (s *Shim) answer(client, server net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		s.trips.Add(1)
		if s.lose.Add(-1) >= 0 {
			s.lost.Add(1)
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *Shim) drop(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(s.conns, c)
	}
}
