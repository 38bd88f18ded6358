package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"idemproxy/internal/dedup"
)

// The members of a scope in Redis are one sorted set, KeyPrefix+"q:"+scope. It has, for
// each member, its ID with the score of its expiry in milliseconds of the server's clock,
// and "o"+ID with the score of its owner's fence, which is negative: see redisFence. One
// key, so that a script may touch it in a Cluster; two elements, since what a score can't
// hold is a token. The set lives as long as the last of its members.

// luaEnroll takes id, fence, TTL in ms, limit or 0. It answers 0, or the ms to wait.
const luaEnroll = `
local t = now()
local alive = string.format('(%.0f', t)
local over = redis.pcall('ZRANGEBYSCORE', key, 0, t, 'LIMIT', 0, 1000)
if failed(over) then return fail(over) end
for _, id in ipairs(over) do redis.call('ZREM', key, id, 'o' .. id) end
local limit = tonumber(ARGV[4])
if limit > 0 then
  local expiry = redis.call('ZSCORE', key, ARGV[1])
  if not (expiry and tonumber(expiry) > t) and redis.call('ZCOUNT', key, alive, '+inf') >= limit then
    local first = redis.call('ZRANGEBYSCORE', key, alive, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return math.max(1, math.ceil(first[2] - t))
  end
end
local leaves = t + ARGV[3]
if tonumber(redis.call('ZSCORE', key, 'o' .. ARGV[1]) or 0) == tonumber(ARGV[2]) then
  leaves = math.max(leaves, tonumber(redis.call('ZSCORE', key, ARGV[1]) or 0))
end
local r = redis.pcall('ZADD', key, string.format('%.0f', leaves), ARGV[1], ARGV[2], 'o' .. ARGV[1])
if failed(r) then return fail(r) end
local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
redis.call('PEXPIRE', key, string.format('%.0f', last[2] - t))
return 0
`

// luaDismiss takes id, fence.
const luaDismiss = `
local owner = redis.pcall('ZSCORE', key, 'o' .. ARGV[1])
if failed(owner) then return fail(owner) end
if owner and tonumber(owner) == tonumber(ARGV[2]) then redis.call('ZREM', key, ARGV[1], 'o' .. ARGV[1]) end
return 0
`

// Enroll is dedup.Store's. It does not wait for replicas: a member that a failover loses is
// one again when its claim is completed.
func (r *Redis) Enroll(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
	ms, err := r.register(ctx, r.scripts.enroll, e.Scope, string(e.ID), redisFence(e.Token), millis(e.TTL), e.Limit)
	if err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// Dismiss is dedup.Store's.
func (r *Redis) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	if _, err := r.register(ctx, r.scripts.dismiss, scope, string(id), redisFence(token)); err != nil {
		return fmt.Errorf("dismiss key: %w", err)
	}
	return nil
}

func (r *Redis) register(ctx context.Context, s redisScript, scope dedup.ScopeID, args ...any) (int64, error) {
	reply, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		return eval(ctx, r.via, s, r.prefix+"q:"+string(scope), args...)
	})
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply of type %T", reply)
	}
	return n, nil
}

// redisFence is what a score can hold of a token: 52 bits, below 0 so that it is no
// expiry.
func redisFence(token dedup.Token) int64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(token))
	return -1 - int64(hash.Sum64()>>12)
}
