package storetest

import (
	"bytes"
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
	trips    atomic.Int64
	lost     atomic.Int64
	mu       sync.Mutex
	conns    map[net.Conn]bool
	lose     int // replies still to lose
	loseTo   []byte
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

// Refuse makes every further connection fail, for good. Open ones go on.
func (s *Shim) Refuse() { _ = s.listener.Close() }

// LoseReplies makes the next n replies to requests that contain some text vanish: the
// server has done what it was asked, and then the connection breaks instead of answering.
func (s *Shim) LoseReplies(text string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseTo, s.lose = []byte(text), n
}

// Lost returns how many replies have been lost.
func (s *Shim) Lost() int { return int(s.lost.Load()) }

// Trips returns how many requests have been sent since the start. What is written
// together is one, if it fits one read (32 KiB).
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
		var doomed atomic.Bool // the next reply is to be lost
		go func() {
			defer s.drop(client, server)
			s.relay(server, client, func(request []byte) bool {
				s.trips.Add(1)
				if s.loses(request) {
					doomed.Store(true)
				}
				return true
			})
		}()
		go func() {
			defer s.drop(client, server)
			s.relay(client, server, func([]byte) bool {
				if doomed.Load() {
					s.lost.Add(1)
				}
				return !doomed.Load()
			})
		}()
	}
}

// loses reports whether the reply to this request is one of those to lose.
func (s *Shim) loses(request []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lose == 0 || !bytes.Contains(request, s.loseTo) {
		return false
	}
	s.lose--
	return true
}

// relay hands on what comes, as long as pass says so of it.
func (s *Shim) relay(to io.Writer, from io.Reader, pass func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
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
