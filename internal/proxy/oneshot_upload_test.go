package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func largeRequest(t *testing.T, u *upstream, body []byte) *http.Request {
	req := outgoingRequest(t, u, "POST", "/", "")
	req.ContentLength = int64(len(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	return req
}

func largeBody(n int) []byte {
	return bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
}

func TestOneShotUploads(t *testing.T) {
	up := newRawUpstream(t, nil, func(c net.Conn, _ int, req *http.Request) bool {
		body, _ := io.ReadAll(req.Body)
		answer := fmt.Sprintf("%x %d %s", sha256.Sum256(body), req.ContentLength, req.Trailer.Get("X-Sum"))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		return true
	})
	u := upstreamFor(t, up.url())
	for _, size := range []int{1, firstWrite - 1, firstWrite, firstWrite + 1, 1 << 20} {
		body := largeBody(size)
		for _, form := range []string{"length", "no WriterTo", "unknown", "trailer"} {
			req := largeRequest(t, u, body)
			length, sum := size, ""
			switch form {
			case "no WriterTo":
				req.Body = io.NopCloser(struct{ io.Reader }{bytes.NewReader(body)})
			case "unknown":
				if req.ContentLength = -1; size >= firstWrite {
					length = -1
				}
			case "trailer":
				req.Trailer, length, sum = http.Header{"X-Sum": {"s"}}, -1, "s"
			}
			_, got, err := roundTrip(t, u.guarded, req)
			if want := fmt.Sprintf("%x %d %s", sha256.Sum256(body), length, sum); err != nil || got != want {
				t.Errorf("%d bytes, %s: got %q, %v", size, form, got, err)
			}
		}
	}
	if n := up.dials.Load(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}

// An upstream that does not want a large body says so and stops reading.
func TestOneShotEarlyAnswer(t *testing.T) {
	const refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"
	leave := make(chan struct{}, 64)
	large := largeBody(16 << 20) // more than the kernel takes
	for name, serve := range map[string]rawServe{
		"stays": func(c net.Conn, _ int, _ *http.Request) bool {
			io.WriteString(c, refusal)
			<-leave
			return false
		},
		"closes, so that a reset follows": func(c net.Conn, _ int, _ *http.Request) bool {
			io.WriteString(c, refusal)
			return false
		},
		"closes its side": func(c net.Conn, _ int, _ *http.Request) bool {
			io.WriteString(c, refusal)
			c.(*net.TCPConn).CloseWrite()
			<-leave
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := newRawUpstream(t, nil, serve)
			defer func() {
				for range 5 {
					leave <- struct{}{}
				}
			}()
			u := upstreamFor(t, up.url())
			for range 5 {
				req := largeRequest(t, u, large)
				req.Header.Set("X-Test-Leave-Body", "1")
				closed := &closeNoted{Reader: req.Body}
				req.Body = closed
				status, body, err := roundTrip(t, u.guarded, req)
				if status != 413 || body != "big" || err != nil {
					t.Errorf("got %d %q, %v", status, body, err)
				}
				if !closed.closed.Load() {
					t.Error("the request's body is still in use")
				}
			}
			if up.executed.Load() != 5 {
				t.Errorf("executed %d", up.executed.Load())
			}
		})
	}
}

func TestOneShotUploadFails(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		body   io.Reader
		length int64
	}{
		"short": {bytes.NewReader(largeBody(100 << 10)), 200 << 10},
		"long":  {bytes.NewReader(largeBody(200 << 10)), 100 << 10},
		"fails": {io.MultiReader(bytes.NewReader(largeBody(100<<10)), failingReader{broken}), 200 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			up := newRawUpstream(t, nil, rawAnswer(rawOK))
			u := upstreamFor(t, up.url())
			req := largeRequest(t, u, nil)
			req.ContentLength, req.Body = test.length, io.NopCloser(test.body)
			begin := time.Now()
			_, _, err := roundTrip(t, u.guarded, req)
			wantUnknown(t, err)
			if time.Since(begin) > 3*time.Second {
				t.Error("waited for an answer that can't come")
			}
			if up.executed.Load() != 0 {
				t.Error("executed half a request")
			}
		})
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// Many callers, an upstream that closes connections whenever it likes: everybody gets the
// own answer, nothing is executed twice, and what was not sent was not executed.
func TestOneShotConcurrently(t *testing.T) {
	var executed sync.Map
	up := newRawUpstream(t, nil, func(c net.Conn, n int, req *http.Request) bool {
		id := req.Header.Get("X-Id")
		count, _ := executed.LoadOrStore(id, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		if n%97 == 0 {
			return false
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
		if n%89 == 0 {
			rawReset(c)
		}
		return n%11 != 0 && n%89 != 0
	})
	u := upstreamFor(t, up.url())
	var wg sync.WaitGroup
	var answered, unknown atomic.Int32
	for caller := range 32 {
		wg.Go(func() {
			for i := range 60 {
				id := fmt.Sprintf("%d-%d", caller, i)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				req := outgoingRequest(t, u, "POST", "/", "").WithContext(ctx)
				if i%10 == 0 {
					req = largeRequest(t, u, largeBody(100<<10)).WithContext(ctx)
				}
				req.Header.Set("X-Id", id)
				_, body, err := roundTrip(t, u.guarded, req)
				cancel()
				count, ran := executed.Load(id)
				switch {
				case ran && count.(*atomic.Int32).Load() != 1:
					t.Errorf("executed %d times", count.(*atomic.Int32).Load())
				case err == nil && body != id:
					t.Errorf("%q got the answer of %q", id, body)
				case err == nil:
					answered.Add(1)
				case errors.Is(err, errNotSent) && ran:
					t.Errorf("%q was executed: %v", id, err)
				case !errors.Is(err, errNotSent):
					unknown.Add(1)
				}
			}
		})
	}
	wg.Wait()
	u.close()
	t.Logf("%d answered, %d unknown, %d connections", answered.Load(), unknown.Load(), up.dials.Load())
	// The upstream's goroutines, one a connection, end when ours are closed.
	rawEventually(t, "all goroutines and connections have ended", func() bool {
		return rawRunning("(*upload).run", "(*oneShot).RoundTrip", "(*oneShotConn).interrupt", "(*rawUpstream).serveConn") == 0
	})
}
