package e2e

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A request is what a caller sends, byte for byte.
type request struct {
	method string   // POST if empty
	target string   // "/pay" if empty
	key    string   // the value of Idempotency-Key; none if empty
	header []string // whole lines
	body   string
	proto  string // HTTP/1.1 if empty

	unframed bool   // don't add Content-Length; header says how the body is framed, if it is
	raw      string // all of it; the fields above count for nothing then
	cut      bool   // end the sending side of the connection after the last byte
}

func (r request) bytes() []byte {
	if r.raw != "" {
		return []byte(r.raw)
	}
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s\r\nHost: service.example\r\n", or(r.method, "POST"), or(r.target, "/pay"), or(r.proto, "HTTP/1.1"))
	if r.key != "" {
		fmt.Fprintf(&b, "Idempotency-Key: %s\r\n", r.key)
	}
	for _, line := range r.header {
		b.WriteString(line + "\r\n")
	}
	if !r.unframed && r.method != "GET" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	return []byte(b.String() + "\r\n" + r.body)
}

// secrets are the parts of a request that nobody may log or repeat. Short ones would be
// found anywhere.
func (r request) secrets() []string {
	parts := []string{r.key, strings.Trim(r.key, `"`), r.body}
	for _, line := range r.header {
		_, value, _ := strings.Cut(line, ":")
		_, credential, _ := strings.Cut(strings.TrimSpace(value), " ")
		parts = append(parts, strings.TrimSpace(value), credential)
		parts = append(parts, pairs(value)...) // cookies, among others
	}
	if _, query, ok := strings.Cut(r.target, "?"); ok {
		for _, parameter := range strings.FieldsFunc(query, func(c rune) bool { return c == '&' || c == ';' }) {
			_, value, _ := strings.Cut(parameter, "=")
			parts = append(parts, value)
			if plain, err := url.QueryUnescape(value); err == nil {
				parts = append(parts, plain)
			}
		}
	}
	return notShort(parts)
}

// secrets are the parts of an answer that nobody may log: its body and its cookies.
func (r *response) secrets() []string {
	parts := []string{string(r.body)}
	for _, cookie := range r.values("Set-Cookie") {
		parts = append(parts, pairs(cookie)...)
	}
	return notShort(parts)
}

// pairs are the values of a header's name=value pairs.
func pairs(header string) []string {
	var values []string
	for pair := range strings.SplitSeq(header, ";") {
		if _, value, ok := strings.Cut(pair, "="); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

func notShort(parts []string) []string {
	var secrets []string
	for _, s := range parts {
		if len(s) >= 12 && len(s) <= 4096 {
			secrets = append(secrets, s)
		}
	}
	return secrets
}

// A caller is a connection to a proxy.
type caller struct {
	net.Conn
	wire *wire
}

func dial(addr string) (*caller, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &caller{conn, newWire(conn)}, nil
}

// exchange sends a request on a connection of its own, and reads the answer.
func exchange(addr string, r request) (*response, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// An answer can come before all is sent, and end the sending.
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(r.bytes())
		if err == nil && r.cut {
			err = c.Conn.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	res, err := c.wire.response(r)
	if err != nil {
		select {
		case werr := <-sent:
			if werr != nil {
				err = fmt.Errorf("%w; sending: %w", err, werr)
			}
		default:
		}
		return nil, err
	}
	return res, nil
}

// dial opens a connection to the proxy.
func (p *proxy) dial(t *testing.T) *caller {
	t.Helper()
	c, err := dial(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// send sends a request and reads the answer.
func (p *proxy) send(t *testing.T, r request) *response {
	t.Helper()
	return p.begin(r).wait(t)
}

// A pending is a request that is under way.
type pending chan result

type result struct {
	res *response
	err error
}

// begin sends a request and doesn't wait.
func (p *proxy) begin(r request) pending {
	p.secret(r.secrets()...)
	done := make(pending, 1)
	go func() {
		res, err := exchange(p.addr, r)
		if err == nil {
			p.secret(res.secrets()...)
		}
		done <- result{res, err}
	}()
	return done
}

// wait waits for the answer.
func (d pending) wait(t *testing.T) *response {
	t.Helper()
	got := receive(t, "answer", d)
	if got.err != nil {
		t.Fatalf("the caller got no answer: %v", got.err)
	}
	return got.res
}

// twice sends a request that nobody sent yet: it is executed, and the second time its
// answer is replayed. It returns the first answer.
func (p *proxy) twice(t *testing.T, r request, status int) *response {
	t.Helper()
	first := p.send(t, r).fresh(t, status)
	p.send(t, r).replays(t, first)
	return first
}
