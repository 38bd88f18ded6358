package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A real Redis is killed, paused, loading, full, demoted, and comes back.

// durable are the settings under which a Redis that is killed forgets nothing. With
// appendfsync everysec it does now and then: while the disk is busy with the last second,
// it acknowledges what it has not written yet.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// running begins a request that stands at the upstream, and returns what opens the gate.
func running(t *testing.T, p *proxy, up *wireUpstream, req request) (pending, *gate) {
	t.Helper()
	g := newGate(t)
	up.does(gated(g, answers201))
	d := p.begin(req)
	g.arrived(t)
	up.does(answers201)
	return d, g
}

// A Redis that forgets, because it keeps nothing on disk, breaks the promise: nobody can
// know of what it acknowledged. See docs/guarantees.md.
func TestFaultAStoreThatForgets(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--appendonly", "no")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(server.addr(), time.Second), upstream: up.url, routes: payments})
	done, held := request{key: newKey(), body: "x"}, request{key: newKey(), body: "x"}
	p.twice(t, done, 201)
	up.does(raw(""))
	p.send(t, held).refused(t, 502, "upstream_failed")
	up.does(answers201)
	runs := request{key: newKey(), body: "x"}
	d, g := running(t, p, up, runs)
	server.kill()
	server.start()
	p.waitReady()
	p.settled(t, done).fresh(t, 201)
	p.settled(t, held).fresh(t, 201)
	up.ran(t, done.key, 2)
	up.ran(t, held.key, 2)

	// What ran then is recorded all the same, if nobody has claimed it meanwhile.
	g.open()
	first := d.wait(t).fresh(t, 201)
	p.settled(t, runs).replays(t, first)
	up.ran(t, runs.key, 1)
}

// Redis reads its data back, and refuses everything meanwhile.
func TestFaultRedisIsLoading(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(server.addr(), time.Second), upstream: up.url, routes: payments})
	req, next := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	first := p.twice(t, req, 201)
	client := server.client()
	for i := range 150 {
		if err := client.Set(t.Context(), fmt.Sprint("ballast", i), make([]byte, 4096), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	server.do("save")
	server.kill()
	server.start("--key-load-delay", "20000")
	began := time.Now()
	p.send(t, next).refused(t, 503, "store_unavailable")
	p.send(t, req).refused(t, 503, "store_unavailable")
	if ready := p.probe("/readyz"); ready != 503 {
		t.Errorf("readyz %d while Redis is loading", ready)
	}
	quickly(t, began)
	if info, err := server.client().Info(t.Context(), "persistence").Result(); err != nil || !strings.Contains(info, "loading:1") {
		t.Skipf("it has loaded already: this shows nothing on so slow a machine")
	}
	up.ran(t, next.key, 0)
	p.settled(t, req).replays(t, first)
	if res := p.settled(t, next); res.status != 201 {
		t.Errorf("the retry got\n%s", res)
	}
	up.ran(t, req.key, 1)
	up.ran(t, next.key, 1)
	p.waitReady()
}

// A replica becomes the master. The old one refuses writes (READONLY) on connections that
// live on; they are left for the new one, also by what is running.
func TestFaultAFailoverToAReplica(t *testing.T) {
	t.Parallel()
	old := startProcess(t)
	replica := replicaOf(t, old)
	k := newShim(t, old.addr())
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(k.addr, time.Second), upstream: up.url, routes: payments})
	done, req := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	recorded := p.twice(t, done, 201)
	d, g := running(t, p, up, req)
	eventually(t, "replicated", func() bool { n, _ := old.do("wait", 1, 1000).(int64); return n == 1 })

	old.do("replicaof", "127.0.0.1", fmt.Sprint(replica.port)) // READONLY from now on
	p.send(t, request{key: newKey(), body: "z"}).refused(t, 503, "store_unavailable")
	replica.do("replicaof", "no", "one")
	k.redirect(replica.addr())
	g.open()
	first := d.wait(t).fresh(t, 201)
	p.settled(t, req).replays(t, first)
	p.settled(t, done).replays(t, recorded)
	p.waitReady()
	p.twice(t, request{key: newKey(), body: "z"}, 201)
	up.ran(t, req.key, 1)
	up.ran(t, done.key, 1)
}

// An asynchronous failover forgets what the replica had not got. That breaks the promise;
// see docs/guarantees.md.
func TestFaultAnAsynchronousFailoverForgets(t *testing.T) {
	t.Parallel()
	old := startProcess(t)
	replica := replicaOf(t, old)
	k := newShim(t, old.addr())
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(k.addr, time.Second), upstream: up.url, routes: payments})
	replica.do("replicaof", "no", "one") // cut off, before anything happens
	req := request{key: newKey(), body: "x"}
	p.twice(t, req, 201)
	old.kill()
	k.redirect(replica.addr())
	k.cut()
	p.settled(t, req).fresh(t, 201)
	up.ran(t, req.key, 2)
}

// Redis is filled to its maxmemory and evicts nothing. New claims are refused; what runs
// is recorded, or remembered as not stored; records are replayed.
func TestFaultRedisIsFilledToMaxmemory(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--maxmemory-policy", "noeviction")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(server.addr(), time.Second), upstream: up.url, routes: payments})
	done := request{key: newKey(), body: "done"}
	recorded := p.twice(t, done, 201)
	large := strings.Repeat("0123456789abcdef", 50_000)
	var ds []pending
	var gs []*gate
	reqs := []request{{key: newKey(), body: "small"}, {key: newKey(), body: "large"}, {key: newKey(), body: "cut"}}
	for i, do := range []act{answers201, raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(large), large)), raw("")} {
		g := newGate(t)
		up.does(gated(g, do))
		ds = append(ds, p.begin(reqs[i]))
		g.arrived(t)
		gs = append(gs, g)
	}
	client := server.client()
	server.do("config", "set", "maxmemory", "8mb")
	for i := 0; ; i++ {
		err := client.Set(t.Context(), fmt.Sprint("ballast", i), make([]byte, 64<<10), 0).Err()
		if err != nil && strings.HasPrefix(err.Error(), "OOM") {
			break
		}
		if err != nil || i > 1000 {
			t.Fatalf("it is not full after %d: %v", i, err)
		}
	}
	server.do("config", "set", "maxmemory", "7mb") // not even a little fits now
	refused := request{key: newKey(), body: "new"}
	p.send(t, refused).refused(t, 503, "store_unavailable")
	if ready := p.probe("/readyz"); ready != 503 {
		t.Errorf("readyz %d while Redis is full", ready)
	}
	up.does(answers201)
	for _, g := range gs {
		g.open()
	}
	ds[2].wait(t).refused(t, 502, "upstream_failed")
	check := func() {
		t.Helper()
		for i, first := range []*response{ds[0].cached(t), ds[1].cached(t)} {
			if res := p.settled(t, reqs[i]); problemOf(res).Code != "response_not_stored" {
				res.replays(t, first)
			}
			up.ran(t, reqs[i].key, 1)
		}
		p.send(t, reqs[2]).refused(t, 409, "outcome_unknown")
		up.ran(t, reqs[2].key, 1)
		p.send(t, done).replays(t, recorded)
		up.ran(t, done.key, 1)
	}
	check()
	up.ran(t, refused.key, 0)
	server.do("config", "set", "maxmemory", "0")
	check()
	p.settled(t, refused).fresh(t, 201)
	up.ran(t, refused.key, 1)
	p.waitReady()
}

// cached is wait, as often as one likes.
func (d pending) cached(t *testing.T) *response {
	t.Helper()
	res := d.wait(t)
	d <- result{res: res}
	return res
}

// A Redis that evicts breaks the promise; see docs/guarantees.md.
func TestFaultAnEvictedRecordIsExecutedAgain(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--maxmemory-policy", "allkeys-lru")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(server.addr(), time.Second), upstream: up.url, routes: payments})
	p.logged(t, `"level":"warn"`, "EVICT", "allkeys-lru")
	req := request{key: newKey(), body: "x"}
	p.twice(t, req, 201)
	client := server.client()
	server.do("config", "set", "maxmemory", "4mb")
	eventually(t, "evicted", func() bool {
		for range 20 {
			if err := client.Set(t.Context(), unique("ballast"), make([]byte, 64<<10), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		keys, err := client.Keys(t.Context(), "e2e-*").Result()
		return err == nil && len(keys) == 0
	})
	p.settled(t, req).fresh(t, 201)
	up.ran(t, req.key, 2)
}
