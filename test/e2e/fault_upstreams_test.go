package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An execution is a request that an upstream has received whole: as far as anybody else
// can know, it has acted on it.
type execution struct {
	key  string // whichever header it came in
	body string
	head string // byte for byte, over HTTP/1.1
	nth  int    // on its connection, from 1
	n    int    // of this upstream, from 1
}

// answer is an answer that tells executions apart.
func (x execution) answer() string {
	body := fmt.Sprintf(`{"execution":%d}`, x.n)
	return fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// executions counts.
type executions struct {
	mu  sync.Mutex
	all []execution
}

func (e *executions) add(x execution) execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.n = len(e.all) + 1
	e.all = append(e.all, x)
	return x
}

// of are the executions with a key.
func (e *executions) of(key string) []execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []execution
	for _, x := range e.all {
		if x.key == key {
			found = append(found, x)
		}
	}
	return found
}

// ran checks how often a key was executed.
func (e *executions) ran(t *testing.T, key string, want int) {
	t.Helper()
	if got := len(e.of(key)); got != want {
		t.Fatalf("the upstream executed this key %d times, want %d", got, want)
	}
}

// An act is what an upstream does once it has acted. It reports whether the connection
// goes on.
type act func(c net.Conn, x execution) bool

// answers201 is how things go well.
func answers201(c net.Conn, x execution) bool {
	_, err := io.WriteString(c, x.answer())
	return err == nil
}

// A wireUpstream is a service on plain TCP.
type wireUpstream struct {
	executions
	addr, url string

	mu sync.Mutex
	do act
}

func newWireUpstream(t *testing.T, do act) *wireUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &wireUpstream{addr: l.Addr().String(), url: "http://" + l.Addr().String(), do: do}
	serve(t, l, u.serve)
	return u
}

// serve serves each connection of a listener until the test ends.
func serve(t *testing.T, l net.Listener, each func(net.Conn)) {
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			go func() {
				defer c.Close()
				each(c)
			}()
		}
	}()
}

// does changes what the upstream does to later requests.
func (u *wireUpstream) does(do act) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.do = do
}

func (u *wireUpstream) serve(c net.Conn) {
	var seen bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &seen))
	for nth := 1; ; nth++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(seen.String(), "\r\n\r\n")
		seen.Reset()
		key := req.Header.Get("Idempotency-Key") + req.Header.Get("X-Idempotency-Key")
		x := u.add(execution{key: key, body: string(body), head: head, nth: nth})
		u.mu.Lock()
		do := u.do
		u.mu.Unlock()
		if !do(c, x) {
			return
		}
	}
}

// raw answers with these bytes and ends the connection, by FIN.
func raw(answer string) act {
	return func(c net.Conn, _ execution) bool {
		_, _ = io.WriteString(c, answer)
		return false
	}
}

// rawReset answers with these bytes, if any, and resets the connection.
func rawReset(answer string) act {
	return func(c net.Conn, _ execution) bool {
		_, _ = io.WriteString(c, answer)
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	}
}

// stalled answers with these bytes and then nothing, until the gate opens.
func stalled(g *gate, answer string) act {
	return func(c net.Conn, _ execution) bool {
		_, _ = io.WriteString(c, answer)
		g.pass()
		return false
	}
}

// gated lets each execution stand before a gate.
func gated(g *gate, then act) act {
	return func(c net.Conn, x execution) bool {
		g.pass()
		return then(c, x)
	}
}

// A frameUpstream is a service that speaks HTTP/2 without TLS, frame by frame.
type frameUpstream struct {
	executions
	url string

	mu sync.Mutex
	do frameAct
}

// A frameAct is what a frameUpstream does to a stream on which it has received a whole
// request. It reports whether the connection goes on.
type frameAct func(c *frameConn, stream uint32, x execution) bool

// A frameConn writes frames.
type frameConn struct {
	*http2.Framer
	net.Conn
	hpack *hpack.Encoder
	block bytes.Buffer
}

func newFrameConn(c net.Conn) *frameConn {
	f := &frameConn{Framer: http2.NewFramer(c, c), Conn: c}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.hpack = hpack.NewEncoder(&f.block)
	return f
}

// headers writes a HEADERS frame of names and values.
func (f *frameConn) headers(stream uint32, end bool, fields ...string) error {
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndStream: end, EndHeaders: true})
}

func framed201(c *frameConn, stream uint32, x execution) bool {
	return c.headers(stream, false, ":status", "201") == nil &&
		c.WriteData(stream, true, fmt.Appendf(nil, `{"execution":%d}`, x.n)) == nil
}

func newFrameUpstream(t *testing.T, do frameAct) *frameUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &frameUpstream{url: "h2c://" + l.Addr().String(), do: do}
	serve(t, l, u.serve)
	return u
}

func (u *frameUpstream) does(do frameAct) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.do = do
}

func (u *frameUpstream) serve(conn net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	c := newFrameConn(conn)
	if c.WriteSettings() != nil {
		return
	}
	streams := map[uint32]*execution{}
	nth := 0
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		ended := false
		id := frame.Header().StreamID
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			nth++
			x := &execution{nth: nth}
			for _, h := range f.RegularFields() {
				if h.Name == "idempotency-key" || h.Name == "x-idempotency-key" {
					x.key += h.Value
				}
			}
			streams[id], ended = x, f.StreamEnded()
		case *http2.DataFrame:
			if x := streams[id]; x != nil {
				x.body += string(f.Data())
				ended = f.StreamEnded()
			}
		}
		if x := streams[id]; ended && x != nil {
			delete(streams, id)
			done := u.add(*x)
			u.mu.Lock()
			do := u.do
			u.mu.Unlock()
			if !do(c, id, done) {
				return
			}
		}
	}
}

// rst ends a stream with an error, and the connection lives on.
func rst(code http2.ErrCode) frameAct {
	return func(c *frameConn, stream uint32, _ execution) bool { return c.WriteRSTStream(stream, code) == nil }
}

// goAway says which stream was the last one, relative to the one at hand, and ends the
// connection.
func goAway(before uint32, code http2.ErrCode) frameAct {
	return func(c *frameConn, stream uint32, _ execution) bool {
		_ = c.WriteGoAway(stream-before, code, nil)
		return false
	}
}

// A frameCaller calls a proxy over HTTP/2 without TLS, frame by frame.
type frameCaller struct {
	*frameConn
	authority string
}

func newFrameCaller(t *testing.T, p *proxy) *frameCaller {
	t.Helper()
	conn := p.dial(t)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &frameCaller{newFrameConn(conn), p.addr}
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// post begins a request; unless it ends, more of its body may follow.
func (c *frameCaller) post(t *testing.T, stream uint32, target, key, body string, end bool) {
	t.Helper()
	err := errors.Join(
		c.headers(stream, false, ":method", "POST", ":scheme", "http", ":authority", c.authority, ":path", target, "idempotency-key", key),
		c.WriteData(stream, end, []byte(body)))
	if err != nil {
		t.Fatal(err)
	}
}
