package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

// Redis is the dedup.Store on a Redis or Valkey server, a Sentinel group or a Cluster,
// shared by all replicas of the program.
//
// One string under KeyPrefix+ID holds an entry; each operation is one Lua script on that
// key and one round trip, and one more for a new claim that waits for replicas. Leases are measured by the clock of the server that holds the
// key. A failover can lose what the old master had acknowledged and not yet replicated:
// see RedisConfig.WaitReplicas.
//
// A cancellation during a round trip is noticed when the round trip ends, at most
// Config.Timeout later; deadlines are kept.
type Redis struct {
	client            redis.UniversalClient
	via               processor // sends the operations
	scripts           redisScripts
	prefix            string
	timeout           time.Duration
	waitReplicas      int
	requireNoeviction bool
	watchers          watchers
	life              context.Context // ends with Close
	end               context.CancelFunc
	background        sync.WaitGroup
}

// NewRedis opens a Redis. It connects when it is used, so it succeeds while the server is
// down. It fails if a file that cfg names can't be read or makes no sense. The cfg must be
// valid otherwise.
func NewRedis(cfg Config) (*Redis, error) {
	client, err := newRedisClient(cfg)
	if err != nil {
		return nil, err
	}
	via := processor(client)
	if single, ok := client.(*redis.Client); ok {
		via = &redisBatch{client: single, timeout: cfg.Timeout}
	}
	r := &Redis{
		client:            client,
		via:               via,
		scripts:           newRedisScripts(),
		prefix:            cfg.KeyPrefix,
		timeout:           cfg.Timeout,
		waitReplicas:      cfg.Redis.WaitReplicas,
		requireNoeviction: cfg.Redis.RequireNoeviction,
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.watchers.start = sync.OnceFunc(func() { r.background.Go(r.listen) })
	return r, nil
}

// Claim is dedup.Store's.
func (r *Redis) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	key, args := r.key(req.ID), claimArgs(req)
	var acks int
	reply, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		if r.waitReplicas == 0 {
			return eval(ctx, r.via, r.scripts.claim, key, args...)
		}
		reply, n, err := r.claimAndWait(ctx, key, args...)
		acks = n
		return reply, err
	})
	if err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	found, err := decodeFound(reply)
	if err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	if tookClaim(reply) && acks < r.waitReplicas {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", r.giveBack(ctx, req, acks))
	}
	return found, nil
}

// Renew is dedup.Store's.
func (r *Redis) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	return r.own(ctx, "renew lease", r.scripts.renew, id, string(token), millis(lease))
}

// Complete is dedup.Store's. At maxmemory the record of a living claim is stored all the
// same, beyond the limit if need be.
func (r *Redis) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	defer r.watchers.wake(id)
	if c.Unknown {
		return r.own(ctx, "complete claim", r.scripts.complete, id, string(token), "u", 0, "", r.channel())
	}
	return r.own(ctx, "complete claim", r.scripts.complete, id, string(token), "d", millis(c.TTL), bytesArg(c.Blob), r.channel())
}

// Release is dedup.Store's.
func (r *Redis) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	defer r.watchers.wake(id)
	return r.own(ctx, "release claim", r.scripts.release, id, string(token), r.channel())
}

// pingTTL is how long the key lives that Ping writes.
const pingTTL = 10 * time.Second

// Ping is dedup.Store's. Of a Cluster it tries one master. With
// RedisConfig.RequireNoeviction it also fails unless the policy is known to be right.
func (r *Redis) Ping(ctx context.Context) error {
	_, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		return do(ctx, r.client, 1, "set", r.prefix+"ping", "", "px", pingTTL.Milliseconds())
	})
	if err != nil {
		return fmt.Errorf("ping redis: %w", err)
	}
	if !r.requireNoeviction {
		return nil
	}
	switch policy, err := r.EvictionPolicy(ctx); {
	case err != nil:
		return fmt.Errorf("ping redis: %w", err)
	case policy != policyNoeviction:
		return fmt.Errorf("ping redis: maxmemory-policy is %s, which may evict claims; require_noeviction asks for %s", policy, policyNoeviction)
	}
	return nil
}

// Close is dedup.Store's. It closes the connections; a second Close does nothing.
func (r *Redis) Close() error {
	r.end()
	r.background.Wait()
	if err := r.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

func (r *Redis) key(id dedup.ID) string { return r.prefix + string(id) }

// own runs a script that only the owner of a claim gets applied.
func (r *Redis) own(ctx context.Context, verb string, s redisScript, id dedup.ID, args ...any) (dedup.Verdict, error) {
	reply, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		return eval(ctx, r.via, s, r.key(id), args...)
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", verb, err)
	}
	switch reply {
	case int64(ownerApplied):
		return dedup.Applied, nil
	case int64(ownerGone):
		return dedup.Gone, nil
	case int64(ownerFenced):
		return dedup.Fenced, nil
	case int64(ownerUnreadable):
		return 0, fmt.Errorf("%s: %w", verb, dedup.ErrUnreadable)
	default:
		return 0, fmt.Errorf("%s: unexpected reply of type %T", verb, reply)
	}
}

// claimArgs are the arguments of luaClaim.
func claimArgs(req dedup.ClaimRequest) []any {
	flag := func(on bool) int {
		if on {
			return 1
		}
		return 0
	}
	return []any{string(req.Token), millis(req.Lease), millis(req.TTL), flag(req.Takeover), bytesArg(req.Note), flag(req.Wait)}
}

// bytesArg is b as go-redis sends it; nil would be refused.
func bytesArg(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// tookClaim reports whether luaClaim answers that the claim is the caller's now.
func tookClaim(reply any) bool {
	list, _ := reply.([]any)
	return len(list) > 0 && (list[0] == int64(claimAcquired) || list[0] == int64(claimTakenOver))
}

// decodeFound reads the answer of luaClaim.
func decodeFound(reply any) (dedup.Found, error) {
	list, _ := reply.([]any)
	if len(list) == 0 {
		return dedup.Found{}, fmt.Errorf("unexpected reply of type %T", reply)
	}
	switch list[0] {
	case int64(claimAcquired):
		return dedup.Found{State: dedup.StateAcquired}, nil
	case int64(claimTakenOver):
		return dedup.Found{State: dedup.StateTakenOver}, nil
	case int64(claimUnreadable):
		return dedup.Found{}, dedup.ErrUnreadable
	}
	if len(list) != 3 {
		return dedup.Found{}, fmt.Errorf("unexpected reply of length %d", len(list))
	}
	ms, _ := list[1].(int64)
	value, _ := list[2].(string)
	if len(value) < headerLength {
		return dedup.Found{}, dedup.ErrUnreadable
	}
	left, blob := time.Duration(max(ms, 0))*time.Millisecond, []byte(value[headerLength:])
	switch list[0] {
	case int64(claimInProgress):
		return dedup.Found{State: dedup.StateInProgress, LeaseLeft: left, Blob: blob}, nil
	case int64(claimCompleted):
		return dedup.Found{State: dedup.StateCompleted, TTLLeft: left, Blob: blob}, nil
	default:
		return dedup.Found{State: dedup.StateUnknown, Blob: blob}, nil
	}
}
