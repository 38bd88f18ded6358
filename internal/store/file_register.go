package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
)

// fileRegister is the members of all scopes inside one transaction of the file. They are
// kept as entries are, in buckets of their own, under the name of the scope and the ID.
type fileRegister struct {
	fileTx
	count *bbolt.Bucket
}

func (x fileTx) register() fileRegister {
	tx := x.entries.Tx()
	return fileRegister{
		fileTx: fileTx{entries: tx.Bucket([]byte(bucketMembers)), expiry: tx.Bucket([]byte(bucketLeaving)), now: x.now},
		count:  tx.Bucket([]byte(bucketPresence)),
	}
}

// Enroll is dedup.Store's. A refusal writes nothing, unless somebody's time is over.
func (f *File) Enroll(ctx context.Context, e dedup.Enrolment) (wait time.Duration, err error) {
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	err = f.view(func(x fileTx) (err error) {
		wait, err = x.register().refuse(e)
		return err
	})
	if err == nil && wait == 0 {
		newEntry := e.Limit > 0 // what is there already finds room beyond the limit of the file
		wait, err = written(ctx, f, newEntry, func(x fileTx) (time.Duration, error) { return x.register().enroll(e) })
	}
	if err != nil {
		return 0, fmt.Errorf("enroll key: %w", closing(err))
	}
	return wait, nil
}

// Dismiss is dedup.Store's.
func (f *File) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	_, err := written(ctx, f, false, func(x fileTx) (struct{}, error) { return struct{}{}, x.register().dismiss(scope, id, token) })
	if err != nil {
		return fmt.Errorf("dismiss key: %w", err)
	}
	return nil
}

// refuse looks without writing: it returns how long to wait if the scope is full, and 0 if
// it is not, or if that can't be said before purging.
func (r fileRegister) refuse(e dedup.Enrolment) (wait time.Duration, err error) {
	if e.Limit == 0 || r.members(e.Scope) < e.Limit || len(r.due(1)) > 0 {
		return 0, nil
	}
	if _, known, err := r.load(memberID(e.Scope, e.ID)); err != nil || known {
		return 0, err
	}
	return r.firstLeaves(e.Scope)
}

func (r fileRegister) enroll(e dedup.Enrolment) (wait time.Duration, err error) {
	if e.Limit > 0 && r.members(e.Scope) >= e.Limit {
		for n := fileBatch; n == fileBatch; {
			if n, err = r.purge(fileBatch); err != nil {
				return 0, err
			}
		}
		if wait, err := r.refuse(e); err != nil || wait > 0 {
			return wait, err
		}
	}
	id := memberID(e.Scope, e.ID)
	old, _, err := r.load(id)
	if err != nil {
		return 0, err
	}
	if old == nil {
		if err := r.setMembers(e.Scope, r.members(e.Scope)+1); err != nil {
			return 0, err
		}
	}
	expiry := after(r.now, e.TTL)
	if old != nil && old.token == e.Token {
		expiry = max(expiry, old.expiry)
	}
	return 0, r.put(old, &memoryEntry{id: id, token: e.Token, kind: entryCompleted, expiry: expiry})
}

func (r fileRegister) dismiss(scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	m, _, err := r.load(memberID(scope, id))
	if err != nil || m == nil || m.token != token {
		return err
	}
	return r.leave(expiryKey(m))
}

// purge removes some of those whose time is over, at most limit, and reports how many.
func (r fileRegister) purge(limit int) (int, error) {
	keys := r.due(limit)
	for _, k := range keys {
		if err := r.leave(k); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// leave removes the member that the order of expiry has at k.
func (r fileRegister) leave(k []byte) error {
	if err := r.expiry.Delete(k); err != nil {
		return spoiled{err}
	}
	if len(k) < 8 {
		return nil
	}
	scope, _, _ := strings.Cut(string(k[8:]), "/")
	if err := r.entries.Delete(k[8:]); err != nil {
		return spoiled{err}
	}
	return r.setMembers(dedup.ScopeID(scope), r.members(dedup.ScopeID(scope))-1)
}

// members is how many members the scope has, those included whose time is over.
func (r fileRegister) members(scope dedup.ScopeID) int {
	if b := r.count.Get([]byte(scope)); len(b) == 8 {
		return int(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r fileRegister) setMembers(scope dedup.ScopeID, n int) error {
	name, err := []byte(scope), error(nil)
	if n > 0 {
		err = r.count.Put(name, binary.BigEndian.AppendUint64(nil, uint64(n)))
	} else {
		err = r.count.Delete(name)
	}
	if err != nil {
		return spoiled{err}
	}
	return nil
}

// firstLeaves is how long until the first member of a scope leaves: at least a
// millisecond. It looks at all of them, which only those wait for who are refused.
func (r fileRegister) firstLeaves(scope dedup.ScopeID) (time.Duration, error) {
	first := int64(math.MaxInt64)
	prefix := string(scope) + "/"
	c := r.entries.Cursor()
	for k, v := c.Seek([]byte(prefix)); strings.HasPrefix(string(k), prefix); k, v = c.Next() {
		m, err := decodeFileEntry(dedup.ID(k), v)
		if err != nil {
			return 0, err
		}
		first = min(first, m.expiry)
	}
	return time.Duration(max(first-r.now, int64(time.Millisecond))), nil
}

// memberID is where the register has a member; no name of a scope has a slash.
func memberID(scope dedup.ScopeID, id dedup.ID) dedup.ID {
	return dedup.ID(scope) + "/" + id
}
