package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// oneConnection makes a store whose traffic a shim can count and cut without surprises.
func oneConnection(c *store.Config) { c.Redis.PoolSize = 1 }

// eachOp runs every operation on a claim of its own and returns the errors by name.
func eachOp(ctx context.Context, s dedup.Store, claimed dedup.ClaimRequest) map[string]error {
	errs := make(map[string]error)
	_, errs["Claim"] = s.Claim(ctx, request(time.Hour))
	_, errs["Renew"] = s.Renew(ctx, claimed.ID, claimed.Token, time.Hour)
	_, errs["Complete"] = s.Complete(ctx, claimed.ID, claimed.Token, dedup.Completion{TTL: time.Hour, Blob: []byte("x")})
	_, errs["Release"] = s.Release(ctx, claimed.ID, claimed.Token)
	_, errs["Enroll"] = s.Enroll(ctx, dedup.Enrolment{Scope: "scope", ID: claimed.ID, Token: claimed.Token, TTL: time.Hour, Limit: 1000})
	errs["Dismiss"] = s.Dismiss(ctx, "scope", claimed.ID, claimed.Token)
	errs["Ping"] = s.Ping(ctx)
	return errs
}

// warmUp makes a store connect, and the server learn its scripts.
func warmUp(t *testing.T, s dedup.Store) {
	t.Helper()
	for op, err := range eachOp(t.Context(), s, request(time.Hour)) {
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
}

// eventually tries until it works, for as long as a slow machine may need.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: still %v", what, err)
}

func TestRedisLostRepliesAreHarmless(t *testing.T) {
	server := storetest.StartRedis(t)
	shim := storetest.StartShim(t, server.Addr())
	s := openRedis(t, shim.Addr(), oneConnection)
	warmUp(t, s)
	req, freed := request(time.Hour), request(time.Hour)
	req.Lease = time.Minute
	mustClaim(t, s, freed, dedup.StateAcquired)

	shim.LoseReplies("evalsha", 1)
	mustClaim(t, s, req, dedup.StateAcquired)
	shim.LoseReplies("evalsha", 1)
	if v, err := s.Renew(t.Context(), req.ID, req.Token, time.Hour); v != dedup.Applied || err != nil {
		t.Fatalf("Renew: verdict %d, error %v", v, err)
	}
	shim.LoseReplies("evalsha", 1)
	mustComplete(t, s, req, []byte("answer"))
	shim.LoseReplies("evalsha", 1)
	if v, err := s.Release(t.Context(), freed.ID, freed.Token); v != dedup.Gone || err != nil {
		t.Fatalf("Release: verdict %d, error %v; want gone, by ourselves", v, err)
	}
	mustClaim(t, s, freed, dedup.StateAcquired)
	if n := shim.Lost(); n != 4 {
		t.Fatalf("%d replies were lost, want 4", n)
	}
}

// When every attempt's reply is lost the claim is there, and the error must not deny it.
func TestRedisLostForGoodIsNotCalledNotApplied(t *testing.T) {
	server := storetest.StartRedis(t)
	shim := storetest.StartShim(t, server.Addr())
	s := openRedis(t, shim.Addr(), oneConnection)
	warmUp(t, s)
	req := request(time.Hour)
	shim.LoseReplies("evalsha", 1000)
	_, err := s.Claim(t.Context(), req)
	if err == nil || errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("Claim: error %v, want one that leaves open whether it was applied", err)
	}
	shim.LoseReplies("evalsha", 0)
	other := req
	other.Token = dedup.NewToken()
	mustClaim(t, openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = prefixOf(t, server, req.ID) }), other, dedup.StateInProgress)
	mustClaim(t, s, req, dedup.StateAcquired)
}

// prefixOf finds the prefix under which an entry is stored.
func prefixOf(t *testing.T, server *storetest.RedisServer, id dedup.ID) string {
	t.Helper()
	keys, err := server.Client().Keys(t.Context(), "*"+string(id)).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys of %s: %v, %v", id, keys, err)
	}
	return keys[0][:len(keys[0])-len(id)]
}

// An attempt whose reply was lost may have been applied, whatever the next one is told.
func TestRedisRefusalAfterALostReplyLeavesItOpen(t *testing.T) {
	server, readonly := storetest.StartRedis(t), storetest.StartRedis(t)
	readonly.Client().SlaveOf(t.Context(), "127.0.0.1", "1")
	shim := storetest.StartShim(t, server.Addr())
	s := openRedis(t, shim.Addr(), oneConnection)
	warmUp(t, s)
	shim.Redirect(readonly.Addr())
	shim.LoseReplies("evalsha", 1)
	_, err := s.Claim(t.Context(), request(time.Hour))
	if err == nil || errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("Claim: error %v, want one that leaves open whether it was applied", err)
	}
	_, err = s.Claim(t.Context(), request(time.Hour)) // nothing lost: refused is refused
	if !errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("Claim: error %v, want %v", err, dedup.ErrNotApplied)
	}
}

func TestRedisThatNeverAnswersCostsTheTimeout(t *testing.T) {
	const timeout, slack = 200 * time.Millisecond, 400 * time.Millisecond
	server := storetest.StartRedis(t)
	short := func(c *store.Config) { c.Timeout = timeout }
	warm, waiting := openRedis(t, server.Addr(), short), openRedis(t, server.Addr(), func(c *store.Config) {
		c.Timeout, c.Redis.WaitReplicas = timeout, 1
	})
	req := request(time.Hour)
	mustClaim(t, warm, req, dedup.StateAcquired)
	_, _ = waiting.Claim(t.Context(), request(time.Hour))
	server.Pause()
	cold := openRedis(t, server.Addr(), short)
	for name, s := range map[string]dedup.Store{"warm": warm, "cold": cold} {
		for _, op := range []func() error{
			func() error { _, err := s.Claim(t.Context(), request(time.Hour)); return err },
			func() error { _, err := s.Renew(t.Context(), req.ID, req.Token, time.Hour); return err },
			func() error { return s.Ping(t.Context()) },
		} {
			takes(t, name, timeout+slack, op)
		}
	}
	// Giving back a claim that nobody acknowledged may take another half.
	takes(t, "waiting", timeout*3/2+slack, func() error { _, err := waiting.Claim(t.Context(), request(time.Hour)); return err })
	var wg sync.WaitGroup
	for range 100 { // more than the pool holds
		wg.Go(func() {
			takes(t, "crowd", timeout+slack, func() error { _, err := warm.Claim(t.Context(), request(time.Hour)); return err })
		})
	}
	wg.Wait()
	patient := openRedis(t, server.Addr(), nil)
	caller, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	takes(t, "caller's deadline", 50*time.Millisecond+slack, func() error { _, err := patient.Claim(caller, request(time.Hour)); return err })
	server.Resume()
	eventually(t, "claim after the pause", func() error { _, err := warm.Claim(t.Context(), req); return err })
}

// takes expects an error within a time.
func takes(t *testing.T, name string, limit time.Duration, op func() error) {
	t.Helper()
	start := time.Now()
	err := op()
	if took := time.Since(start); err == nil || took > limit {
		t.Errorf("%s: error %v after %v, want one within %v", name, err, took, limit)
	}
}

func TestRedisFullPoolIsNotApplied(t *testing.T) {
	server := storetest.StartRedis(t)
	s := openRedis(t, server.Addr(), func(c *store.Config) { c.Redis.PoolSize, c.Timeout = 1, 300*time.Millisecond })
	mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	server.Pause()
	errs := make(chan error, 2)
	for range 2 {
		go func() { _, err := s.Claim(t.Context(), request(time.Hour)); errs <- err }()
	}
	a, b := <-errs, <-errs // who waits for the connection gives up first
	if !errors.Is(a, dedup.ErrNotApplied) || b == nil || errors.Is(b, dedup.ErrNotApplied) {
		t.Fatalf("errors %v and %v, want the first not applied and the second open", a, b)
	}
}

func TestRedisDownFailsAtOnceAndRecovers(t *testing.T) {
	server := storetest.StartRedis(t)
	server.Kill()
	s := openRedis(t, server.Addr(), nil) // opens all the same
	for round := range 2 {
		start := time.Now()
		for op, err := range eachOp(t.Context(), s, request(time.Hour)) {
			if !errors.Is(err, dedup.ErrNotApplied) {
				t.Errorf("round %d: %s: error %v, want %v", round, op, err, dedup.ErrNotApplied)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("round %d: five refused operations took %v", round, took)
		}
		server.Restart()
		eventually(t, "claim after the start", func() error { _, err := s.Claim(t.Context(), request(time.Hour)); return err })
		server.Kill()
		eventually(t, "notice of the end", func() error {
			if err := s.Ping(t.Context()); err == nil {
				return errors.New("working")
			}
			return nil
		})
	}
}

func TestRedisLoadingIsNotAppliedAndPasses(t *testing.T) {
	server := storetest.StartRedis(t, "--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024")
	s := openRedis(t, server.Addr(), nil)
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, []byte("kept"))
	for range 30 {
		server.Client().Set(t.Context(), "ballast:"+string(dedup.NewToken()), make([]byte, 4096), 0)
	}
	if err := server.Client().Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Restart("--key-load-delay", "20000")
	_, err := s.Claim(t.Context(), request(time.Hour))
	wantRefused(t, err, dedup.ErrNotApplied)
	eventually(t, "replay after loading", func() error { _, err := s.Claim(t.Context(), req); return err })
	mustClaim(t, s, req, dedup.StateCompleted)
}

// A master that was demoted refuses writes on connections that live on; they are dropped,
// so that the name leads to the new master.
func TestRedisFollowsAFailoverBehindOneAddress(t *testing.T) {
	old := storetest.StartRedis(t)
	replica := storetest.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(old))
	awaitReplica(t, old)
	shim := storetest.StartShim(t, old.Addr())
	s := openRedis(t, shim.Addr(), func(c *store.Config) { c.Redis.PoolSize = 8 })
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	mustComplete(t, s, req, []byte("kept"))
	var wg sync.WaitGroup
	for range 8 { // several connections to the old master
		wg.Go(func() { _, _ = s.Claim(t.Context(), request(time.Hour)) })
	}
	wg.Wait()
	admin := old.Client().Conn() // WAIT is for what its own connection wrote
	defer admin.Close()
	admin.Set(t.Context(), "the last write", "x", 0)
	if n, err := admin.Do(t.Context(), "wait", 1, 5000).Int(); err != nil || n != 1 {
		t.Fatalf("%d replicas have it, error %v", n, err)
	}
	replica.Client().SlaveOf(t.Context(), "NO", "ONE")
	old.Client().SlaveOf(t.Context(), "127.0.0.1", portOf(replica))
	shim.Redirect(replica.Addr())
	failures := 0
	for ; failures < 8; failures++ {
		_, err := s.Claim(t.Context(), request(time.Hour))
		if err == nil {
			break
		}
		wantRefused(t, err, dedup.ErrNotApplied)
	}
	if failures == 8 {
		t.Fatal("still on the old master")
	}
	mustClaim(t, s, req, dedup.StateCompleted)
}
