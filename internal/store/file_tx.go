package store

import (
	"bytes"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
)

// Names of the buckets in the file.
const (
	bucketEntries = "entries" // ID → entry
	bucketExpiry  = "expiry"  // expiry, ID → nothing
	bucketMeta    = "meta"    // what Ping writes

	bucketMembers  = "members"        // scope, /, ID → entry without bytes
	bucketLeaving  = "members expiry" // expiry, scope, /, ID → nothing
	bucketPresence = "members count"  // scope → how many members, those whose time is over included
)

// fileTx is the operations of the store inside one transaction of the file. They decide
// before they write, so an operation that fails has changed nothing; but one that fails
// to write spoils the transaction.
type fileTx struct {
	entries, expiry *bbolt.Bucket
	now             int64
}

func newFileTx(tx *bbolt.Tx, now int64) fileTx {
	return fileTx{entries: tx.Bucket([]byte(bucketEntries)), expiry: tx.Bucket([]byte(bucketExpiry)), now: now}
}

// load returns the entry of the ID and whether it is alive; nil if there is none.
func (x fileTx) load(id dedup.ID) (e *memoryEntry, alive bool, err error) {
	b := x.entries.Get([]byte(id))
	if b == nil {
		return nil, false, nil
	}
	if e, err = decodeFileEntry(id, b); err != nil {
		return nil, false, err
	}
	return e, x.now < e.expiry, nil
}

// find looks without taking: taken is false if the ID is free, or the request's to take.
func (x fileTx) find(req dedup.ClaimRequest) (found dedup.Found, taken bool, err error) {
	e, alive, err := x.load(req.ID)
	if err != nil || !alive || e.takeable(req, x.now) {
		return dedup.Found{}, false, err
	}
	found = e.found(x.now)
	found.Blob = bytes.Clone(found.Blob) // the file's pages are only ours within the transaction
	return found, true, nil
}

func (x fileTx) claim(req dedup.ClaimRequest) (dedup.Found, error) {
	old, alive, err := x.load(req.ID)
	if err != nil {
		return dedup.Found{}, err
	}
	state := dedup.StateAcquired
	if alive {
		switch {
		case !old.takeable(req, x.now):
			found, _, err := x.find(req)
			return found, err
		case old.kind == entryClaimed && old.token == req.Token:
			renewed := *old
			renewed.leaseEnd = after(x.now, req.Lease)
			return dedup.Found{State: dedup.StateAcquired}, x.put(old, &renewed)
		}
		state = dedup.StateTakenOver
	}
	return dedup.Found{State: state}, x.put(old, &memoryEntry{
		id: req.ID, token: req.Token, kind: entryClaimed, data: req.Note,
		leaseEnd: after(x.now, req.Lease), expiry: after(x.now, req.TTL),
	})
}

func (x fileTx) renew(id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	old, alive, err := x.load(id)
	switch {
	case err != nil:
		return 0, err
	case !alive:
		return dedup.Gone, nil
	case old.kind != entryClaimed || old.token != token:
		return dedup.Fenced, nil
	}
	renewed := *old
	renewed.leaseEnd = after(x.now, lease)
	renewed.expiry = max(old.expiry, renewed.leaseEnd)
	return dedup.Applied, x.put(old, &renewed)
}

func (x fileTx) complete(id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	old, alive, err := x.load(id)
	verdict := dedup.Applied
	switch {
	case err != nil:
		return 0, err
	case !alive && c.Unknown:
		return dedup.Gone, nil
	case !alive:
		verdict = dedup.Gone
	case old.token != token, old.kind == entryCompleted && c.Unknown:
		return dedup.Fenced, nil
	case old.kind == entryCompleted: // repeated: the first record stays
		return dedup.Applied, nil
	case c.Unknown:
		ended := *old
		ended.kind = entryUnknown
		return dedup.Applied, x.put(old, &ended)
	}
	return verdict, x.put(old, &memoryEntry{
		id: id, token: token, kind: entryCompleted, data: c.Blob, expiry: after(x.now, c.TTL),
	})
}

func (x fileTx) release(id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	old, alive, err := x.load(id)
	switch {
	case err != nil:
		return 0, err
	case !alive:
		return dedup.Gone, nil
	case old.kind != entryClaimed || old.token != token:
		return dedup.Fenced, nil
	}
	return dedup.Applied, x.remove(old)
}

// put keeps e in the place of old, which may be nil. What it encodes is e's own, so that
// e may still lie in a page of the file.
func (x fileTx) put(old, e *memoryEntry) error {
	value := encodeFileEntry(e)
	if old == nil || old.expiry != e.expiry {
		if old != nil {
			if err := x.expiry.Delete(expiryKey(old)); err != nil {
				return spoiled{err}
			}
		}
		if err := x.expiry.Put(expiryKey(e), nil); err != nil {
			return spoiled{err}
		}
	}
	if err := x.entries.Put([]byte(e.id), value); err != nil {
		return spoiled{err}
	}
	return nil
}

func (x fileTx) remove(e *memoryEntry) error {
	if err := x.expiry.Delete(expiryKey(e)); err != nil {
		return spoiled{err}
	}
	if err := x.entries.Delete([]byte(e.id)); err != nil {
		return spoiled{err}
	}
	return nil
}

// due returns, copied, the first keys of the order of expiry that are over, at most limit.
func (x fileTx) due(limit int) [][]byte {
	var keys [][]byte
	c := x.expiry.Cursor()
	for k, _ := c.First(); k != nil && len(keys) < limit; k, _ = c.Next() {
		if len(k) >= 8 && int64(binary.BigEndian.Uint64(k)) > x.now/int64(time.Millisecond) {
			break
		}
		keys = append(keys, bytes.Clone(k))
	}
	return keys
}

// purge removes some of what has expired, at most limit entries, and reports how many.
// What the order of expiry has is removed even if it can't be read any more.
func (x fileTx) purge(limit int) (int, error) {
	keys := x.due(limit)
	for _, k := range keys {
		if len(k) > 8 {
			id := k[8:]
			e, err := decodeFileEntry(dedup.ID(id), x.entries.Get(id))
			if err != nil || e.expiry <= x.now {
				if err := x.entries.Delete(id); err != nil {
					return 0, spoiled{err}
				}
			}
		}
		if err := x.expiry.Delete(k); err != nil {
			return 0, spoiled{err}
		}
	}
	return len(keys), nil
}

// spoiled marks an error of writing, after which the transaction must not be committed.
type spoiled struct{ error }

// Unwrap is errors.Unwrap's.
func (s spoiled) Unwrap() error { return s.error }
