package proxy

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/net/netutil"
)

// wrapListener gives a listener the bounds of the server section and, with certificates,
// TLS. Beyond max_connections callers wait in the kernel's queue.
func wrapListener(l net.Listener, c ServerConfig, config *tls.Config) net.Listener {
	if c.MaxConnections > 0 {
		l = netutil.LimitListener(l, c.MaxConnections)
	}
	l = stallListener{l, c.SendTimeout}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l
}

// stallListener makes connections that don't wait for ever for a caller who takes nothing.
type stallListener struct {
	net.Listener
	timeout time.Duration
}

// Accept implements net.Listener.
func (l stallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stallConn{c, l.timeout}, nil
}

// maxWrite is how much is written under one deadline: the deadline asks for progress, not
// for an end.
const maxWrite = 64 << 10

// stallConn is a connection on which a write fails when nothing of it is taken for the
// timeout. Waiting between writes is not bounded: an event stream may be silent.
type stallConn struct {
	net.Conn
	timeout time.Duration
}

// Write implements net.Conn.
func (c stallConn) Write(p []byte) (int, error) {
	written := 0
	for {
		step := p[written:min(len(p), written+maxWrite)]
		if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(step)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// CloseWrite passes on what net/http asks of a connection that it hands over.
func (c stallConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
