package e2e

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// A process that is told to end.

// refusesConnections waits until nobody listens any more.
func (p *proxy) refusesConnections(t *testing.T) {
	t.Helper()
	eventually(t, "refusing connections", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// After SIGTERM the process is not ready, and serves on for the drain delay; then what runs
// ends and is recorded, and it exits with 0.
func TestFaultStopLetsRequestsEnd(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newWireUpstream(t, answers201)
		conf := setup{store: shared, upstream: up.url, server: "drain_delay: 2s, shutdown_grace: 20s", routes: payments}
		p, other := start(t, conf), start(t, conf)
		before, during := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
		d1, g1 := running(t, p, up, before)
		p.terminate()
		eventually(t, "not ready", func() bool { return p.probe("/readyz") == 503 })
		if alive := p.probe("/healthz"); alive != 200 {
			t.Errorf("healthz %d while it drains", alive)
		}
		p.twice(t, request{key: newKey(), body: "z"}, 201) // it still serves
		d2, g2 := running(t, p, up, during)
		p.refusesConnections(t)
		other.send(t, before).refused(t, 409, "in_progress")
		other.send(t, during).refused(t, 409, "in_progress")
		g1.open()
		g2.open()
		first, second := d1.wait(t).fresh(t, 201), d2.wait(t).fresh(t, 201)
		p.ended() // with 0
		other.send(t, before).replays(t, first)
		other.send(t, during).replays(t, second)
		up.ran(t, before.key, 1)
		up.ran(t, during.key, 1)
	})
}

// What is not recorded yet when the process is told to end is recorded before it does.
func TestFaultStopWaitsForTheRecord(t *testing.T) {
	eachShared(t, func(t *testing.T, s storage) {
		up := newWireUpstream(t, answers201)
		k, p, direct := throughShim(t, s, time.Second, setup{upstream: up.url, server: "shutdown_grace: 20s", routes: payments})
		p.twice(t, request{key: newKey()}, 201)
		req := request{key: newKey(), body: "x"}
		d, g := running(t, p, up, req)
		k.hold()
		g.open()
		first := d.wait(t).fresh(t, 201)
		p.terminate()
		p.refusesConnections(t)
		direct.send(t, req).refused(t, 409, "in_progress")
		k.cut()
		k.resume()
		p.ended()
		direct.send(t, req).replays(t, first)
		up.ran(t, req.key, 1)
	})
}

// What can't end within the grace stays a claim, and is unknown to others when its lease
// is over. The process exits with 0.
func TestFaultStopExceedsItsGrace(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newWireUpstream(t, answers201)
		conf := setup{store: shared, upstream: up.url, server: "shutdown_grace: 300ms", routes: `  - {name: payments, path: /pay, lease: 2s}`}
		p, other := start(t, conf), start(t, conf)
		req := request{key: newKey(), body: "x"}
		_, g := running(t, p, up, req)
		p.terminate()
		p.ended() // with 0
		g.open()
		everywhere(t, req, other)[0].refused(t, 409, "outcome_unknown")
		never(t, brief, func() { other.send(t, req).refused(t, 409, "outcome_unknown") })
		up.ran(t, req.key, 1)
	})
}

// A second signal ends the process at once, with 1.
func TestFaultASecondSignalEndsAtOnce(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newWireUpstream(t, answers201)
		conf := setup{store: shared, upstream: up.url, server: "shutdown_grace: 1h", routes: `  - {name: payments, path: /pay, lease: 2s}`}
		p, other := start(t, conf), start(t, conf)
		for i, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			if i > 0 {
				p = start(t, conf)
			}
			req := request{key: newKey(), body: fmt.Sprint(i)}
			_, g := running(t, p, up, req)
			p.terminate()
			p.refusesConnections(t)
			_ = p.cmd.Process.Signal(second)
			receive(t, "end of the proxy", p.exited)
			p.expected = true
			if code := p.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("the proxy ended with %v, want exit 1", p.cmd.ProcessState)
			}
			g.open()
			everywhere(t, req, other)[0].refused(t, 409, "outcome_unknown")
			up.ran(t, req.key, 1)
		}
	})
}
