package proxy

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"time"

	"idemproxy/internal/dedup"
)

// pass records that the operation was executed, and then lets the answer stream to the
// caller while it arrives. Of it, begun was read already.
func (ex *execution) pass(res *http.Response, begun []byte) {
	ex.timeout.Stop() // the outcome is known; the rest takes as long as it takes
	ex.complete(&dedup.Record{NotStored: true, Trace: ex.o.upstream.id(), Completed: time.Now(), Status: res.StatusCode})
	b := &passing{Reader: io.MultiReader(bytes.NewReader(begun), res.Body), body: res.Body, ex: ex, endless: endless(res)}
	b.unwatch = context.AfterFunc(ex.caller, b.left)
	res.Body = b
}

// endless reports whether an answer is a stream that is worth nothing when it comes all at
// its end.
func endless(res *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return kind == "text/event-stream" || kind == "application/x-ndjson"
}

// passing is the body of an answer that streams to the caller.
type passing struct {
	io.Reader
	body    io.ReadCloser
	ex      *execution
	endless bool
	ended   bool
	unwatch func() bool
}

// left is called when the caller is gone. Nothing else notices that while the upstream is
// silent.
func (b *passing) left() {
	if b.endless {
		b.ex.cancel(context.Cause(b.ex.caller))
		return
	}
	b.ex.timeout.Reset(b.ex.proxy.options.Upstream.ResponseTimeout)
}

// Read implements io.Reader.
func (b *passing) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

// Close is called at the end, and when the caller is gone before it. An upstream that is
// still sending is then heard to the end, so that it isn't cut off in the middle of what
// it does; but not a stream without an end.
func (b *passing) Close() error {
	b.unwatch()
	if b.ended || b.endless {
		return b.body.Close()
	}
	b.ended, b.ex.drains = true, true
	p, cancel := b.ex.proxy, b.ex.cancel
	p.later.run(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		defer stop()
		timeout := time.AfterFunc(p.options.Upstream.ResponseTimeout, func() { cancel(errResponseTimeout) })
		defer timeout.Stop()
		_, _ = io.Copy(io.Discard, b.body)
		b.body.Close()
		cancel(nil)
	})
	return nil
}
