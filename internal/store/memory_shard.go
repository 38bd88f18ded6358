package store

import (
	"bytes"
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"idemproxy/internal/dedup"
)

// Kinds of entry a Memory holds.
const (
	entryClaimed   = 'p' // in progress, or its lease is over
	entryUnknown   = 'u' // marked unknown
	entryCompleted = 'd' // a record
)

// memoryEntry is a claim or a record. It changes only under its shard's exclusive lock.
type memoryEntry struct {
	id        dedup.ID
	token     dedup.Token
	kind      byte
	data      []byte // note or blob
	leaseEnd  int64  // instant from which the claim's lease is over
	expiry    int64  // instant from which the entry does not exist
	heapIndex int    // place in the shard's order of expiry
}

// size is what the entry is taken to cost, in bytes.
func (e *memoryEntry) size() int64 {
	return int64(len(e.id)+dedup.TokenLength+len(e.data)) + EntryOverhead
}

// takeable reports whether a claim with this request takes the entry.
func (e *memoryEntry) takeable(req dedup.ClaimRequest, now int64) bool {
	switch e.kind {
	case entryClaimed:
		return e.token == req.Token || req.Takeover && now >= e.leaseEnd
	case entryUnknown:
		return req.Takeover
	default:
		return false
	}
}

// found describes the entry to somebody who can't take it.
func (e *memoryEntry) found(now int64) dedup.Found {
	switch {
	case e.kind == entryCompleted:
		return dedup.Found{State: dedup.StateCompleted, Blob: e.data, TTLLeft: time.Duration(e.expiry - now)}
	case e.kind == entryClaimed && now < e.leaseEnd:
		return dedup.Found{State: dedup.StateInProgress, Blob: e.data, LeaseLeft: time.Duration(e.leaseEnd - now)}
	default:
		return dedup.Found{State: dedup.StateUnknown, Blob: e.data}
	}
}

// memoryShard is the part of a Memory behind one lock.
type memoryShard struct {
	room     *room
	now      func() int64 // read under the lock, so that nobody acts on an older instant than the last one did
	mu       sync.RWMutex
	entries  map[dedup.ID]*memoryEntry
	order    expiryOrder
	earliest atomic.Int64 // expiry of the first in order, or the last instant there is
}

func (s *memoryShard) init(r *room, now func() int64) {
	s.room, s.now = r, now
	s.entries = make(map[dedup.ID]*memoryEntry)
	s.earliest.Store(math.MaxInt64)
}

// find looks without taking: taken is false if the ID is free, or the request's to take.
func (s *memoryShard) find(req dedup.ClaimRequest) (found dedup.Found, taken bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.now()
	e := s.alive(req.ID, now)
	if e == nil || e.takeable(req, now) {
		return dedup.Found{}, false
	}
	return e.found(now), true
}

func (s *memoryShard) claim(req dedup.ClaimRequest) (dedup.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	state := dedup.StateAcquired
	if e := s.alive(req.ID, now); e != nil {
		switch {
		case !e.takeable(req, now):
			return e.found(now), nil
		case e.kind == entryClaimed && e.token == req.Token:
			e.leaseEnd = after(now, req.Lease)
			return dedup.Found{State: dedup.StateAcquired}, nil
		}
		state = dedup.StateTakenOver
	}
	err := s.put(&memoryEntry{
		id: req.ID, token: req.Token, kind: entryClaimed, data: clip(req.Note),
		leaseEnd: after(now, req.Lease), expiry: after(now, req.TTL),
	})
	if err != nil {
		return dedup.Found{}, err
	}
	return dedup.Found{State: state}, nil
}

func (s *memoryShard) renew(id dedup.ID, token dedup.Token, lease time.Duration) dedup.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.alive(id, now)
	switch {
	case e == nil:
		return dedup.Gone
	case e.kind != entryClaimed || e.token != token:
		return dedup.Fenced
	}
	e.leaseEnd = after(now, lease)
	if e.expiry < e.leaseEnd {
		e.expiry = e.leaseEnd
		heap.Fix(&s.order, e.heapIndex)
		s.noteEarliest()
	}
	return dedup.Applied
}

func (s *memoryShard) complete(id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.alive(id, now)
	verdict := dedup.Applied
	switch {
	case e == nil && c.Unknown:
		return dedup.Gone, nil
	case e == nil:
		verdict = dedup.Gone
	case e.token != token, e.kind == entryCompleted && c.Unknown:
		return dedup.Fenced, nil
	case e.kind == entryCompleted: // repeated: the first record stays
		return dedup.Applied, nil
	case c.Unknown:
		e.kind = entryUnknown
		return dedup.Applied, nil
	}
	err := s.put(&memoryEntry{
		id: id, token: token, kind: entryCompleted, data: clip(c.Blob), expiry: after(now, c.TTL),
	})
	if err != nil {
		return 0, err
	}
	return verdict, nil
}

func (s *memoryShard) release(id dedup.ID, token dedup.Token) dedup.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.alive(id, now)
	switch {
	case e == nil:
		return dedup.Gone
	case e.kind != entryClaimed || e.token != token:
		return dedup.Fenced
	}
	s.remove(e)
	return dedup.Applied
}

// alive returns the entry of the ID, or nil if there is none or it is expired.
func (s *memoryShard) alive(id dedup.ID, now int64) *memoryEntry {
	if e := s.entries[id]; e != nil && now < e.expiry {
		return e
	}
	return nil
}

// put keeps e in the place of what its ID had. It fails, with nothing changed, if e does
// not fit.
func (s *memoryShard) put(e *memoryEntry) error {
	entries, size := int64(1), e.size()
	old := s.entries[e.id]
	if old != nil {
		entries, size = 0, size-old.size()
	}
	if err := s.room.reserve(entries, size); err != nil {
		return err
	}
	if old != nil {
		heap.Remove(&s.order, old.heapIndex)
	}
	s.entries[e.id] = e
	heap.Push(&s.order, e)
	s.noteEarliest()
	return nil
}

func (s *memoryShard) remove(e *memoryEntry) {
	delete(s.entries, e.id)
	heap.Remove(&s.order, e.heapIndex)
	s.noteEarliest()
	s.room.giveBack(1, e.size())
}

// expiredAtOnce bounds how many expired entries are removed under one hold of the lock.
const expiredAtOnce = 512

// removeExpired removes some of what has expired and reports whether it removed any.
// Where there is nothing to remove it takes no lock.
func (s *memoryShard) removeExpired() bool {
	if s.earliest.Load() > s.now() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := 0, s.now()
	for ; n < expiredAtOnce && len(s.order) > 0 && s.order[0].expiry <= now; n++ {
		s.remove(s.order[0])
	}
	return n > 0
}

// forget drops everything.
func (s *memoryShard) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		s.room.giveBack(1, e.size())
	}
	s.entries, s.order = make(map[dedup.ID]*memoryEntry), nil // not nil: an operation may still be under way
	s.earliest.Store(math.MaxInt64)
}

func (s *memoryShard) noteEarliest() {
	if len(s.order) == 0 {
		s.earliest.Store(math.MaxInt64)
		return
	}
	s.earliest.Store(s.order[0].expiry)
}

// clip returns b without spare capacity worth mentioning, so that what is counted is what
// is held.
func clip(b []byte) []byte {
	if cap(b)-len(b) > len(b)/8+64 {
		return bytes.Clone(b)
	}
	return b
}
