package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// oneShot is the round tripper of guarded requests over HTTP/1.1. The calling goroutine
// writes the request once on a connection that is alive as far as one can see, and reads
// the answer. There is no code that could write it again once a byte of it is out, and
// the count of the connection's bytes proves when none is. It follows no redirects,
// decompresses nothing and upgrades nothing.
//
// The context of a request bounds it up to the last byte of the answer's body. When the
// body is at its end or closed, or RoundTrip has failed, nothing of oneShot touches the
// request any more.
type oneShot struct {
	dial    dialFunc
	tls     *tls.Config // nil: no TLS
	timeout time.Duration
	pool    *idlePool
	buffers sync.Pool // of *outgoing
}

func newOneShot(dial dialFunc, timeout time.Duration, maxIdle int, idle time.Duration) *oneShot {
	return &oneShot{
		dial:    dial,
		timeout: timeout,
		pool:    &idlePool{max: maxIdle, idle: idle},
		buffers: sync.Pool{New: func() any { return new(outgoing) }},
	}
}

// CloseIdleConnections closes the connections that wait for a request.
func (o *oneShot) CloseIdleConnections() { o.pool.closeAll() }

// RoundTrip sends req and returns the answer. Its errors wrap errNotSent if not a byte
// was written or our certificate was refused, and the context's error if that is what
// ended it.
func (o *oneShot) RoundTrip(req *http.Request) (*http.Response, error) {
	out, _ := o.buffers.Get().(*outgoing)
	x, err := o.send(out, req)
	// What is not yet written then belongs to the exchange's upload.
	if out.recycle() {
		o.buffers.Put(out)
	}
	if err != nil {
		return nil, notSent(err)
	}
	res, err := x.receive(req)
	if err != nil {
		refused := x.refused(err)
		err = x.explain(err)
		x.abort()
		if refused {
			return nil, notSent(err)
		}
		return nil, err
	}
	return res, nil
}

// send writes the request. It fails only if nothing of it is written. Then a connection
// that had been used before gets one successor, a fresh one.
func (o *oneShot) send(out *outgoing, req *http.Request) (*exchange, error) {
	if err := out.prepare(req); err != nil {
		closeBody(req)
		return nil, err
	}
	ctx := req.Context()
	c := o.pool.get()
	for {
		reused := c != nil
		if c == nil {
			var err error
			if c, err = o.connect(ctx); err != nil {
				closeBody(req)
				return nil, err
			}
		}
		x := newExchange(ctx, c, o.pool)
		before := c.raw.written.Load()
		_, err := c.stream.Write(out.bytes)
		switch {
		case err == nil && out.more():
			x.startUpload(out.rest(req))
			return x, nil
		case err == nil:
			closeBody(req)
			return x, nil
		case c.raw.written.Load() != before:
			// Who refuses a request unread may still have said why.
			closeBody(req)
			x.writeErr = err
			return x, nil
		}
		x.abort()
		c = nil
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !reused || ctx.Err() != nil {
			closeBody(req)
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
}

// connect dials and, for https, shakes hands.
func (o *oneShot) connect(ctx context.Context) (*oneShotConn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	dialled, err := o.dial(ctx)
	if err != nil {
		return nil, err
	}
	raw := &countedConn{Conn: dialled}
	if o.tls == nil {
		return newOneShotConn(raw, raw), nil
	}
	secure := tls.Client(raw, o.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = dialled.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return newOneShotConn(raw, secure), nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
