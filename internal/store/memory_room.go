package store

import (
	"sync/atomic"

	"idemproxy/internal/dedup"
)

// room counts what all shards of a Memory hold together. Its limits are never passed,
// not even for a moment.
type room struct {
	maxEntries, maxBytes int64
	entries, bytes       atomic.Int64
}

// reserve takes room, or fails with dedup.ErrStoreFull and takes none. Negative amounts
// give back and never fail.
func (r *room) reserve(entries, bytes int64) error {
	if !add(&r.entries, entries, r.maxEntries) {
		return notApplied(dedup.ErrStoreFull)
	}
	if !add(&r.bytes, bytes, r.maxBytes) {
		r.entries.Add(-entries)
		return notApplied(dedup.ErrStoreFull)
	}
	return nil
}

func (r *room) giveBack(entries, bytes int64) {
	r.entries.Add(-entries)
	r.bytes.Add(-bytes)
}

// add adds n to count unless that makes it grow beyond limit.
func add(count *atomic.Int64, n, limit int64) bool {
	for {
		old := count.Load()
		if n > 0 && n > limit-old {
			return false
		}
		if count.CompareAndSwap(old, old+n) {
			return true
		}
	}
}
