package store

import "github.com/redis/go-redis/v9"

// The layout of an entry in Redis: one string, whose first headerLength bytes are
//
//	id1     magic and version of the layout
//	p|w     claimed (in progress, or its lease over) | the same, and somebody waits for its end;
//	        only of a claim with a note, for an owner that writes none does not know w
//	d|u     completed | unknown
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
//
// tell publishes the end of a claim that somebody waits for. Whether that succeeds, and is
// allowed to this user, is no business of the owner's.
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
  return string.match(v, '^id1([pwdu])(......................)(%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
end
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function instant(ms) return string.format('%014.0f', ms) end
local function claimed(state) return state == 'p' or state == 'w' end
local function tell(state, channel)
  if state == 'w' then redis.pcall('PUBLISH', channel, key) end
end
`

// luaClaim takes token, lease and TTL in ms, 1 to take over or 0, note, 1 to wait or 0. A
// claim of the same token gets a new lease and keeps its expiry. Who takes over is waited
// for as the old owner was.
const luaClaim = `
local v = redis.pcall('GET', key)
if failed(v) then return fail(v) end
local code, t, letter = 1, nil, 'p'
if v then
  local state, token, lease = parse(v)
  if not state then return {6} end
  if state == 'd' then return {5, redis.call('PTTL', key), v} end
  t = now()
  if claimed(state) then
    letter = state
    if token == ARGV[1] then
      local r = force('SETRANGE', key, 26, instant(t + ARGV[2]))
      if failed(r) then return fail(r) end
      return {1}
    end
    if lease - t > 0 then
      if ARGV[6] == '1' and state == 'p' and #v > 40 then force('SETRANGE', key, 3, 'w') end
      return {3, lease - t, v}
    end
  end
  if ARGV[4] ~= '1' then return {4, 0, v} end
  code = 2
end
local r = redis.pcall('SET', key, 'id1' .. letter .. ARGV[1] .. instant((t or now()) + ARGV[2]) .. ARGV[5], 'PX', ARGV[3])
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
if not claimed(state) or token ~= ARGV[1] then return 3 end
local r = force('SETRANGE', key, 26, instant(now() + ARGV[2]))
if failed(r) then return fail(r) end
local ttl = redis.call('PTTL', key) -- negative: somebody made it live for ever
if ttl >= 0 and ttl < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
return 1
`

// luaComplete takes token, d or u, TTL in ms, blob, channel. A record of the same token stays as
// it is; NX because an empty string, which reads like no key, is somebody else's.
const luaComplete = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
local code, r, before = 1, nil, nil
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
  before = state
  if ARGV[2] == 'u' then
    r = force('SETRANGE', key, 3, 'u')
  else
    r = force('SET', key, 'id1d' .. token .. instant(0) .. ARGV[4], 'PX', ARGV[3])
  end
end
if failed(r) then return fail(r) end
tell(before, ARGV[5])
return code
`

// luaRelease takes token, channel.
const luaRelease = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
if h == '' then return 2 end
local state, token = parse(h)
if not state then return 4 end
if not claimed(state) or token ~= ARGV[1] then return 3 end
redis.call('DEL', key)
tell(state, ARGV[2])
return 1
`
