package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
)

// firstWrite is how much of a body goes out with the head, in one write by the calling
// goroutine: a kernel takes that much from us though nobody reads at the other end. What
// is left is written by a goroutine while the answer is awaited.
const firstWrite = 32 << 10

// outgoing is a request on its way into bytes. It is reused.
type outgoing struct {
	bytes   []byte // the head and the beginning of the body
	left    int64  // bytes of the body that are not in bytes; -1: until its end
	chunked bool
	names   []string
}

// recycle empties o and reports whether it is small enough to be kept.
func (o *outgoing) recycle() bool {
	*o = outgoing{bytes: o.bytes[:0], names: o.names[:0]}
	return cap(o.bytes) <= 2*firstWrite && cap(o.names) <= 256
}

// more reports whether the request goes on after bytes.
func (o *outgoing) more() bool { return o.left != 0 }

// rest is what comes after bytes.
func (o *outgoing) rest(req *http.Request) *upload {
	return &upload{req: req, left: o.left, chunked: o.chunked, done: make(chan struct{})}
}

// prepare fills bytes. It reads no more of the body than that.
func (o *outgoing) prepare(req *http.Request) error {
	if err := checkTrailer(req.Trailer); err != nil {
		return err
	}
	if noBody(req) && len(req.Trailer) == 0 {
		return o.appendHead(req)
	}
	if req.ContentLength <= 0 || noBody(req) || len(req.Trailer) > 0 {
		return o.prepareUnknown(req)
	}
	o.left = req.ContentLength
	if err := o.appendHead(req); err != nil {
		return err
	}
	n := int(min(o.left, firstWrite))
	o.grow(n + 1)
	start := len(o.bytes)
	if _, err := io.ReadFull(req.Body, o.bytes[start:start+n]); err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	o.bytes = o.bytes[:start+n]
	o.left -= int64(n)
	if o.left == 0 {
		return atEnd(req.Body, o.bytes[start+n:start+n+1])
	}
	return nil
}

// prepareUnknown fills bytes for a body whose length is not known, or that has a trailer
// after it. It is chunked, unless it turns out to be short.
func (o *outgoing) prepareUnknown(req *http.Request) error {
	chunk, whole := make([]byte, firstWrite), true
	n := 0
	if !noBody(req) {
		var err error
		n, err = io.ReadFull(req.Body, chunk)
		whole = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !whole {
			return fmt.Errorf("read request body: %w", err)
		}
	}
	o.left, o.chunked = int64(n), !whole || len(req.Trailer) > 0
	if err := o.appendHead(req); err != nil {
		return err
	}
	o.left = 0
	if !o.chunked {
		o.bytes = append(o.bytes, chunk[:n]...)
		return nil
	}
	if n > 0 {
		o.bytes = fmt.Appendf(o.bytes, "%x\r\n", n)
		o.bytes = append(o.bytes, chunk[:n]...)
		o.bytes = append(o.bytes, "\r\n"...)
	}
	if !whole {
		o.left = -1
		return nil
	}
	o.bytes = append(o.bytes, "0\r\n"...)
	o.bytes = appendTrailer(o.bytes, req.Trailer)
	return nil
}

// grow makes room for n bytes.
func (o *outgoing) grow(n int) {
	if cap(o.bytes)-len(o.bytes) < n {
		grown := make([]byte, len(o.bytes), len(o.bytes)+n+512)
		copy(grown, o.bytes)
		o.bytes = grown
	}
}

var errBodyLength = errors.New("request body is not as long as its length says")

// atEnd fails if body goes on. It uses one as its buffer.
func atEnd(body io.Reader, one []byte) error {
	switch n, err := io.ReadFull(body, one); {
	case n > 0:
		return errBodyLength
	case errors.Is(err, io.EOF):
		return nil
	default:
		return fmt.Errorf("read request body: %w", err)
	}
}

func checkTrailer(trailer http.Header) error {
	for name, values := range trailer {
		switch http.CanonicalHeaderKey(name) {
		case "Transfer-Encoding", "Trailer", "Content-Length", "Host":
			return errUnsendable
		}
		if !isToken(name) {
			return errUnsendable
		}
		for _, v := range values {
			if !isFieldValue(v) {
				return errUnsendable
			}
		}
	}
	return nil
}

func appendTrailer(b []byte, trailer http.Header) []byte {
	for _, name := range slices.Sorted(maps.Keys(trailer)) {
		for _, v := range trailer[name] {
			b = appendField(b, name, v)
		}
	}
	return append(b, "\r\n"...)
}

// upload is the part of a request that a goroutine writes while the answer is awaited.
type upload struct {
	req     *http.Request
	left    int64
	chunked bool
	done    chan struct{} // closed at the end, after err is set
	err     error
}

// run writes the rest to c and closes the body. If the body itself fails, it interrupts
// the connection: the upstream would wait for ever.
func (u *upload) run(c *oneShotConn) {
	defer close(u.done)
	defer closeBody(u.req)
	w := &limitedWriter{dst: c.stream, left: u.left}
	if u.chunked {
		u.err = u.writeChunks(w)
	} else if _, u.err = io.Copy(w, u.req.Body); u.err == nil && w.left > 0 {
		u.err = errBodyLength
	}
	if u.err != nil && !w.failed {
		c.interrupt()
	}
}

func (u *upload) writeChunks(w *limitedWriter) error {
	w.left = -1
	buffered := bufio.NewWriterSize(w, firstWrite+64)
	chunks := httputil.NewChunkedWriter(buffered)
	if _, err := io.CopyBuffer(struct{ io.Writer }{chunks}, struct{ io.Reader }{u.req.Body}, make([]byte, firstWrite)); err != nil {
		return err
	}
	if err := chunks.Close(); err != nil {
		return err
	}
	if _, err := buffered.Write(appendTrailer(nil, u.req.Trailer)); err != nil {
		return err
	}
	return buffered.Flush()
}

// limitedWriter refuses what is longer than announced and remembers whose fault an
// error is.
type limitedWriter struct {
	dst    io.Writer
	left   int64 // negative: no limit
	failed bool  // dst returned an error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left >= 0 && int64(len(p)) > w.left {
		return 0, errBodyLength
	}
	n, err := w.dst.Write(p)
	if w.left >= 0 {
		w.left -= int64(n)
	}
	w.failed = w.failed || err != nil
	return n, err
}
