package store_test

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// slots is how many slots a Cluster has.
const slots = 16384

// startCluster starts a Cluster of three masters.
func startCluster(t *testing.T) []*storetest.RedisServer {
	t.Helper()
	var nodes []*storetest.RedisServer
	for i := range 3 {
		bus := busPort(t)
		node := storetest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus)
		must(t, node.Client().ClusterAddSlotsRange(t.Context(), i*slots/3, (i+1)*slots/3-1).Err())
		for _, other := range nodes {
			must(t, other.Client().Do(t.Context(), "cluster", "meet", "127.0.0.1", portOf(node), bus).Err())
		}
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		eventually(t, "cluster formed", func() error {
			info := node.Client().ClusterInfo(t.Context()).Val()
			if !contains(info, "cluster_state:ok") || !contains(info, "cluster_known_nodes:3") {
				return errors.New("not yet")
			}
			return nil
		})
	}
	return nodes
}

func busPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func onCluster(nodes []*storetest.RedisServer) func(*store.Config) {
	return func(c *store.Config) {
		c.Redis.URL = ""
		for _, node := range nodes {
			c.Redis.Addresses = append(c.Redis.Addresses, node.Addr())
		}
	}
}

func TestRedisConformsOnACluster(t *testing.T) {
	nodes := startCluster(t)
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Harness {
			return storetest.Harness{Store: openRedis(t, "", onCluster(nodes))}
		})
	})
	t.Run("every node has a part", func(t *testing.T) {
		for i, node := range nodes {
			if n := node.Client().DBSize(t.Context()).Val(); n == 0 {
				t.Errorf("node %d holds nothing", i)
			}
		}
	})
	t.Run("eviction policy of every master", func(t *testing.T) {
		s := openRedis(t, "", onCluster(nodes))
		must(t, nodes[2].Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
		if policy, err := s.EvictionPolicy(t.Context()); err != nil || policy != "allkeys-lru" {
			t.Fatalf("policy %q, error %v", policy, err)
		}
	})
	t.Run("braces in prefixes", func(t *testing.T) {
		for _, prefix := range []string{"{", "}", "{}", "a}{b:", "{{a}}:", "idem:{a}{b}:"} {
			s := openRedis(t, "", func(c *store.Config) { onCluster(nodes)(c); c.KeyPrefix = prefix })
			for range 5 {
				req := request(time.Hour)
				mustClaim(t, s, req, dedup.StateAcquired)
				mustComplete(t, s, req, []byte("answer"))
				mustClaim(t, s, req, dedup.StateCompleted)
			}
		}
	})
	t.Run("slots that are moving", func(t *testing.T) { movingSlotsWork(t, nodes) })
	t.Run("moved slots are followed", func(t *testing.T) { movedSlotsAreFollowed(t, nodes) })
	t.Run("a node that is gone is not guessed about", func(t *testing.T) { goneNodeIsRefused(t, nodes) })
}

// A slot that has moved is found on its new node, waiting for replicas or not.
func movedSlotsAreFollowed(t *testing.T, nodes []*storetest.RedisServer) {
	const prefix = "idem:{one-slot}:" // so that one move takes all
	on := onCluster(nodes)
	plain := openRedis(t, "", func(c *store.Config) { on(c); c.KeyPrefix = prefix })
	on = onCluster(nodes)
	waiting := openRedis(t, "", func(c *store.Config) {
		on(c)
		c.KeyPrefix, c.Timeout, c.Redis.WaitReplicas = prefix, time.Second, 1
	})
	req := request(time.Hour)
	mustClaim(t, plain, req, dedup.StateAcquired)
	_, err := waiting.Claim(t.Context(), request(time.Hour)) // learns where the slot is
	wantRefused(t, err, dedup.ErrNotApplied)

	moveSlot(t, nodes, prefix)
	fresh := request(time.Hour)
	mustClaim(t, plain, fresh, dedup.StateAcquired)
	mustComplete(t, plain, fresh, []byte("answer"))
	fresh.Token = dedup.NewToken()
	mustClaim(t, waiting, fresh, dedup.StateCompleted)
}

// While a slot moves, its keys are on one node or the other, key by key (ASK).
func movingSlotsWork(t *testing.T, nodes []*storetest.RedisServer) {
	const prefix = "idem:{moving}:"
	ctx := t.Context()
	s := openRedis(t, "", func(c *store.Config) { onCluster(nodes)(c); c.KeyPrefix = prefix })
	var reqs []dedup.ClaimRequest
	for range 4 {
		req := request(time.Hour)
		mustClaim(t, s, req, dedup.StateAcquired)
		reqs = append(reqs, req)
	}
	slot := int(nodes[0].Client().ClusterKeySlot(ctx, prefix).Val())
	owner := slot * 3 / slots
	from, to := nodes[owner], nodes[(owner+1)%3]
	idOf := func(n *storetest.RedisServer) any { return n.Client().Do(ctx, "cluster", "myid").Val() }
	must(t, to.Client().Do(ctx, "cluster", "setslot", slot, "importing", idOf(from)).Err())
	must(t, from.Client().Do(ctx, "cluster", "setslot", slot, "migrating", idOf(to)).Err())
	migrate := func(req dedup.ClaimRequest) {
		must(t, from.Client().Migrate(ctx, "127.0.0.1", portOf(to), prefix+string(req.ID), 0, 5*time.Second).Err())
	}
	migrate(reqs[0])
	migrate(reqs[1])
	for i, req := range reqs {
		mustClaim(t, s, req, dedup.StateAcquired) // its own, wherever it is
		mustComplete(t, s, req, []byte("answer"))
		mustClaim(t, s, req, dedup.StateCompleted)
		if i >= 2 {
			migrate(req)
			mustClaim(t, s, req, dedup.StateCompleted)
		}
	}
	fresh := request(time.Hour) // new keys begin on the new node
	mustClaim(t, s, fresh, dedup.StateAcquired)
	mustClaim(t, s, fresh, dedup.StateAcquired)
	for _, node := range []*storetest.RedisServer{to, from} {
		must(t, node.Client().Do(ctx, "cluster", "setslot", slot, "node", idOf(to)).Err())
	}
	mustComplete(t, s, fresh, []byte("answer"))
	for _, req := range append(reqs, fresh) {
		mustClaim(t, s, req, dedup.StateCompleted)
	}
}

// moveSlot hands the slot of a key, emptied, to another node.
func moveSlot(t *testing.T, nodes []*storetest.RedisServer, key string) {
	t.Helper()
	ctx := t.Context()
	slot := int(nodes[0].Client().ClusterKeySlot(ctx, key).Val())
	owner := slot * 3 / slots
	from, to := nodes[owner], nodes[(owner+1)%3]
	for _, k := range from.Client().ClusterGetKeysInSlot(ctx, slot, 100).Val() {
		must(t, from.Client().Del(ctx, k).Err())
	}
	id := to.Client().Do(ctx, "cluster", "myid").Val()
	for _, node := range []*storetest.RedisServer{to, from} {
		must(t, node.Client().Do(ctx, "cluster", "setslot", slot, "node", id).Err())
	}
	if err := from.Client().Get(ctx, key).Err(); !isMoved(err) {
		t.Fatalf("the slot has not moved: %v", err)
	}
}

func isMoved(err error) bool {
	_, moved := redis.IsMovedError(err)
	return moved
}

// The Cluster's client repeats by itself what it may; it must not hide that an earlier
// attempt may have been applied.
func TestRedisClusterRefusalAfterALostReplyLeavesItOpen(t *testing.T) {
	shim := storetest.StartShim(t, "127.0.0.1:1")
	_, port, err := net.SplitHostPort(shim.Addr())
	must(t, err)
	node := storetest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", busPort(t), "--cluster-announce-port", port)
	shim.Redirect(node.Addr())
	must(t, node.Client().ClusterAddSlotsRange(t.Context(), 0, slots-1).Err())
	eventually(t, "cluster formed", func() error {
		if !contains(node.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
			return errors.New("not yet")
		}
		return nil
	})
	s := openRedis(t, "", func(c *store.Config) {
		c.Redis.URL, c.Redis.Addresses, c.Redis.PoolSize = "", []string{shim.Addr(), shim.Addr()}, 1
	})
	warmUp(t, s)
	shim.Refuse() // so that a repetition is certainly not applied
	shim.LoseReplies("evalsha", 1)
	_, err = s.Claim(t.Context(), request(time.Hour))
	if err == nil || errors.Is(err, dedup.ErrNotApplied) || shim.Lost() != 1 {
		t.Fatalf("Claim: error %v, %d replies lost; want an error that leaves open whether it was applied", err, shim.Lost())
	}
}

// The keys of a node that is gone are refused, in time.
func goneNodeIsRefused(t *testing.T, nodes []*storetest.RedisServer) {
	s := openRedis(t, "", func(c *store.Config) { onCluster(nodes)(c); c.Timeout = 500 * time.Millisecond })
	for range 20 {
		mustClaim(t, s, request(time.Hour), dedup.StateAcquired)
	}
	nodes[1].Kill()
	failed := 0
	for range 20 {
		start := time.Now()
		_, err := s.Claim(t.Context(), request(time.Hour))
		if err != nil {
			failed++
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("a claim took %v", took)
		}
	}
	if failed == 0 {
		t.Fatal("a third of the keys is gone, and every claim is granted")
	}
}
