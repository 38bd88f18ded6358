package store

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"idemproxy/internal/dedup"
)

// EntryOverhead is what one entry of the memory store is taken to cost besides its ID,
// its token and its bytes, in bytes: the entry itself, its place in the map and in the
// order of expiry, and the allocator's rounding.
const EntryOverhead = 256

// memoryShards is how many independent locks and maps there are, a power of two.
const memoryShards = 64

// Memory is the dedup.Store inside the process: bounded, and gone with the process.
//
// It never evicts an entry that is alive; when it is full it says so. Expired entries go
// away by themselves, and at once when their room is needed. It keeps the Note and the
// Blob it is given, without copying: callers give them up. The blobs it returns are its
// own, shared by all who found them: nobody may change them.
type Memory struct {
	shards    [memoryShards]memoryShard
	registers memoryRegisters
	seed      maphash.Seed
	room      room
	trail     memoryTrail
	start     time.Time // instants are nanoseconds since start, on the monotonic clock
	closed    atomic.Bool
	stop      chan struct{}
	stopped   chan struct{}
	closeOnce sync.Once
	watchers  watchers
}

// NewMemory opens a Memory. It removes expired entries every cfg.CleanupInterval until it
// is closed. The cfg must be valid.
func NewMemory(cfg MemoryConfig) *Memory {
	m := &Memory{
		seed:    maphash.MakeSeed(),
		room:    room{maxEntries: int64(cfg.MaxEntries), maxBytes: int64(cfg.MaxBytes)},
		start:   time.Now(),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	for i := range m.shards {
		m.shards[i].init(&m.room, m.now)
	}
	m.registers.room, m.registers.now = &m.room, m.now
	go m.cleanUp(cfg.CleanupInterval)
	return m
}

// Claim is dedup.Store's. What is found without taking it costs a shared lock and no copy.
func (m *Memory) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	s := m.shard(req.ID)
	if found, taken := s.find(req); taken {
		return found, nil
	}
	var found dedup.Found
	err := m.inRoom(func() (err error) {
		found, err = s.claim(req)
		return err
	})
	if err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	return found, nil
}

// Renew is dedup.Store's.
func (m *Memory) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return 0, fmt.Errorf("renew lease: %w", err)
	}
	return m.shard(id).renew(id, token, lease), nil
}

// Complete is dedup.Store's.
func (m *Memory) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return 0, fmt.Errorf("complete claim: %w", err)
	}
	s := m.shard(id)
	var verdict dedup.Verdict
	err := m.inRoom(func() (err error) {
		verdict, err = s.complete(id, token, c)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("complete claim: %w", err)
	}
	m.watchers.wake(id)
	return verdict, nil
}

// Release is dedup.Store's.
func (m *Memory) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return 0, fmt.Errorf("release claim: %w", err)
	}
	verdict := m.shard(id).release(id, token)
	m.watchers.wake(id)
	return verdict, nil
}

// Enroll is dedup.Store's. A member takes room like an entry without bytes, in bytes only.
func (m *Memory) Enroll(ctx context.Context, e dedup.Enrolment) (wait time.Duration, err error) {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	err = m.inRoom(func() (err error) {
		wait, err = m.registers.enroll(e)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	return wait, nil
}

// Dismiss is dedup.Store's.
func (m *Memory) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return fmt.Errorf("dismiss key: %w", err)
	}
	m.registers.dismiss(scope, id, token)
	return nil
}

// Watch is dedup.Store's.
func (m *Memory) Watch(id dedup.ID) (<-chan struct{}, func()) { return m.watchers.watch(id) }

// Ping is dedup.Store's: it fails with dedup.ErrStoreFull if not even an empty claim
// would fit.
func (m *Memory) Ping(ctx context.Context) error {
	if err := stillOpen(ctx, m.closed.Load()); err != nil {
		return fmt.Errorf("ping memory store: %w", err)
	}
	size := (&memoryEntry{id: "ping"}).size()
	err := m.inRoom(func() error {
		if err := m.room.reserve(1, size); err != nil {
			return err
		}
		m.room.giveBack(1, size)
		return nil
	})
	if err != nil {
		return fmt.Errorf("ping memory store: %w", err)
	}
	return nil
}

// Close is dedup.Store's. It forgets everything, ends the cleaning goroutine and waits
// for it; a second Close does nothing. It never fails.
func (m *Memory) Close() error {
	m.closeOnce.Do(func() {
		m.closed.Store(true)
		close(m.stop)
		<-m.stopped
		for i := range m.shards {
			m.shards[i].forget()
		}
		m.registers.forget()
	})
	return nil
}

// Usage returns how many entries there are and the bytes they are taken to cost, expired
// ones that have not been removed yet included.
func (m *Memory) Usage() (entries int, bytes dedup.Size) {
	return int(m.room.entries.Load()), dedup.Size(m.room.bytes.Load())
}

// inRoom runs op, and once more after removing everything expired if op found the store
// full.
func (m *Memory) inRoom(op func() error) error {
	if err := op(); err == nil {
		return nil
	}
	m.removeExpired()
	return op()
}

// removeExpired removes what has expired.
func (m *Memory) removeExpired() {
	for i := range m.shards {
		for m.shards[i].removeExpired() {
		}
	}
	m.registers.removeExpired()
}

// cleanUp removes expired entries now and then, until Close.
func (m *Memory) cleanUp(every time.Duration) {
	defer close(m.stopped)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
			m.removeExpired()
		}
	}
}

func (m *Memory) shard(id dedup.ID) *memoryShard {
	return &m.shards[maphash.String(m.seed, string(id))%memoryShards]
}

func (m *Memory) now() int64 { return int64(time.Since(m.start)) }

// after is the instant d after now, d kept to the millisecond; the far future is the
// last instant there is.
func after(now int64, d time.Duration) int64 {
	ms := millis(d)
	if ms > (math.MaxInt64-now)/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return now + ms*int64(time.Millisecond)
}
