package proxy

import (
	"errors"
	"io"
	"time"

	"idemproxy/internal/dedup"
)

// An observedBody is the body of an observed request on its way to the upstream. A copy of
// it is kept for its fingerprint, as long as enforce would have received it.
type observedBody struct {
	io.ReadCloser
	f *forecast
}

// Read implements io.Reader.
func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	late := time.Since(b.f.o.started) > b.f.proxy.options.Server.BodyTimeout
	if would := b.f.copy(p[:n]); would != "" {
		b.f.know(string(would))
	}
	switch {
	case late:
		b.f.know(string(dedup.ReasonRequestTimeout))
	case errors.Is(err, io.EOF):
		b.f.ask(true)
	case err != nil:
		b.f.know(string(dedup.ReasonBadRequest))
	}
	return n, err
}

// copy keeps the next part of the body, within the rule's limit and the budget. It returns
// why that can't be.
func (f *forecast) copy(p []byte) dedup.Reason {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked.IsZero() {
		return ""
	}
	size := len(f.body) + len(p)
	if size > int(f.o.route.rule.MaxRequestBody) {
		return dedup.ReasonRequestTooLarge
	}
	if size > cap(f.body) {
		step := max(firstRead, cap(f.body), size-cap(f.body))
		if !f.held.try(int64(step)) {
			return dedup.ReasonOverloaded
		}
		f.body = append(make([]byte, 0, cap(f.body)+step), f.body...)
	}
	f.body = append(f.body, p...)
	return ""
}

// An observedAnswer is the body of the answer to an observed request on its way to the
// caller.
type observedAnswer struct {
	io.ReadCloser
	f    *forecast
	size int64
}

// Read implements io.Reader.
func (b *observedAnswer) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	if b.size > int64(b.f.o.route.rule.MaxResponseBody) {
		b.f.executed(true)
	}
	if errors.Is(err, io.EOF) {
		b.f.executed(false)
		b.f.await()
	}
	return n, err
}
