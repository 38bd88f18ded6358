package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"idemproxy/internal/dedup"
)

// receive reads the whole body of a request, within the limit and the body timeout.
//
// http.MaxBytesReader needs the server's own ResponseWriter: only then does it close the
// connection instead of draining what a caller has too much.
func (p *Proxy) receive(w http.ResponseWriter, r *http.Request, limit dedup.Size, h *hold) ([]byte, *dedup.Rejection) {
	if r.ContentLength > int64(limit) {
		return nil, tooLarge(limit)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	control := http.NewResponseController(w)
	// Both fail only for a ResponseWriter that is not net/http's.
	_ = control.SetReadDeadline(time.Now().Add(p.options.Server.BodyTimeout))
	body, err := readSteps(http.MaxBytesReader(w, r.Body, int64(limit)), r.ContentLength, func(n int64) error {
		if !h.try(n) {
			return errOverloaded
		}
		return nil
	})
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
		return body, nil
	}
	// The deadline stays after an error, or net/http would wait for the rest of the body
	// before it sends the answer.
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, errOverloaded) {
		return nil, overloaded()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &dedup.Rejection{Reason: dedup.ReasonRequestTimeout, Err: err, Detail: fmt.Sprintf("The body of the request did not arrive within %v; nothing was sent on.", p.options.Server.BodyTimeout)}
	}
	return nil, &dedup.Rejection{Reason: dedup.ReasonBadRequest, Err: err, Detail: "The body of the request ended early or is malformed; nothing was sent on."}
}

// unreadGrace is how long a refusal waits for a body that nobody wants.
const unreadGrace = 100 * time.Millisecond

// hurry bounds the time that net/http takes to drain the body of a request which is
// refused: it does so before it sends the answer, to keep the connection. A body that is
// here already costs nothing; one that doesn't come costs the connection.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadGrace))
	}
}

func tooLarge(limit dedup.Size) *dedup.Rejection {
	return &dedup.Rejection{Reason: dedup.ReasonRequestTooLarge, Detail: fmt.Sprintf("The body of the request is larger than %v bytes; nothing was sent on.", int64(limit))}
}

// buffered returns the request with its body in memory, with nothing of the way in which
// it was sent: its length is known, and it can be read again.
func buffered(r *http.Request, body []byte) *http.Request {
	r = r.WithContext(r.Context())
	r.TransferEncoding = nil
	r.ContentLength = int64(len(body))
	if r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }; len(body) > 0 {
		r.Body, _ = r.GetBody()
	} else {
		r.Body, r.GetBody = http.NoBody, nil
	}
	return r
}
