package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// A received is a request as it reached the upstream.
type received struct {
	n      int // the how many-th, from 1
	method string
	target string // byte for byte
	host   string
	header http.Header
	body   []byte
	err    error // of reading the body
	ctx    context.Context
}

// A handler answers a request.
type handler func(w http.ResponseWriter, r *received)

// An upstream is the service behind the proxy: it records what reaches it, and answers
// as a test says.
type upstream struct {
	addr, url string
	server    *http.Server

	mu       sync.Mutex
	requests []*received
	answer   handler
}

// created answers 201 with the number of the execution.
func created(w http.ResponseWriter, r *received) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"execution":%d}`, r.n)
}

// newUpstream starts an upstream with this answer.
func newUpstream(t *testing.T, answer handler) *upstream {
	t.Helper()
	return upstreamOn(t, 0, answer)
}

// upstreamOn starts one on this port.
func upstreamOn(t *testing.T, port int, answer handler) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{addr: l.Addr().String(), answer: answer}
	u.url = "http://" + u.addr
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: patience, DisableGeneralOptionsHandler: true}
	go u.server.Serve(l)
	t.Cleanup(func() { u.server.Close() })
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := &received{method: r.Method, target: r.RequestURI, host: r.Host, header: r.Header.Clone(), ctx: r.Context()}
	u.mu.Lock()
	u.requests = append(u.requests, got)
	got.n = len(u.requests)
	answer := u.answer
	u.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	u.mu.Lock()
	got.body, got.err = body, err
	u.mu.Unlock()
	answer(w, got)
}

// answers changes the answer to later requests.
func (u *upstream) answers(h handler) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = h
}

// all returns what was received so far.
func (u *upstream) all() []received {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []received
	for _, r := range u.requests {
		all = append(all, *r)
	}
	return all
}

func (u *upstream) last(t *testing.T) received {
	t.Helper()
	all := u.all()
	if len(all) == 0 {
		t.Fatal("the upstream received nothing")
	}
	return all[len(all)-1]
}

// saw checks how many requests reached the upstream.
func (u *upstream) saw(t *testing.T, want int) {
	t.Helper()
	if got := len(u.all()); got != want {
		t.Fatalf("the upstream received %d requests, want %d", got, want)
	}
}

// executed checks how often a body reached the upstream.
func (u *upstream) executed(t *testing.T, body string, want int) {
	t.Helper()
	all := u.all()
	all = slices.DeleteFunc(all, func(r received) bool { return string(r.body) != body })
	if len(all) != want {
		t.Fatalf("the upstream executed this request %d times, want %d", len(all), want)
	}
}

// hijacked answers with these raw bytes and closes the connection.
func hijacked(raw string) handler {
	return func(w http.ResponseWriter, _ *received) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, raw)
	}
}

// dropped acts, as far as anybody knows, and closes the connection without an answer.
func dropped() handler { return hijacked("") }

// held lets each request stand before a gate, then answers.
func held(g *gate, then handler) handler {
	return func(w http.ResponseWriter, r *received) {
		g.pass()
		then(w, r)
	}
}

// text answers with this status and body, and no headers but what HTTP asks for.
func text(status int, body string) handler {
	return func(w http.ResponseWriter, _ *received) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
