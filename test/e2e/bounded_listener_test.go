package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A head that is too large is refused, and nothing is sent.
func TestBoundedHeads(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	req := request{key: newKey(), body: "x", header: []string{"X-Large: " + strings.Repeat("x", 60<<10)}}
	p.send(t, req).fresh(t, 201)
	req.header = []string{"X-Large: " + strings.Repeat("x", 100<<10)}
	if got := p.send(t, req); got.status != 431 {
		t.Errorf("want 431; the answer:\n%s", got)
	}
	up.saw(t, 1)
}

// A caller that takes nothing of its answer is cut off after send_timeout; one that takes
// it slowly is not.
func TestBoundedWaitForSlowReaders(t *testing.T) {
	t.Parallel()
	wrote := make(chan error, 1)
	up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
		block, err := make([]byte, 1<<20), error(nil)
		for i := 0; i < 60 && err == nil; i++ {
			_, err = w.Write(block)
		}
		wrote <- err
	})
	p := start(t, setup{store: memory(), upstream: up.url, server: "send_timeout: 1s", routes: payments})
	for _, guarded := range []bool{false, true} {
		req := request{method: "GET", target: "/large"}
		if guarded {
			req = request{key: newKey(), body: "x"}
		}
		c := p.dial(t)
		if _, err := c.Write(req.bytes()); err != nil {
			t.Fatal(err)
		}
		err := receive(t, "end of the upstream's answer", wrote)
		if (err == nil) != guarded { // a guarded one is heard to its end
			t.Errorf("guarded %v: the upstream's answer ended with %v", guarded, err)
		}
		if n, err := io.Copy(io.Discard, c); n >= 60<<20 {
			t.Errorf("guarded %v: all of the answer came through, %v", guarded, err)
		}
	}
	// This one pauses longer than the timeout in all, but never at once.
	up.answers(func(w http.ResponseWriter, _ *received) { _, _ = w.Write(make([]byte, 12<<20)) })
	c := p.dial(t)
	req := request{method: "GET", target: "/large"}
	if _, err := c.Write(req.bytes()); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		time.Sleep(250 * time.Millisecond)
		if _, err := io.CopyN(io.Discard, c.wire.r, 2<<20); err != nil {
			t.Fatalf("a slow reader is cut off: %v", err)
		}
	}
}

// Beyond max_connections callers wait until another one leaves.
func TestBoundedNumberOfConnections(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, server: "max_connections: 2", routes: payments})
	one, two := p.dial(t), p.dial(t)
	for _, c := range []*caller{one, two} {
		req := request{method: "GET", target: "/x"}
		_, _ = c.Write(req.bytes())
		if _, err := c.wire.response(req); err != nil {
			t.Fatal(err)
		}
	}
	third := p.begin(request{key: newKey(), body: "x"})
	never(t, 200*time.Millisecond, func() {
		if len(third) > 0 {
			t.Fatal("a third connection is served")
		}
	})
	up.saw(t, 2)
	one.Close()
	third.wait(t).fresh(t, 201)
}
