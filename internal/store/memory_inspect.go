package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"idemproxy/internal/dedup"
)

// Look is dedup.Store's.
func (m *Memory) Look(ctx context.Context, id dedup.ID) (dedup.Entry, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", err)
	}
	return m.shard(id).look(id), nil
}

// List is dedup.Store's. A cursor is the number of a shard and the last ID that was seen in
// it; each page sorts the rest of its shard outside the lock.
func (m *Memory) List(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return dedup.Page{}, fmt.Errorf("list entries: %w", err)
	}
	number, last, _ := strings.Cut(req.Cursor, " ")
	n := 0
	if req.Cursor != "" {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 0 || n >= memoryShards {
			return dedup.Page{}, errCursor()
		}
	}
	var page dedup.Page
	for ; n < memoryShards; n++ {
		s := &m.shards[n]
		ids := s.after(dedup.ID(last))
		slices.Sort(ids)
		for _, id := range ids[:min(len(ids), req.Limit-page.Looked)] {
			addTo(&page, s.look(id), req)
			last = string(id)
		}
		if page.Looked >= req.Limit {
			page.Next = fmt.Sprintf("%d %s", n, last)
			break
		}
		last = ""
	}
	return page, nil
}

// Free is dedup.Store's.
func (m *Memory) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return 0, fmt.Errorf("free entry: %w", err)
	}
	verdict := m.shard(id).free(id, token, state)
	m.watchers.wake(id)
	return verdict, nil
}

// Tell is dedup.Store's.
func (m *Memory) Tell(ctx context.Context, entry []byte) error {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return fmt.Errorf("write audit trail: %w", err)
	}
	m.trail.tell(entry)
	return nil
}

// Told is dedup.Store's.
func (m *Memory) Told(ctx context.Context, after string) ([][]byte, string, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return nil, "", fmt.Errorf("read audit trail: %w", err)
	}
	return m.trail.told(after)
}

// memoryTrail is the audit trail of a Memory: the last entries, and how many there were.
type memoryTrail struct {
	mu      sync.Mutex
	entries [][]byte
	count   int
}

func (t *memoryTrail) tell(entry []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == dedup.TrailLength {
		t.entries = slices.Delete(t.entries, 0, 1)
	}
	t.entries = append(t.entries, slices.Clone(entry))
	t.count++
}

func (t *memoryTrail) told(after string) ([][]byte, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := strconv.Itoa(t.count)
	if after == "" {
		return nil, end, nil
	}
	seen, err := strconv.Atoi(after)
	if err != nil {
		return nil, "", errPosition()
	}
	unseen := max(0, min(t.count-seen, len(t.entries)))
	return slices.Clone(t.entries[len(t.entries)-unseen:]), end, nil
}

func (s *memoryShard) look(id dedup.ID) dedup.Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.now()
	if e := s.alive(id, now); e != nil {
		return e.entry(now)
	}
	return dedup.Entry{}
}

// after returns the IDs of the shard that sort after one.
func (s *memoryShard) after(last dedup.ID) []dedup.ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := make([]dedup.ID, 0, len(s.entries))
	for id := range s.entries {
		if id > last {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *memoryShard) free(id dedup.ID, token dedup.Token, state dedup.State) dedup.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.alive(id, now)
	switch {
	case e == nil:
		return dedup.Gone
	case !e.still(token, state, now):
		return dedup.Fenced
	}
	s.remove(e)
	return dedup.Applied
}

// entry describes the entry to an operator.
func (e *memoryEntry) entry(now int64) dedup.Entry {
	found := e.found(now)
	return dedup.Entry{
		ID: e.id, State: found.State, LeaseLeft: found.LeaseLeft, TTLLeft: time.Duration(e.expiry - now),
		Size: len(e.data), Blob: e.data, Token: e.token,
	}
}

// still reports whether the entry is what an operator saw.
func (e *memoryEntry) still(token dedup.Token, state dedup.State, now int64) bool {
	if e.token != token {
		return false
	}
	if state == dedup.StateInProgress { // that its lease is over by now makes it no other
		return e.kind == entryClaimed
	}
	return e.found(now).State == state
}
