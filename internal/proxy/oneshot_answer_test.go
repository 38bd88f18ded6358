package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestOneShotAnswers(t *testing.T) {
	const more = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" // to the next request, whatever that is
	for _, test := range []struct {
		name, method, answer string
		end                  string // close, reset or nothing
		status               int
		body                 string
		failed               bool // in the head: RoundTrip fails; else in the body
		cut                  bool
		kept                 bool // the connection
	}{
		{name: "length", answer: rawOK, status: 201, body: "ok", kept: true},
		{name: "chunked", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", status: 200, body: "ok", kept: true},
		{name: "empty", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", status: 200, kept: true},
		{name: "204", answer: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, kept: true},
		{name: "304", answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status: 304, kept: true},
		{name: "HEAD", method: "HEAD", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", status: 200, kept: true},
		{name: "no reason, odd status", answer: "HTTP/1.1 799\r\nContent-Length: 0\r\n\r\n", status: 799, kept: true},
		{name: "Connection: close", answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", status: 200, body: "ok"},
		{name: "until the end", answer: "HTTP/1.1 200 OK\r\n\r\nok", end: "close", status: 200, body: "ok"},
		{name: "HTTP/1.0", answer: "HTTP/1.0 200 OK\r\n\r\nok", end: "close", status: 200, body: "ok"},
		{name: "HTTP/1.0 with a length", answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", status: 200, body: "ok"},
		{name: "HTTP/1.0 keep-alive", answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", status: 200, body: "ok", kept: true},
		{name: "too long", answer: rawOK + "k", status: 201, body: "ok"},
		{name: "two answers", answer: rawOK + more, status: 201, body: "ok"},
		{name: "204 with a body", answer: "HTTP/1.1 204 No Content\r\n\r\n" + more, status: 204},

		{name: "length cut", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", end: "close", status: 200, body: "ok", cut: true},
		{name: "length reset", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", end: "reset", status: 200, body: "ok", cut: true},
		{name: "until a reset", answer: "HTTP/1.1 200 OK\r\n\r\nok", end: "reset", status: 200, body: "ok", cut: true},
		{name: "chunk cut", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", end: "close", status: 200, body: "ok", cut: true},
		{name: "last chunk missing", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", end: "close", status: 200, body: "ok", cut: true},
		{name: "trailer cut", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b", end: "close", status: 200, body: "ok", cut: true},
		{name: "bad chunk", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", status: 200, body: "ok", cut: true},

		{name: "nothing", end: "close", failed: true},
		{name: "reset", end: "reset", failed: true},
		{name: "garbage", answer: "SSH-2.0-OpenSSH_9.2\r\n\r\n", failed: true},
		{name: "status line cut", answer: "HTTP/1.1 20", end: "close", failed: true},
		{name: "head cut", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", end: "close", failed: true},
		{name: "no status", answer: "HTTP/1.1 xyz\r\n\r\n", failed: true},
		{name: "status 42", answer: "HTTP/1.1 042 Odd\r\n\r\n", failed: true},
		{name: "HTTP/2", answer: "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", failed: true},
		{name: "two lengths", answer: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", failed: true},
		{name: "switched", answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", failed: true},
		{name: "head too large", answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("a", 1000)+"\r\n", 1100), failed: true},
		{name: "line too long", answer: "HTTP/1.1 200 OK" + strings.Repeat("K", 2<<20), failed: true},
		{name: "1xx for ever", answer: strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 101), failed: true},
		{name: "only 1xx", answer: "HTTP/1.1 103 Early Hints\r\n\r\n", end: "close", failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newRawUpstream(t, nil, func(c net.Conn, n int, _ *http.Request) bool {
				if n > 1 {
					io.WriteString(c, more)
					return true
				}
				io.WriteString(c, test.answer)
				if test.end == "reset" {
					// What was sent is read before the reset arrives.
					time.Sleep(20 * time.Millisecond)
					rawReset(c)
				}
				return test.end == ""
			})
			u := upstreamFor(t, up.url())
			method := test.method
			if method == "" {
				method = "POST"
			}
			res, err := u.guarded.RoundTrip(outgoingRequest(t, u, method, "/", "x"))
			if test.failed {
				wantUnknown(t, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if _, again := res.Body.Read(make([]byte, 1)); test.cut && (err == nil || errors.Is(again, io.EOF)) || !test.cut && err != nil {
				t.Errorf("cut: %v, but read %v, then %v", test.cut, err, again)
			}
			if res.StatusCode != test.status || string(body) != test.body || res.Request.Method != method {
				t.Errorf("got %d %q", res.StatusCode, body)
			}
			res.Body.Close()
			if status, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x")); err != nil || status != 200 {
				t.Fatal("the next request:", status, err)
			}
			if kept := up.dials.Load() == 1; kept != test.kept {
				t.Errorf("connection kept: %v, want %v", kept, test.kept)
			}
		})
	}
}

func TestOneShotInformationalAndTrailers(t *testing.T) {
	up := newRawUpstream(t, nil, rawAnswer("HTTP/1.1 100 Continue\r\n\r\n"+
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n"+
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\nX-Unannounced: 8\r\n\r\n"))
	u := upstreamFor(t, up.url())
	for _, traced := range []bool{true, false} {
		var hints []string
		ctx := t.Context()
		if traced {
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = append(hints, fmt.Sprint(code, h["Link"]))
				return nil
			}})
		}
		res, err := u.guarded.RoundTrip(outgoingRequest(t, u, "POST", "/", "x").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if _, announced := res.Trailer["X-Sum"]; !announced {
			t.Error("the trailer was not announced")
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "ok" {
			t.Errorf("got %q, %v", body, err)
		}
		if want := (http.Header{"X-Sum": {"7"}, "X-Unannounced": {"8"}}); !reflect.DeepEqual(res.Trailer, want) {
			t.Errorf("trailer %v", res.Trailer)
		}
		if want := []string{"100 []", "103 [</a> </b>]"}; traced && !reflect.DeepEqual(hints, want) {
			t.Errorf("1xx: %q", hints)
		}
	}
	refuse := errors.New("no hints")
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { return refuse }})
	_, err := u.guarded.RoundTrip(outgoingRequest(t, u, "POST", "/", "x").WithContext(ctx))
	wantUnknown(t, err)
	if !errors.Is(err, refuse) {
		t.Error(err)
	}
}

func TestOneShotDeadlines(t *testing.T) {
	why := errors.New("the reason")
	for _, test := range []struct {
		name, answer string
		want         error
	}{
		{"no answer", "", context.DeadlineExceeded},
		{"half a head", "HTTP/1.1 200 OK\r\n", context.DeadlineExceeded},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", context.DeadlineExceeded},
		{"no answer, given up", "", why},
		{"half a body, given up", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", why},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newRawUpstream(t, nil, rawAnswer(test.answer))
			u := upstreamFor(t, up.url())
			var ctx context.Context
			if errors.Is(test.want, why) {
				c, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(30*time.Millisecond, func() { cancel(why) })
				ctx = c
			} else {
				c, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				ctx = c
			}
			begin := time.Now()
			_, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x").WithContext(ctx))
			wantUnknown(t, err)
			if !errors.Is(err, test.want) || time.Since(begin) > 3*time.Second {
				t.Errorf("got %v after %v", err, time.Since(begin))
			}
			if len(u.guarded.(*oneShot).pool.conns) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

// The end of a request's context after its answer must not reach the next request on
// the connection.
func TestOneShotContextEndsWithAnswer(t *testing.T) {
	up := newRawUpstream(t, nil, rawAnswer(rawOK))
	u := upstreamFor(t, up.url())
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		status, body, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x").WithContext(ctx))
		if err != nil || status != 201 || body != "ok" {
			t.Fatal(status, body, err)
		}
		cancel()
	}
	if up.dials.Load() != 1 {
		t.Errorf("%d connections", up.dials.Load())
	}
	// An abandoned body takes its connection with it.
	res, err := u.guarded.RoundTrip(outgoingRequest(t, u, "POST", "/", "x"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error(err)
	}
	if len(u.guarded.(*oneShot).pool.conns) != 0 {
		t.Error("the connection was kept")
	}
}
