package store

import "github.com/redis/go-redis/v9"

// The layout of an entry in Redis: one string, whose first headerLength bytes are
//
//	id1     magic and version of the layout
//	p|d|u   claimed (in progress, or its lease over) | completed | unknown
//	22      the owner's token
//	14      end of the lease in milliseconds of the server's clock, decimal; zeros of a record
//
// and the rest the claim's note or the record's bytes. The key's own expiry is the
// entry's. Scripts read and write exactly this; nobody else does.
const headerLength = 40

// redisScript is a Lua script: one key, one round trip, plain commands of Redis 6.
type redisScript struct {
	source string
	sha    string // the name the server knows it by
}

func newRedisScript(source string) redisScript {
	return redisScript{source: luaCommon + source, sha: redis.NewScript(luaCommon + source).Hash()}
}

// redisScripts are the operations of the store.
type redisScripts struct {
	claim, renew, complete, release, enroll, dismiss redisScript
}

func newRedisScripts() redisScripts {
	return redisScripts{
		claim:    newRedisScript(luaClaim),
		renew:    newRedisScript(luaRenew),
		complete: newRedisScript(luaComplete),
		release:  newRedisScript(luaRelease),
		enroll:   newRedisScript(luaEnroll),
		dismiss:  newRedisScript(luaDismiss),
	}
}

// What the claim script answers, first of a list.
const (
	claimAcquired   = 1
	claimTakenOver  = 2
	claimInProgress = 3 // then ms left of the lease, value
	claimUnknown    = 4 // then 0, value
	claimCompleted  = 5 // then ms left of the record, value
	claimUnreadable = 6
)

// What the other scripts answer.
const (
	ownerApplied    = 1
	ownerGone       = 2
	ownerFenced     = 3
	ownerUnreadable = 4
)

// luaCommon begins every script.
//
// fail hands an error of pcall on. Redis before 7 puts the place in the script before the
// code ("@user_script: 5: -OOM …"), which would hide the code from clients.
//
// force writes to the entry although the server is at maxmemory: a script that has
// already written is let through, and setting the expiry to what it is counts as a write.
// It is for entries that exist; a new one has to wait for room.
const luaCommon = `
local key = KEYS[1]
local function fail(e)
  local coded = string.match(e.err, '%-(%u+ .*)')
  if coded then return {err = coded} end
  return e
end
local function failed(r) return type(r) == 'table' and r.err end
local function force(...)
  local r = redis.pcall(...)
  if failed(r) and string.find(r.err, 'OOM', 1, true) then
    local ttl = redis.call('PTTL', key)
    if ttl > 0 then
      redis.call('PEXPIRE', key, ttl)
      r = redis.pcall(...)
    end
  end
  return r
end
local function parse(v)
  return string.match(v, '^id1([pdu])(......................)(%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
end
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function instant(ms) return string.format('%014.0f', ms) end
`

// luaClaim takes token, lease and TTL in ms, 1 to take over or 0, note. A claim of the
// same token gets a new lease and keeps its expiry.
const luaClaim = `
local v = redis.pcall('GET', key)
if failed(v) then return fail(v) end
local code, t = 1, nil
if v then
  local state, token, lease = parse(v)
  if not state then return {6} end
  if state == 'd' then return {5, redis.call('PTTL', key), v} end
  t = now()
  if state == 'p' then
    if token == ARGV[1] then
      local r = force('SETRANGE', key, 26, instant(t + ARGV[2]))
      if failed(r) then return fail(r) end
      return {1}
    end
    if lease - t > 0 then return {3, lease - t, v} end
  end
  if ARGV[4] ~= '1' then return {4, 0, v} end
  code = 2
end
local r = redis.pcall('SET', key, 'id1p' .. ARGV[1] .. instant((t or now()) + ARGV[2]) .. ARGV[5], 'PX', ARGV[3])
if failed(r) then return fail(r) end
return {code}
`

// luaRenew takes token, lease in ms. SETRANGE leaves the key's expiry alone, unless the
// claim would expire before its lease is over.
const luaRenew = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
if h == '' then return 2 end
local state, token = parse(h)
if not state then return 4 end
if state ~= 'p' or token ~= ARGV[1] then return 3 end
local r = force('SETRANGE', key, 26, instant(now() + ARGV[2]))
if failed(r) then return fail(r) end
local ttl = redis.call('PTTL', key) -- negative: somebody made it live for ever
if ttl >= 0 and ttl < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
return 1
`

// luaComplete takes token, d or u, TTL in ms, blob. A record of the same token stays as
// it is; NX because an empty string, which reads like no key, is somebody else's.
const luaComplete = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
local code, r = 1, nil
if h == '' then
  if ARGV[2] == 'u' then return 2 end
  r = redis.pcall('SET', key, 'id1d' .. ARGV[1] .. instant(0) .. ARGV[4], 'PX', ARGV[3], 'NX')
  if not r then return 4 end
  code = 2
else
  local state, token = parse(h)
  if not state then return 4 end
  if token ~= ARGV[1] then return 3 end
  if state == 'd' then return ARGV[2] == 'd' and 1 or 3 end
  if ARGV[2] == 'u' then
    r = force('SETRANGE', key, 3, 'u')
  else
    r = force('SET', key, 'id1d' .. token .. instant(0) .. ARGV[4], 'PX', ARGV[3])
  end
end
if failed(r) then return fail(r) end
return code
`

// luaRelease takes token.
const luaRelease = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
if h == '' then return 2 end
local state, token = parse(h)
if not state then return 4 end
if state ~= 'p' or token ~= ARGV[1] then return 3 end
redis.call('DEL', key)
return 1
`
