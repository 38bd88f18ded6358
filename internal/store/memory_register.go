package store

import (
	"container/heap"
	"sync"
	"time"

	"idemproxy/internal/dedup"
)

// memoryRegisters is the members of every scope that has any.
type memoryRegisters struct {
	room   *room
	now    func() int64
	mu     sync.Mutex
	scopes map[dedup.ScopeID]*memoryRegister
}

// memoryRegister is the members of one scope: entries without bytes.
type memoryRegister struct {
	members map[dedup.ID]*memoryEntry
	order   expiryOrder
}

func (r *memoryRegisters) enroll(e dedup.Enrolment) (wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.leave(e.Scope, now)
	scope := r.scopes[e.Scope]
	if scope == nil {
		scope = &memoryRegister{members: make(map[dedup.ID]*memoryEntry)}
	}
	m := scope.members[e.ID]
	if m == nil {
		if n := len(scope.members); e.Limit > 0 && n >= e.Limit {
			return time.Duration(scope.order[0].expiry - now), nil
		}
		m = &memoryEntry{id: e.ID, kind: entryCompleted}
		if err := r.room.reserve(0, m.size()); err != nil {
			return 0, err
		}
		if r.scopes == nil {
			r.scopes = make(map[dedup.ScopeID]*memoryRegister)
		}
		r.scopes[e.Scope] = scope
		scope.members[e.ID] = m
		heap.Push(&scope.order, m)
	}
	expiry := after(now, e.TTL)
	if m.token == e.Token {
		expiry = max(expiry, m.expiry)
	}
	m.token, m.expiry = e.Token, expiry
	heap.Fix(&scope.order, m.heapIndex)
	return 0, nil
}

func (r *memoryRegisters) dismiss(name dedup.ScopeID, id dedup.ID, token dedup.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if scope := r.scopes[name]; scope != nil {
		if m := scope.members[id]; m != nil && m.token == token {
			r.remove(name, scope, m)
		}
	}
}

// leave removes the members of a scope whose time is over.
func (r *memoryRegisters) leave(name dedup.ScopeID, now int64) {
	scope := r.scopes[name]
	for scope != nil && len(scope.order) > 0 && scope.order[0].expiry <= now {
		r.remove(name, scope, scope.order[0])
	}
}

func (r *memoryRegisters) remove(name dedup.ScopeID, scope *memoryRegister, m *memoryEntry) {
	delete(scope.members, m.id)
	heap.Remove(&scope.order, m.heapIndex)
	r.room.giveBack(0, m.size())
	if len(scope.members) == 0 {
		delete(r.scopes, name)
	}
}

// removeExpired removes what is over in any scope.
func (r *memoryRegisters) removeExpired() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for name := range r.scopes {
		r.leave(name, now)
	}
}

// forget drops everything.
func (r *memoryRegisters) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, scope := range r.scopes {
		for _, m := range scope.members {
			r.remove(name, scope, m)
		}
	}
}
