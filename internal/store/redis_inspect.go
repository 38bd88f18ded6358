package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

// luaLook takes the most bytes of the entry to answer. It answers nothing, 0 for what is
// no entry, or a list: p, d or u, token, ms left of the lease, ms left of the entry, size,
// the bytes or nothing.
const luaLook = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
if h == '' then return false end
local state, token, lease = parse(h)
if not state then return 0 end
local left = 0
if state ~= 'd' and state ~= 'u' then left = lease - now() end
local size = redis.call('STRLEN', key) - 40
local data = ''
if size > 0 and size <= tonumber(ARGV[1]) then data = redis.call('GETRANGE', key, 40, -1) end
return {state, token, left, redis.call('PTTL', key), size, data}
`

// luaFree takes token, the state that was seen (p, u or d), and channel.
const luaFree = `
local h = redis.pcall('GETRANGE', key, 0, 39)
if failed(h) then return fail(h) end
if h == '' then return 2 end
local state, token, lease = parse(h)
if not state then return 4 end
local is = state
if state ~= 'd' and state ~= 'u' then
  is = 'p'
  if ARGV[2] == 'u' and lease - now() <= 0 then is = 'u' end
end
if token ~= ARGV[1] or is ~= ARGV[2] then return 3 end
redis.call('DEL', key)
tell(state, ARGV[3])
return 1
`

// maxLookBlob is the size up to which Look reads an entry: more than any there is.
const maxLookBlob = 1 << 30

// Look is dedup.Store's.
func (r *Redis) Look(ctx context.Context, id dedup.ID) (dedup.Entry, error) {
	e, err := r.look(ctx, id, maxLookBlob)
	if err != nil {
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", err)
	}
	return e, nil
}

func (r *Redis) look(ctx context.Context, id dedup.ID, maxBlob int) (dedup.Entry, error) {
	reply, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		return nilIsNothing(eval(ctx, r.via, newRedisScript(luaLook), r.key(id), maxBlob))
	})
	if err != nil {
		return dedup.Entry{}, err
	}
	return decodeEntry(id, reply)
}

// nilIsNothing makes a reply of go-redis' error for none.
func nilIsNothing(reply any, err error) (any, error) {
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// decodeEntry reads the answer of luaLook.
func decodeEntry(id dedup.ID, reply any) (dedup.Entry, error) {
	if reply == nil {
		return dedup.Entry{}, nil
	}
	list, _ := reply.([]any)
	if len(list) != 6 {
		return dedup.Entry{}, dedup.ErrUnreadable
	}
	kind, _ := list[0].(string)
	token, _ := list[1].(string)
	lease, _ := list[2].(int64)
	ttl, _ := list[3].(int64)
	size, _ := list[4].(int64)
	data, _ := list[5].(string)
	e := dedup.Entry{ID: id, Token: dedup.Token(token), TTLLeft: time.Duration(max(ttl, 0)) * time.Millisecond, Size: int(size)}
	if len(data) > 0 {
		e.Blob = []byte(data)
	}
	switch {
	case kind == "d":
		e.State = dedup.StateCompleted
	case kind == "u" || lease <= 0:
		e.State = dedup.StateUnknown
	default:
		e.State, e.LeaseLeft = dedup.StateInProgress, time.Duration(lease)*time.Millisecond
	}
	return e, nil
}

// Free is dedup.Store's.
func (r *Redis) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	defer r.watchers.wake(id)
	return r.own(ctx, "free entry", newRedisScript(luaFree), id, string(token), seenLetter(state), r.channel())
}

// seenLetter is a state as scripts and statements take it.
func seenLetter(s dedup.State) string {
	switch s {
	case dedup.StateCompleted:
		return "d"
	case dedup.StateUnknown:
		return "u"
	default:
		return "p"
	}
}

// List is dedup.Store's. It asks by SCAN, one master after the other, and then for what it
// found in one round trip. A cursor is the address of a master, and SCAN's own.
func (r *Redis) List(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	page, err := r.list(ctx, req)
	if err != nil {
		return dedup.Page{}, fmt.Errorf("list entries: %w", redisError(err, false))
	}
	return page, nil
}

func (r *Redis) list(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	if err := stillOpen(ctx, false); err != nil {
		return dedup.Page{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	address, at, _ := strings.Cut(req.Cursor, " ")
	cursor, err := strconv.ParseUint(at, 10, 64)
	if req.Cursor != "" && err != nil {
		return dedup.Page{}, errCursor()
	}
	addresses, masters, err := r.masters(ctx)
	if err != nil || len(addresses) == 0 {
		return dedup.Page{}, err
	}
	n, found := slices.BinarySearch(addresses, address)
	if !found {
		cursor = 0 // of the first there is, or of the next one where this one is no master any more
	}
	if n == len(addresses) {
		return dedup.Page{}, nil
	}
	master := masters[addresses[n]]
	keys, cursor, err := master.Scan(ctx, cursor, globEscape(r.prefix)+"*", int64(req.Limit)).Result()
	if err != nil {
		return dedup.Page{}, err
	}
	page, err := r.lookAll(ctx, master, keys, req)
	switch {
	case cursor != 0:
		page.Next = fmt.Sprintf("%s %d", addresses[n], cursor)
	case n+1 < len(addresses):
		page.Next = addresses[n+1] + " 0"
	}
	return page, err
}

// masters returns the servers that hold keys, by address, and the addresses in order.
func (r *Redis) masters(ctx context.Context) ([]string, map[string]*redis.Client, error) {
	masters := map[string]*redis.Client{}
	var mu sync.Mutex
	err := r.eachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		address := "-" // of a single server or a Sentinel group, whose master may change
		if _, cluster := r.client.(*redis.ClusterClient); cluster {
			address = master.Options().Addr
		}
		mu.Lock()
		defer mu.Unlock()
		masters[address] = master
		return nil
	})
	addresses := make([]string, 0, len(masters))
	for a := range masters {
		addresses = append(addresses, a)
	}
	slices.Sort(addresses)
	return addresses, masters, err
}

// lookAll looks at what SCAN found. Scripts that the server does not know yet, and slots
// that are just moving, are asked for one by one.
func (r *Redis) lookAll(ctx context.Context, master *redis.Client, keys []string, req dedup.ListRequest) (dedup.Page, error) {
	var page dedup.Page
	script := newRedisScript(luaLook)
	pipe := master.Pipeline()
	ids := make([]dedup.ID, 0, len(keys))
	replies := make([]*redis.Cmd, 0, len(keys))
	for _, key := range keys {
		if id := strings.TrimPrefix(key, r.prefix); isID(id) {
			ids = append(ids, dedup.ID(id))
			replies = append(replies, pipe.EvalSha(ctx, script.sha, []string{key}, req.MaxBlob))
		}
	}
	if len(ids) == 0 {
		return page, nil
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, id := range ids {
		reply, err := nilIsNothing(replies[i].Result())
		var e dedup.Entry
		if err == nil {
			e, err = decodeEntry(id, reply)
		} else {
			e, err = r.look(ctx, id, req.MaxBlob)
		}
		if err != nil && !errors.Is(err, dedup.ErrUnreadable) {
			return page, err
		}
		addTo(&page, e, req)
	}
	return page, nil
}

// globEscape makes a prefix match nothing but itself in a pattern of SCAN.
func globEscape(prefix string) string {
	var b strings.Builder
	for i := range len(prefix) {
		if strings.IndexByte(`*?[]\^-`, prefix[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(prefix[i])
	}
	return b.String()
}
