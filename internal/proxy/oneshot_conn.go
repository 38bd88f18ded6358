package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// countedConn is the connection to the upstream below TLS. It counts what was written.
type countedConn struct {
	net.Conn
	written atomic.Int64
	ended   bool // a read met the end; used by the reading goroutine only
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.ended = true
	}
	return n, err
}

// oneShotConn is a connection that serves one exchange after the other.
type oneShotConn struct {
	raw    *countedConn
	stream net.Conn // raw, or TLS over it
	in     *boundedReader
	br     *bufio.Reader // over in
	since  time.Time     // when it became idle

	sys  syscall.RawConn // nil if the platform has none
	peek func(fd uintptr) bool
	dead bool // the result of peek
}

func newOneShotConn(raw *countedConn, stream net.Conn) *oneShotConn {
	c := &oneShotConn{raw: raw, stream: stream, in: &boundedReader{src: stream}}
	c.br = bufio.NewReader(c.in)
	if s, ok := raw.Conn.(syscall.Conn); ok {
		if sys, err := s.SyscallConn(); err == nil {
			c.sys = sys
			c.peek = func(fd uintptr) bool {
				c.dead = !quietSocket(fd)
				return true
			}
		}
	}
	return c
}

// alive reports whether an idle connection is fit for a request: neither closed by the
// upstream, as far as that has arrived here, nor holding bytes nobody asked for. (A TLS
// session ticket that comes late counts as such; it costs a dial.)
func (c *oneShotConn) alive() bool {
	if c.sys == nil {
		return true
	}
	c.dead = true
	err := c.sys.Read(c.peek)
	return err == nil && !c.dead
}

// drained reports whether nothing is left in the buffers after an answer.
func (c *oneShotConn) drained() bool {
	if c.br.Buffered() > 0 || c.in.failed {
		return false
	}
	secure, ok := c.stream.(*tls.Conn)
	if !ok {
		return true
	}
	// TLS may hold a record that was read with the last one. A read that must not wait
	// shows it: the deadline stops it at the socket, and tls forgives a timeout of a read.
	if c.raw.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var one [1]byte
	_, err := secure.Read(one[:])
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return false
	}
	return c.raw.SetReadDeadline(time.Time{}) == nil
}

// cutShort reports whether an answer that ends with its connection was cut: over TLS the
// end must be announced (RFC 9112, section 9.8), which crypto/tls doesn't insist on.
func (c *oneShotConn) cutShort() bool {
	_, secure := c.stream.(*tls.Conn)
	return secure && c.raw.ended
}

// interrupt ends reads and writes under way.
func (c *oneShotConn) interrupt() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// abort closes without a farewell.
func (c *oneShotConn) abort() { _ = c.raw.Close() }

// boundedReader reads at most left bytes.
type boundedReader struct {
	src    io.Reader
	left   int64
	failed bool // an error was returned, the end included
}

var errHeadTooLarge = errors.New("head of the answer is too large")

func (r *boundedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.failed = true
		return 0, errHeadTooLarge
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.src.Read(p)
	r.left -= int64(n)
	r.failed = r.failed || err != nil
	return n, err
}

// unbound takes the limit away.
func (r *boundedReader) unbound() { r.left = math.MaxInt64 }
