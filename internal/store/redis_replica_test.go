package store_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

func portOf(s *storetest.RedisServer) string { return strconv.Itoa(s.Port()) }

// awaitReplica waits until the master counts a replica as its own.
func awaitReplica(t *testing.T, master *storetest.RedisServer) {
	t.Helper()
	eventually(t, "replica in step", func() error {
		n, err := master.Client().Do(t.Context(), "wait", 1, 100).Int()
		if err == nil && n != 1 {
			err = errors.New("no replica confirms")
		}
		return err
	})
}

func TestRedisClaimWaitsForReplicas(t *testing.T) {
	master := storetest.StartRedis(t)
	replica := storetest.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(master))
	awaitReplica(t, master)
	const prefix = "idem:wait:"
	s := openRedis(t, master.Addr(), func(c *store.Config) {
		c.KeyPrefix, c.Timeout, c.Redis.WaitReplicas = prefix, 2*time.Second, 1
	})
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	if n := replica.Client().Exists(t.Context(), prefix+string(req.ID)).Val(); n != 1 {
		t.Fatal("the claim counts, but the replica does not have it")
	}

	replica.Kill()
	lost := request(time.Hour)
	_, err := s.Claim(t.Context(), lost)
	wantRefused(t, err, dedup.ErrNotApplied)
	if n := master.Client().Exists(t.Context(), prefix+string(lost.ID)).Val(); n != 0 {
		t.Fatal("the claim was not given back")
	}
	start := time.Now()
	mustComplete(t, s, req, []byte("answer")) // nothing else waits
	mustClaim(t, s, dedup.ClaimRequest{ID: req.ID, Token: dedup.NewToken(), Lease: time.Hour, TTL: time.Hour}, dedup.StateCompleted)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Fatalf("completion and replay took %v without a replica", took)
	}
}

// A claim that can't be given back may be there: the error must not deny it.
func TestRedisClaimThatCanNotBeGivenBackIsLeftOpen(t *testing.T) {
	master := storetest.StartRedis(t)
	aclUser(t, master, "idem:", "-del", "+wait")
	s := openRedis(t, master.Addr(), func(c *store.Config) {
		c.KeyPrefix, c.Timeout, c.Redis.WaitReplicas = "idem:", time.Second, 1
		c.Redis.Username, c.Redis.Password = aclName, aclPassword
	})
	req := request(time.Hour)
	_, err := s.Claim(t.Context(), req)
	if err == nil || errors.Is(err, dedup.ErrNotApplied) {
		t.Fatalf("Claim: error %v, want one that leaves open whether it was applied", err)
	}
	if n := master.Client().Exists(t.Context(), "idem:"+string(req.ID)).Val(); n != 1 {
		t.Fatal("the claim is not there: this test shows nothing")
	}
}

func TestRedisFollowsSentinel(t *testing.T) {
	master := storetest.StartRedis(t)
	replica := storetest.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(master))
	awaitReplica(t, master)
	sentinel := storetest.StartSentinel(t, "mymaster", master)
	eventually(t, "sentinel knows the replica", func() error {
		if n := len(sentinel.Client().Do(t.Context(), "sentinel", "replicas", "mymaster").Val().([]any)); n != 1 {
			return errors.New("no replica yet")
		}
		return nil
	})
	s := openRedis(t, "", func(c *store.Config) {
		c.Redis.URL, c.Redis.Addresses, c.Redis.MasterName = "", []string{sentinel.Addr()}, "mymaster"
		c.Redis.WaitReplicas = 1
	})
	req := request(time.Hour)
	mustClaim(t, s, req, dedup.StateAcquired)
	master.Kill()
	eventually(t, "claim found on the new master", func() error {
		_, err := s.Renew(t.Context(), req.ID, req.Token, time.Hour)
		return err
	})
	if v, err := s.Renew(t.Context(), req.ID, req.Token, time.Hour); err != nil || v != dedup.Applied {
		t.Fatalf("Renew: verdict %d, error %v", v, err)
	}
	if role := replica.Client().Do(t.Context(), "role").Val().([]any)[0]; role != "master" {
		t.Fatalf("the replica is %v: there was no failover", role)
	}
	sentinel.Kill()
	replica.Kill()
	eventually(t, "refusal for want of Sentinels", func() error {
		_, err := s.Claim(t.Context(), request(time.Hour))
		if err == nil || !strings.Contains(err.Error(), "sentinel") {
			return fmt.Errorf("not about Sentinels: %w", err)
		}
		wantRefused(t, err, dedup.ErrNotApplied)
		return nil
	})
}
