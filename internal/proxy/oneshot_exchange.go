package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"
)

const (
	// maxInformational is how many 1xx answers may come before the answer.
	maxInformational = 100
	// uploadGrace is how long a connection waits, the answer complete, for the write of
	// the request to return before it is given up. It should have: only an upstream that
	// answers without reading the request leaves it standing.
	uploadGrace = 5 * time.Millisecond
)

// exchange is one request on one connection, from its first byte to its answer's last.
type exchange struct {
	ctx      context.Context //nolint:containedctx // lives as long as the request it belongs to
	conn     *oneShotConn
	pool     *idlePool
	unwatch  func() bool
	upload   *upload // nil: the request was written in one go
	writeErr error   // the request was written in part
	over     atomic.Bool
}

func newExchange(ctx context.Context, c *oneShotConn, pool *idlePool) *exchange {
	x := &exchange{ctx: ctx, conn: c, pool: pool}
	if ctx.Done() != nil {
		x.unwatch = context.AfterFunc(ctx, c.interrupt)
	}
	return x
}

func (x *exchange) startUpload(u *upload) {
	x.upload = u
	go u.run(x.conn)
}

// receive reads up to the end of the answer's head.
func (x *exchange) receive(req *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(x.ctx)
	x.conn.in.left = maxAnswerHead
	for range maxInformational {
		res, err := http.ReadResponse(x.conn.br, req)
		switch {
		case x.conn.in.left <= 0 && err != nil:
			return nil, errHeadTooLarge
		case err != nil:
			return nil, err
		case res.ProtoMajor != 1 || res.StatusCode < 100 || res.StatusCode == http.StatusSwitchingProtocols:
			return nil, fmt.Errorf("unexpected answer: HTTP/%d, status %d", res.ProtoMajor, res.StatusCode)
		case res.StatusCode >= 200:
			x.conn.in.unbound()
			x.deliver(res)
			return res, nil
		}
		if trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("too many informational answers")
}

// deliver makes the body of res give the connection back.
func (x *exchange) deliver(res *http.Response) {
	keep := !res.Close && !res.Request.Close
	if res.Body == http.NoBody {
		x.finish(keep)
		return
	}
	delimited := res.ContentLength >= 0 || len(res.TransferEncoding) > 0
	res.Body = &oneShotBody{src: res.Body, x: x, keep: keep && delimited, delimited: delimited}
}

// finish ends the exchange after a complete answer.
func (x *exchange) finish(keep bool) {
	if !x.over.CompareAndSwap(false, true) {
		return
	}
	keep = keep && x.writeErr == nil && x.uploaded() && x.conn.drained()
	// A context that ended meanwhile may interrupt the connection at any time from now.
	if x.unwatch != nil && !x.unwatch() {
		keep = false
	}
	if keep {
		x.pool.put(x.conn)
		return
	}
	x.conn.abort()
	x.awaitUpload()
}

// abort ends the exchange whatever state it is in.
func (x *exchange) abort() {
	if !x.over.CompareAndSwap(false, true) {
		return
	}
	if x.unwatch != nil {
		x.unwatch()
	}
	x.conn.abort()
	x.awaitUpload()
}

// uploaded reports whether the whole request is written.
func (x *exchange) uploaded() bool {
	if x.upload == nil {
		return true
	}
	select {
	case <-x.upload.done:
	case <-time.After(uploadGrace):
		return false
	}
	return x.upload.err == nil
}

// awaitUpload returns when nothing reads the request's body any more. The connection is
// closed, so that is soon.
func (x *exchange) awaitUpload() {
	if x.upload != nil {
		<-x.upload.done
	}
}

// explain adds to an error what caused it.
func (x *exchange) explain(err error) error {
	if x.ctx.Err() != nil {
		return fmt.Errorf("read answer: %w", context.Cause(x.ctx))
	}
	if x.writeErr != nil {
		return fmt.Errorf("write request: %w; read answer: %w", x.writeErr, err)
	}
	return fmt.Errorf("read answer: %w", err)
}

// oneShotBody is the body of an answer. It ends with io.EOF only if it is complete.
type oneShotBody struct {
	src       io.Reader
	x         *exchange
	keep      bool
	delimited bool
	err       error // what every further read returns
}

func (b *oneShotBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && (b.delimited || !b.x.conn.cutShort()):
		b.err = io.EOF
		b.x.finish(b.keep)
	default:
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		b.err = b.x.explain(err)
		b.x.abort()
	}
	return n, b.err
}

// Close gives the connection up if the body was not read to its end.
func (b *oneShotBody) Close() error {
	if b.err == nil {
		b.err = http.ErrBodyReadAfterClose
	}
	b.x.abort()
	return nil
}
