package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// How much is asked of Redis before a claim counts.

// With wait_replicas a claim counts only when a replica has it.
func TestFaultAClaimWaitsForReplicas(t *testing.T) {
	t.Parallel()
	master := startProcess(t)
	replica := replicaOf(t, master)
	s := redisVia(master.addr(), 2*time.Second, "wait_replicas: 1")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: s, upstream: up.url, routes: payments})
	done, req := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	recorded := p.twice(t, done, 201)
	d, g := running(t, p, up, req)
	if keys, err := replica.client().Keys(t.Context(), s.prefix+"*").Result(); err != nil || len(keys) < 2 {
		t.Errorf("the upstream has the request, and the replica has the keys %q, %v", keys, err)
	}

	replica.kill()
	lost := request{key: newKey(), body: "z"}
	before := master.client().DBSize(t.Context()).Val()
	began := time.Now()
	p.send(t, lost).refused(t, 503, "store_unavailable")
	quickly(t, began)
	up.ran(t, lost.key, 0)
	if after := master.client().DBSize(t.Context()).Val(); after > before {
		t.Errorf("%d keys, before the refused claim %d: it was not given back", after, before)
	}
	// What was claimed before is recorded, and replayed, without a replica.
	g.open()
	first := d.wait(t).fresh(t, 201)
	p.send(t, req).replays(t, first)
	p.send(t, done).replays(t, recorded)

	replica.start()
	p.settled(t, lost).fresh(t, 201)

	replica.pause() // it is there, and silent
	mute := request{key: newKey(), body: "m"}
	began = time.Now()
	p.send(t, mute).refused(t, 503, "store_unavailable")
	quickly(t, began)
	up.ran(t, mute.key, 0)
	replica.resume()
	p.settled(t, mute).fresh(t, 201)
	for _, k := range []string{done.key, req.key, lost.key, mute.key} {
		up.ran(t, k, 1)
	}
}

// A claim that a replica has survives the failover to it. A record may not: then the
// outcome is unknown, and still nothing is executed again.
func TestFaultAClaimSurvivesTheFailoverItWaitedFor(t *testing.T) {
	t.Parallel()
	master := startProcess(t)
	replica := replicaOf(t, master)
	s := redisVia(master.addr(), 2*time.Second, "wait_replicas: 1")
	up := newWireUpstream(t, answers201)
	conf := setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, lease: 2s}`}
	p := start(t, conf)
	conf.store, conf.unready = s.via(replica.addr(), 2*time.Second), true
	other := start(t, conf)
	runs, ended := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	_, g1 := running(t, p, up, runs)
	d2, g2 := running(t, p, up, ended)
	replica.do("replicaof", "no", "one") // it has both claims, and will not have the record
	g2.open()
	d2.wait(t).fresh(t, 201)
	master.kill()
	p.kill()
	g1.open()
	for _, req := range []request{runs, ended} {
		everywhere(t, req, other)[0].refused(t, 409, "outcome_unknown")
		up.ran(t, req.key, 1)
	}
}

// Redis itself can refuse writes that no replica would get (min-replicas-to-write). Claims
// are refused then; what runs is recorded when there is a replica again.
func TestFaultRedisWantsReplicas(t *testing.T) {
	t.Parallel()
	master := startProcess(t)
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(master.addr(), time.Second), upstream: up.url, routes: payments})
	req, lost := request{key: newKey(), body: "x"}, request{key: newKey(), body: "y"}
	d, g := running(t, p, up, req)
	master.do("config", "set", "min-replicas-to-write", "1")
	p.send(t, lost).refused(t, 503, "store_unavailable")
	up.ran(t, lost.key, 0)
	g.open()
	first := d.wait(t).fresh(t, 201)
	replicaOf(t, master)
	p.settled(t, req).replays(t, first)
	p.settled(t, lost).fresh(t, 201)
	up.ran(t, req.key, 1)
	up.ran(t, lost.key, 1)
}

// The store's clock alone says what is over. What it lets expire early, as when it is set
// forward, is free; see docs/guarantees.md.
func TestFaultTheStoresClockDecides(t *testing.T) {
	t.Parallel()
	server := startProcess(t)
	s := redisVia(server.addr(), time.Second)
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: s, upstream: up.url, routes: payments})
	req := request{key: newKey(), body: "x"}
	p.twice(t, req, 201)
	keys, err := server.client().Keys(t.Context(), s.prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		server.do("pexpire", k, 1)
	}
	eventually(t, "expired", func() bool { return p.send(t, req).get(replayHeader) == "" })
	up.ran(t, req.key, 2)
}

// A Redis that may evict claims is told of, loudly.
func TestFaultAnEvictingRedisIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--maxmemory-policy", "volatile-ttl")
	up := newWireUpstream(t, answers201)
	p := start(t, setup{store: redisVia(server.addr(), time.Second), upstream: up.url, routes: payments})
	p.logged(t, `"level":"warn"`, "THE STORE MAY EVICT CLAIMS", "volatile-ttl")
	p.twice(t, request{key: newKey()}, 201) // it serves all the same

	server.do("config", "set", "maxmemory-policy", "noeviction")
	p.restart()
	if log := p.log.String(); strings.Contains(log, "EVICT") {
		t.Errorf("it warns of noeviction:\n%s", log)
	}
}

// Where noeviction is required, the program doesn't start on a Redis that evicts, and is
// not ready on one that doesn't say.
func TestFaultNoevictionIsRequired(t *testing.T) {
	t.Parallel()
	server := startProcess(t, "--maxmemory-policy", "allkeys-lru")
	up := newWireUpstream(t, answers201)
	s := redisVia(server.addr(), time.Second, "require_noeviction: true")
	file := filepath.Join(t.TempDir(), "idemproxy.yaml")
	write(t, file, setup{store: s, upstream: up.url, routes: payments}.yaml(local(freePort()), local(freePort())))
	exit, _, stderr := once(t, "serve", "--config", file)
	if exit != 1 || !strings.Contains(stderr, "allkeys-lru") || !strings.Contains(stderr, "require_noeviction") {
		t.Errorf("exit %d:\n%s", exit, stderr)
	}
	server.do("config", "set", "maxmemory-policy", "noeviction")
	p := start(t, setup{store: s, upstream: up.url, routes: payments})
	p.twice(t, request{key: newKey()}, 201)

	server.do("config", "set", "maxmemory-policy", "allkeys-lru") // later
	eventually(t, "not ready", func() bool { return p.probe("/readyz") == 503 })
}

// A user who may not ask for the policy: that is said, too.
func TestFaultTheEvictionPolicyIsForbiddenToKnow(t *testing.T) {
	t.Parallel()
	server := startProcess(t)
	up := newWireUpstream(t, answers201)
	s := storage{kind: "redis", prefix: "fault:"}
	server.do("acl", "setuser", "sidecar", "reset", "on", ">correct-horse-battery", "~"+s.prefix+"*",
		"+get", "+set", "+getrange", "+setrange", "+pttl", "+pexpire", "+del", "+time", "+evalsha", "+eval")
	with := func(more ...string) storage {
		return s.via(server.addr(), time.Second, append(more, "username: sidecar", "password: correct-horse-battery")...)
	}
	p := start(t, setup{store: with(), upstream: up.url, routes: payments})
	p.logged(t, `"level":"warn"`, "eviction policy", "not known", "NOPERM")
	p.twice(t, request{key: newKey()}, 201)
	p.secret("correct-horse-battery")

	strict := start(t, setup{store: with("require_noeviction: true"), upstream: up.url, routes: payments, unready: true})
	strict.logged(t, `"level":"warn"`, "eviction policy", "NOPERM")
	if ready := strict.probe("/readyz"); ready != 503 {
		t.Errorf("readyz %d although the policy is not known", ready)
	}
	server.do("acl", "setuser", "sidecar", "+info")
	strict.waitReady()
}
