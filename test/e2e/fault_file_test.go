package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The store in a file: one process at a time, and whatever it said is on the disk.

// The process is killed between claim and completion, and starts again on the same file.
// What was recorded is there; what ran is in progress until its lease is over, and then
// unknown.
func TestFaultTheProcessWithTheFileIsKilled(t *testing.T) {
	t.Parallel()
	up := newWireUpstream(t, answers201)
	conf := setup{store: file(), upstream: up.url, routes: bothOutcomes(3*time.Second) + `
  - {name: slow, path: /slow, lease: 1m}`}
	p := start(t, conf)
	var done []request
	var recorded []*response
	for i := range 20 {
		done = append(done, request{target: "/hold", key: newKey(), body: fmt.Sprint(i)})
		recorded = append(recorded, p.twice(t, done[i], 201))
	}
	hold, release := request{target: "/hold", key: newKey(), body: "x"}, request{target: "/release", key: newKey(), body: "x"}
	slow := request{target: "/slow", key: newKey(), body: "x"}
	for _, req := range []request{hold, release, slow} {
		running(t, p, up, req)
	}
	p.kill()
	p.again()
	for i, req := range done {
		p.send(t, req).replays(t, recorded[i])
		up.ran(t, req.key, 1)
	}
	p.send(t, slow).refused(t, 409, "in_progress")
	everywhere(t, hold, p)[0].refused(t, 409, "outcome_unknown")
	first := everywhere(t, release, p)[0].fresh(t, 201)
	p.send(t, release).replays(t, first)
	up.ran(t, hold.key, 1)
	up.ran(t, release.key, 2)
	up.ran(t, slow.key, 1)
}

// Killed again and again under load: nobody is executed twice, and who had an answer gets
// it again.
func TestFaultTheProcessWithTheFileIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: file(), upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 10m}`})
	var reqs []request
	firsts := map[string]*response{}
	for round := range 4 {
		var all []pending
		from := len(reqs)
		for i := range 60 {
			reqs = append(reqs, request{key: newKey(), body: fmt.Sprint(round, i)})
			all = append(all, p.begin(reqs[from+i]))
		}
		// The kill comes while some are done and others are not.
		first := all[round*10]
		got := receive(t, "answer", first)
		first <- got
		p.kill()
		for i, d := range all {
			if got := receive(t, "end", d); got.err == nil {
				firsts[reqs[from+i].key] = got.res.fresh(t, 201)
			}
		}
		p.again()
	}
	if len(firsts) == 0 || len(firsts) == len(reqs) {
		t.Errorf("%d of %d were answered: this shows little", len(firsts), len(reqs))
	}
	for _, req := range reqs {
		res := p.send(t, req)
		switch first := firsts[req.key]; {
		case first != nil:
			res.replays(t, first)
			up.ran(t, req.key, 1)
		case res.status == 409:
			res.refused(t, 409, "in_progress") // claimed, and nobody knows more
		default: // recorded and not delivered, or never claimed
			if res.status != 201 {
				t.Errorf("the retry got\n%s", res)
			}
			up.ran(t, req.key, 1)
		}
	}
}

// A second process on the same file ends at once and says which file it is; the first one
// does not notice.
func TestFaultASecondProcessOnTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "one.db")
	up := newUpstream(t, created)
	conf := setup{store: fileAt(path), upstream: up.url, routes: payments}
	p := start(t, conf)
	second := filepath.Join(t.TempDir(), "idemproxy.yaml")
	write(t, second, conf.yaml(local(freePort()), local(freePort())))
	exit, _, stderr := once(t, "serve", "--config", second)
	if exit != 1 || !strings.Contains(stderr, path) || !strings.Contains(stderr, "in use") || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
		t.Errorf("exit %d, want 1 and one line that names the file:\n%s", exit, stderr)
	}
	p.twice(t, request{key: newKey(), body: "x"}, 201)
}

// answered is a request and its first answer.
type answered struct {
	request
	first *response
}

// There is no room on the disk any more: new claims are refused, nothing else is, and
// nothing is forgotten. When there is room again, it goes on by itself.
func TestFaultTheDiskIsFull(t *testing.T) {
	t.Parallel()
	d := newSmallDisk(t)
	large := strings.Repeat("0123456789abcdef", 4<<10)
	up := newWireUpstream(t, raw(fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s", len(large), large)))
	p := start(t, setup{store: fileAt(filepath.Join(d.dir, "idemproxy.db")), upstream: up.url, routes: payments})
	var done []answered
	for range 5 {
		req := request{key: newKey(), body: "before"}
		done = append(done, answered{req, p.twice(t, req, 201)})
	}
	run := request{key: newKey(), body: "runs"}
	g := newGate(t)
	up.does(gated(g, answers201))
	running := p.begin(run)
	g.arrived(t)
	up.does(raw(fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s", len(large), large)))

	d.fill(p)
	var refused request
	for i := 0; ; i++ {
		req := request{key: newKey(), body: "after"}
		res := p.send(t, req)
		if res.status == 503 {
			res.refused(t, 503, "store_unavailable")
			up.ran(t, req.key, 0)
			refused = req
			break
		}
		done = append(done, answered{req, res.fresh(t, 201)})
		if i > 500 {
			t.Fatal("it never was full")
		}
	}
	check := func() {
		t.Helper()
		for _, d := range done {
			if res := p.settled(t, d.request); problemOf(res).Code != "response_not_stored" { // there was room for that only
				res.replays(t, d.first)
			}
			up.ran(t, d.key, 1)
		}
	}
	check()
	g.open()
	done = append(done, answered{run, running.wait(t).fresh(t, 201)})

	d.free(p)
	p.settled(t, refused).fresh(t, 201)
	up.ran(t, refused.key, 1)
	check()
	p.waitReady()
	for range 20 {
		p.twice(t, request{key: newKey(), body: "again"}, 201)
	}
	p.restart()
	check()
}
