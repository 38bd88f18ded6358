package store

import (
	"context"
	"fmt"
	"time"

	"idemproxy/internal/dedup"
)

// trailTTL is how long an audit trail stays after its last entry.
const trailTTL = 30 * 24 * time.Hour

// luaTell takes the length of the trail, its TTL in ms, entry.
const luaTell = `
local r = redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[1], '*', 'e', ARGV[3])
if failed(r) then return fail(r) end
redis.call('PEXPIRE', key, ARGV[2])
return 1
`

// Tell is dedup.Store's: the trail is a stream. An entry whose reply was lost may be there
// twice.
func (r *Redis) Tell(ctx context.Context, entry []byte) error {
	_, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		return eval(ctx, r.via, newRedisScript(luaTell), r.trailKey(), dedup.TrailLength, trailTTL.Milliseconds(), bytesArg(entry))
	})
	if err != nil {
		return fmt.Errorf("write audit trail: %w", err)
	}
	return nil
}

// Told is dedup.Store's. A position is the stream's.
func (r *Redis) Told(ctx context.Context, after string) ([][]byte, string, error) {
	reply, err := r.repeat(ctx, func(ctx context.Context) (any, error) {
		if after == "" {
			return nilIsNothing(do(ctx, r.via, 1, "xrevrange", r.trailKey(), "+", "-", "count", 1))
		}
		return nilIsNothing(do(ctx, r.via, 4, "xread", "count", dedup.TrailLength, "streams", r.trailKey(), after))
	})
	if err != nil {
		return nil, "", fmt.Errorf("read audit trail: %w", err)
	}
	entries, at := decodeTrail(reply, after == "")
	switch {
	case after == "" && at == "":
		return nil, "0-0", nil
	case after == "":
		return nil, at, nil
	case at == "":
		return nil, after, nil
	}
	return entries, at, nil
}

func (r *Redis) trailKey() string { return r.prefix + "trail" }

// decodeTrail reads the entries of a stream, and the position of the last of them. XREAD
// puts them below the name of the stream, in a list or, by RESP3, in a map.
func decodeTrail(reply any, bare bool) (entries [][]byte, at string) {
	list, _ := reply.([]any)
	if !bare {
		switch streams := reply.(type) {
		case map[any]any:
			for _, v := range streams {
				list, _ = v.([]any)
			}
		case []any:
			if len(streams) == 1 {
				stream, _ := streams[0].([]any)
				if len(stream) == 2 {
					list, _ = stream[1].([]any)
				}
			}
		}
	}
	for _, item := range list {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			continue
		}
		at, _ = pair[0].(string)
		fields, _ := pair[1].([]any)
		if len(fields) == 2 {
			entry, _ := fields[1].(string)
			entries = append(entries, []byte(entry))
		}
	}
	return entries, at
}
