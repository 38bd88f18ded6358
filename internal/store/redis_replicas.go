package store

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

// claimAndWait runs the claim script and, if it took the claim, waits on the same
// connection until the replicas asked for have it. It returns the script's answer and how
// many replicas confirmed. Too few is no error, and a WAIT that failed is no confirmation.
//
// It does not send both at once: WAIT would then keep replays waiting too whenever a
// replica is away. Replicas get half of the store's timeout: the rest is for giving back.
func (r *Redis) claimAndWait(ctx context.Context, key string, args ...any) (reply any, acks int, err error) {
	master, err := r.masterOf(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	reply, acks, err = r.claimOn(ctx, master, key, args...)
	if addr, moved := redis.IsMovedError(err); moved {
		if master = r.masterAt(ctx, addr); master != nil {
			return r.claimOn(ctx, master, key, args...)
		}
	}
	return reply, acks, err
}

func (r *Redis) claimOn(ctx context.Context, master *redis.Client, key string, args ...any) (reply any, acks int, err error) {
	conn := master.Conn()
	defer conn.Close()
	reply, err = eval(ctx, conn, r.scripts.claim, key, args...)
	if err != nil || !tookClaim(reply) {
		return reply, 0, err
	}
	confirmed, _ := do(ctx, conn, 0, "wait", r.waitReplicas, millis(r.timeout/2))
	n, _ := confirmed.(int64)
	return reply, int(n), nil
}

// masterOf returns the client of the server that a key's writes go to.
func (r *Redis) masterOf(ctx context.Context, key string) (*redis.Client, error) {
	switch client := r.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Client:
		return client, nil
	default:
		return nil, fmt.Errorf("find master: unknown client %T", client)
	}
}

// masterAt returns the client of the server at an address, or nil if it is none of the
// Cluster's masters. Looking makes the client learn anew where the slots are.
func (r *Redis) masterAt(ctx context.Context, addr string) *redis.Client {
	var mu sync.Mutex
	var found *redis.Client
	_ = r.eachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if master.Options().Addr == addr {
			found = master
		}
		return nil
	})
	return found
}

// giveBack releases a claim that too few replicas have, and returns the error to answer
// with. It wraps dedup.ErrNotApplied if the claim is certainly gone again.
func (r *Redis) giveBack(ctx context.Context, req dedup.ClaimRequest, acks int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout/2)
	defer cancel()
	if _, err := r.Release(ctx, req.ID, req.Token); err != nil {
		// %v: that the release was not applied does not mean that the claim was not.
		return fmt.Errorf("%d of %d replicas have it, and giving it back failed: %v", acks, r.waitReplicas, err)
	}
	return notApplied(fmt.Errorf("%d of %d replicas have it, so it was given back", acks, r.waitReplicas))
}

// policyNoeviction is the only maxmemory-policy under which claims are safe: they all
// have an expiry, which every other policy takes as leave to evict them.
const policyNoeviction = "noeviction"

// EvictionPolicy returns the maxmemory-policy of the server: of the masters of a Cluster,
// one that is not noeviction if there is any. It asks by INFO memory, which fewer managed
// services forbid than CONFIG. It fails if a master can't be reached or forbids INFO.
func (r *Redis) EvictionPolicy(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	policy := policyNoeviction
	var mu sync.Mutex
	err := r.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		info, err := master.Info(ctx, "memory").Result()
		if err != nil {
			return err
		}
		_, line, ok := strings.Cut(info, "maxmemory_policy:")
		if !ok {
			return fmt.Errorf("INFO memory does not name it")
		}
		line, _, _ = strings.Cut(line, "\n")
		mu.Lock()
		defer mu.Unlock()
		if p := strings.TrimSpace(line); p != policyNoeviction {
			policy = p
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("learn eviction policy: %w", err)
	}
	return policy, nil
}

func (r *Redis) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	switch client := r.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, do)
	case *redis.Client:
		return do(ctx, client)
	default:
		return fmt.Errorf("find masters: unknown client %T", client)
	}
}
