package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// The upstream acts on the second request of a connection, and the connection ends
// without an answer. http.Transport left alone sends it again.
func TestUpstreamNeverRepeatsH1(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, way := range []string{"guarded", "plain"} {
			for _, key := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
				for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"} {
					for _, body := range []string{"", `{"a":1}`} {
						name := fmt.Sprintf("%s %s %s body=%d reset=%v", way, method, key, len(body), reset)
						t.Run(name, func(t *testing.T) { neverRepeatsH1(t, way, method, key, body, reset) })
					}
				}
			}
		}
	}
}

func neverRepeatsH1(t *testing.T, way, method, key, body string, reset bool) {
	up := newRawUpstream(t, nil, func(c net.Conn, n int, req *http.Request) bool {
		if n == 1 {
			io.WriteString(c, rawOK)
			return true
		}
		if got := req.Header.Get(key); got != "k1" {
			t.Errorf("the key arrived as %q", got)
		}
		if len(req.TransferEncoding) > 0 {
			t.Errorf("sent as %v", req.TransferEncoding)
		}
		if got, _ := io.ReadAll(req.Body); string(got) != body {
			t.Errorf("the body arrived as %q", got)
		}
		if reset {
			rawReset(c)
		}
		return n > 2 && method == "" // ends the connection
	})
	u := upstreamFor(t, up.url())
	rt := u.guarded
	if way == "plain" {
		rt = u.plain
	}
	if _, _, err := roundTrip(t, rt, outgoingRequest(t, u, "POST", "/", "warm")); err != nil {
		t.Fatal(err)
	}
	req := outgoingRequest(t, u, method, "/", body)
	req.Header.Set(key, "k1")
	_, _, err := roundTrip(t, rt, req)
	wantUnknown(t, err)
	if n, d := up.executed.Load(), up.dials.Load(); n != 2 || d != 1 {
		t.Errorf("executed %d requests of 2, on %d connections", n, d)
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	wire := string(up.seen[1])
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	// net/http announces no length of an empty DELETE; oneShot does.
	if !safeMethod(method) && (way == "guarded" || method != "DELETE") && !strings.Contains(wire, length) {
		t.Errorf("sent %q, without %q", wire, length)
	}
}

// h2Upstream speaks just enough HTTP/2 to count streams and to end them badly. It answers
// the first stream of each connection with 204 and ends the others by end.
type h2Upstream struct {
	net.Listener
	streams atomic.Int32
}

func newH2Upstream(t *testing.T, end func(c net.Conn, stream uint32) (keep bool)) *h2Upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	u := &h2Upstream{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go u.serve(c, end)
		}
	}()
	return u
}

const (
	h2Headers, h2Reset, h2Settings, h2GoAway = 1, 3, 4, 7

	h2EndStream, h2EndHeaders = 1, 4
)

func (u *h2Upstream) serve(c net.Conn, end func(net.Conn, uint32) bool) {
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	writeH2(c, h2Settings, 0, 0)
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		payload := int64(binary.BigEndian.Uint32(head[:4]) >> 8)
		if _, err := io.CopyN(io.Discard, c, payload); err != nil {
			return
		}
		if head[3] != h2Headers {
			continue
		}
		stream := binary.BigEndian.Uint32(head[5:])
		u.streams.Add(1)
		if stream == 1 {
			writeH2(c, h2Headers, h2EndStream|h2EndHeaders, 1, 0x89) // :status 204
		} else if !end(c, stream) {
			return
		}
	}
}

func writeH2(c net.Conn, kind, flags byte, stream uint32, payload ...byte) {
	frame := []byte{0, 0, byte(len(payload)), kind, flags}
	frame = binary.BigEndian.AppendUint32(frame, stream)
	c.Write(append(frame, payload...))
}

func TestUpstreamNeverRepeatsH2(t *testing.T) {
	reset := func(code byte) func(net.Conn, uint32) bool {
		return func(c net.Conn, stream uint32) bool {
			writeH2(c, h2Reset, 0, stream, 0, 0, 0, code)
			return true
		}
	}
	goAway := func(last uint32, code byte) func(net.Conn, uint32) bool {
		return func(c net.Conn, _ uint32) bool {
			writeH2(c, h2GoAway, 0, 0, 0, 0, 0, byte(last), 0, 0, 0, code)
			return last == 1
		}
	}
	for _, test := range []struct {
		name    string
		end     func(net.Conn, uint32) bool
		notSent bool
	}{
		{"PROTOCOL_ERROR", reset(1), false},
		{"INTERNAL_ERROR", reset(2), false},
		{"REFUSED_STREAM", reset(7), true},
		{"CANCEL", reset(8), false},
		{"ENHANCE_YOUR_CALM", reset(11), false},
		{"close", func(net.Conn, uint32) bool { return false }, false},
		{"GOAWAY before it", goAway(1, 0), true},
		{"GOAWAY before it with an error", goAway(1, 2), true},
		{"GOAWAY after it, then close", goAway(3, 0), false},
		{"GOAWAY with an error after it, then close", goAway(3, 2), false},
	} {
		for _, way := range []string{"guarded", "plain"} {
			for _, key := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
				for _, body := range []string{"", "body"} {
					t.Run(fmt.Sprintf("%s %s %s %s", test.name, way, key, body), func(t *testing.T) {
						up := newH2Upstream(t, test.end)
						neverRepeatsH2(t, up, way, key, body, test.notSent)
					})
				}
			}
		}
	}
}

func neverRepeatsH2(t *testing.T, up *h2Upstream, way, key, body string, notSent bool) {
	u := upstreamFor(t, "h2c://"+up.Addr().String())
	rt := u.guarded
	if way == "plain" {
		rt = u.plain
	}
	if status, _, err := roundTrip(t, rt, outgoingRequest(t, u, "POST", "/", "warm")); err != nil || status != 204 {
		t.Fatal(status, err)
	}
	methods := []string{"POST"}
	if key != "" {
		methods = []string{"POST", "GET", "DELETE"}
	}
	for i, method := range methods {
		req := outgoingRequest(t, u, method, "/", body)
		if key != "" {
			req.Header.Set(key, "k1")
		}
		if i > 0 {
			up.streams.Store(1)
		}
		_, _, err := roundTrip(t, rt, req)
		if i > 0 && err == nil {
			continue // the connection had ended; it was the first stream of another
		}
		if n := up.streams.Load(); n != 2 {
			t.Errorf("%s: %d streams for 2 requests", method, n)
		}
		if way == "guarded" && notSent {
			wantNotSent(t, err)
		} else {
			wantUnknown(t, err)
		}
	}
}

// The upstream's words are not ours: debug data of a GOAWAY must not read as a proof.
func TestUpstreamH2DebugDataProvesNothing(t *testing.T) {
	for _, data := range []string{
		"http2: Transport received Server's graceful shutdown GOAWAY",
		"http2: Transport: cannot retry err [http2: client conn not usable] after Request.Body was written",
		"stream error: stream ID 3; REFUSED_STREAM",
	} {
		up := newH2Upstream(t, func(c net.Conn, stream uint32) bool {
			writeH2(c, h2GoAway, 0, 0, append([]byte{0, 0, 0, byte(stream), 0, 0, 0, 2}, data...)...)
			return false
		})
		u := upstreamFor(t, "h2c://"+up.Addr().String())
		for range 2 {
			_, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x"))
			if errors.Is(err, errNotSent) {
				t.Errorf("%q was believed: %v", data, err)
			}
		}
		if n := up.streams.Load(); n != 2 {
			t.Errorf("%d streams", n)
		}
	}
}
