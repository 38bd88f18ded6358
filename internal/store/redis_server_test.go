package store_test

import (
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

const (
	aclName     = "sidecar"
	aclPassword = "correct horse"
)

// aclUser makes a user with the rights the store needs, and changes to them.
func aclUser(t *testing.T, server *storetest.RedisServer, prefix string, changes ...string) {
	t.Helper()
	args := []any{
		"acl", "setuser", aclName, "reset", "on", ">" + aclPassword, "~" + prefix + "*",
		"+get", "+set", "+getrange", "+setrange", "+pttl", "+pexpire", "+del", "+time", "+evalsha", "+eval",
	}
	for _, c := range changes {
		args = append(args, c)
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("make user: %v", err)
	}
}

// At maxmemory new claims are refused, and what is claimed can live on and end.
func TestRedisAtMaxmemory(t *testing.T) {
	server := storetest.StartRedis(t)
	aclUser(t, server, "idem:")
	s := openRedis(t, server.Addr(), func(c *store.Config) {
		c.KeyPrefix, c.Redis.Username, c.Redis.Password = "idem:", aclName, aclPassword
	})
	claimed := make(map[string]dedup.ClaimRequest)
	for _, what := range []string{"renewed", "recorded", "abandoned", "released", "repeated", "over", "replayed"} {
		req := request(time.Hour)
		if what == "over" {
			req.Lease = time.Millisecond
		}
		mustClaim(t, s, req, dedup.StateAcquired)
		claimed[what] = req
	}
	mustComplete(t, s, claimed["replayed"], []byte("answer"))
	server.Client().ConfigSet(t.Context(), "maxmemory", "500kb") // less than an empty server uses

	fresh := request(time.Hour)
	_, err := s.Claim(t.Context(), fresh)
	wantRefused(t, err, dedup.ErrStoreFull)
	wantRefused(t, s.Ping(t.Context()), dedup.ErrStoreFull)
	if n := server.Client().Exists(t.Context(), "idem:"+string(fresh.ID)).Val(); n != 0 {
		t.Fatal("a refused claim is there")
	}
	takeover := claimed["over"]
	takeover.Token, takeover.Takeover = dedup.NewToken(), true
	_, err = s.Claim(t.Context(), takeover)
	wantRefused(t, err, dedup.ErrStoreFull)

	req := claimed["renewed"]
	before := server.Client().PTTL(t.Context(), "idem:"+string(req.ID)).Val()
	if v, err := s.Renew(t.Context(), req.ID, req.Token, 30*time.Minute); err != nil || v != dedup.Applied {
		t.Fatalf("Renew: verdict %d, error %v", v, err)
	}
	if after := server.Client().PTTL(t.Context(), "idem:"+string(req.ID)).Val(); after <= 0 || after > before+time.Millisecond {
		t.Fatalf("the renewal changed the expiry from %v to %v", before, after)
	}
	mustClaim(t, s, claimed["repeated"], dedup.StateAcquired)
	mustClaim(t, s, claimed["replayed"], dedup.StateCompleted)
	mustComplete(t, s, claimed["recorded"], make([]byte, 1<<20))
	req = claimed["abandoned"]
	if v, err := s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{Unknown: true}); err != nil || v != dedup.Applied {
		t.Fatalf("Complete: verdict %d, error %v", v, err)
	}
	req = claimed["released"]
	if v, err := s.Release(t.Context(), req.ID, req.Token); err != nil || v != dedup.Applied {
		t.Fatalf("Release: verdict %d, error %v", v, err)
	}
	orphan := request(time.Hour) // without a claim there is nothing to make an exception for
	_, err = s.Complete(t.Context(), orphan.ID, orphan.Token, dedup.Completion{TTL: time.Hour, Blob: []byte("x")})
	wantRefused(t, err, dedup.ErrStoreFull)
}

func TestRedisOtherTypesAreUnreadableAndStay(t *testing.T) {
	server := storetest.StartRedis(t)
	s := openRedis(t, server.Addr(), func(c *store.Config) { c.KeyPrefix = "idem:" })
	req := request(time.Hour)
	server.Client().HSet(t.Context(), "idem:"+string(req.ID), "field", "value")
	for op, err := range eachOp(t.Context(), s, req) {
		if op == "Claim" {
			_, err = s.Claim(t.Context(), req)
		}
		if op != "Ping" && op != "Enroll" && op != "Dismiss" && (err == nil || !strings.Contains(err.Error(), dedup.ErrUnreadable.Error())) {
			t.Errorf("%s: error %v, want %v", op, err, dedup.ErrUnreadable)
		}
	}
	empty := request(time.Hour) // an empty string reads like no key, but is somebody's
	server.Client().Set(t.Context(), "idem:"+string(empty.ID), "", 0)
	for op, err := range map[string]error{
		"Claim":    errOf(s.Claim(t.Context(), empty)),
		"Complete": errOf(s.Complete(t.Context(), empty.ID, empty.Token, dedup.Completion{TTL: time.Hour})),
	} {
		if err == nil || !strings.Contains(err.Error(), dedup.ErrUnreadable.Error()) {
			t.Errorf("%s: error %v, want %v", op, err, dedup.ErrUnreadable)
		}
	}
	if v := server.Client().HGet(t.Context(), "idem:"+string(req.ID), "field").Val(); v != "value" {
		t.Fatalf("the hash holds %q", v)
	}
}

func errOf[T any](_ T, err error) error { return err }

// Every operation is one round trip, on one key.
func TestRedisOperationsAreOneRoundTrip(t *testing.T) {
	server := storetest.StartRedis(t)
	shim := storetest.StartShim(t, server.Addr())
	for name, replicas := range map[string]int{"plain": 0, "waiting": 1} {
		s := openRedis(t, shim.Addr(), func(c *store.Config) {
			c.Redis.PoolSize, c.Redis.WaitReplicas, c.Timeout = 1, replicas, 500*time.Millisecond
		})
		_ = eachOp(t.Context(), s, request(time.Hour)) // connects, and the server learns the scripts
		req := request(time.Hour)
		for _, op := range []struct {
			name string
			run  func() error
		}{
			{"Claim", func() error { return errOf(s.Claim(t.Context(), req)) }},
			{"Renew", func() error { return errOf(s.Renew(t.Context(), req.ID, req.Token, time.Hour)) }},
			{"Complete", func() error {
				return errOf(s.Complete(t.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: []byte("x")}))
			}},
			{"replay", func() error { return errOf(s.Claim(t.Context(), req)) }},
			{"Release", func() error { return errOf(s.Release(t.Context(), req.ID, req.Token)) }},
			{"Enroll", func() error {
				return errOf(s.Enroll(t.Context(), dedup.Enrolment{Scope: "scope", ID: req.ID, Token: req.Token, TTL: time.Hour, Limit: 10}))
			}},
			{"Dismiss", func() error { return s.Dismiss(t.Context(), "scope", req.ID, req.Token) }},
			{"Ping", func() error { return s.Ping(t.Context()) }},
		} {
			before := shim.Trips()
			err := op.run()
			want := 1
			if name == "waiting" && op.name == "Claim" {
				want = 3 // it waits for a replica; there is none, so it is given back
			} else if err != nil {
				t.Fatalf("%s, %s: %v", name, op.name, err)
			}
			if n := shim.Trips() - before; n != want {
				t.Errorf("%s, %s: %d round trips, want %d", name, op.name, n, want)
			}
		}
	}
}

func TestRedisEvictionPolicy(t *testing.T) {
	server := storetest.StartRedis(t)
	aclUser(t, server, "idem:")
	s := openRedis(t, server.Addr(), func(c *store.Config) {
		c.KeyPrefix, c.Redis.Username, c.Redis.Password = "idem:", aclName, aclPassword
		c.Redis.RequireNoeviction = true
	})
	if policy, err := s.EvictionPolicy(t.Context()); err == nil {
		t.Fatalf("policy %q without the right to ask", policy)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Fatal("Ping does not mind that the policy is unknown")
	}
	aclUser(t, server, "idem:", "+info")
	for _, policy := range []string{"noeviction", "volatile-lru"} {
		server.Client().ConfigSet(t.Context(), "maxmemory-policy", policy)
		if got, err := s.EvictionPolicy(t.Context()); err != nil || got != policy {
			t.Fatalf("policy %q, error %v; want %q", got, err, policy)
		}
		if err := s.Ping(t.Context()); (err == nil) != (policy == "noeviction") {
			t.Fatalf("Ping under %s: %v", policy, err)
		}
	}
}
