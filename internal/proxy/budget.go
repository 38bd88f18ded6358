package proxy

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// A budget bounds what guarded requests may take of this process: how many there are at
// once, and how many bytes of their bodies are in memory.
type budget struct {
	requests atomic.Int64
	most     atomic.Int64 // 0: no bound
	bytes    room
	readers  chan struct{} // has room for those who read a large body; see operation
	metrics  *metrics.Metrics

	parked      atomic.Int64 // requests that wait for another's answer
	parkedBytes atomic.Int64 // of bytes, what they hold
}

func newBudget(c LimitsConfig, m *metrics.Metrics) *budget {
	b := &budget{readers: make(chan struct{}, runtime.GOMAXPROCS(0)), metrics: m}
	b.limit(c)
	return b
}

// limit changes the bounds. What requests have taken stays theirs, and counts.
func (b *budget) limit(c LimitsConfig) {
	b.most.Store(int64(c.MaxConcurrent))
	b.bytes.resize(int64(c.MaxBufferedBytes))
}

// enter admits one more request, until leave is called.
func (b *budget) enter() bool {
	n, most := b.requests.Add(1), b.most.Load()
	if most > 0 && n > most {
		b.requests.Add(-1)
		return false
	}
	return true
}

func (b *budget) leave() { b.requests.Add(-1) }

// park admits a request to wait for another's answer, until unpark is called, and counts
// it with those that wait instead of those that are served: however long they wait for one
// key, they leave room for others. There may be as many of them as may be served, and they
// may hold half of the bytes.
func (b *budget) park(held int64) bool {
	n, bytes := b.parked.Add(1), b.parkedBytes.Add(held)
	if most := b.most.Load(); most > 0 && n > most || bytes > b.bytes.bound()/2 {
		b.parked.Add(-1)
		b.parkedBytes.Add(-held)
		return false
	}
	b.requests.Add(-1)
	return true
}

// unpark counts a request that has waited with those that are served again, whether or not
// there is room: most of them are gone at once, and of one key one executes.
func (b *budget) unpark(held int64) {
	b.parked.Add(-1)
	b.parkedBytes.Add(-held)
	b.requests.Add(1)
}

// errNoRoom says that an answer found no room in the budget in time.
var errNoRoom = errors.New("no room for the answer in limits.max_buffered_bytes")

// errOverloaded says that the budget has no room now.
var errOverloaded = errors.New("no room in limits.max_buffered_bytes")

// overloaded is the refusal of a request that the budget has no room for.
func overloaded() *dedup.Rejection {
	return &dedup.Rejection{Reason: dedup.ReasonOverloaded, RetryAfter: time.Second, Detail: "The proxy has too many requests at the moment; nothing was sent on. Retry with the same key."}
}

// A hold is the part of a budget that one request has.
type hold struct {
	budget *budget
	held   int64
}

// try takes n more bytes if they are there now.
func (h *hold) try(n int64) bool {
	if !h.budget.bytes.try(n) {
		return false
	}
	h.took(n)
	return true
}

// wait takes n more bytes, as soon as they are there. It fails when ctx ends before, or
// when n is more than there will ever be.
func (h *hold) wait(ctx context.Context, n int64) error {
	if !h.budget.bytes.wait(ctx, n, h.held) {
		return errNoRoom
	}
	h.took(n)
	return nil
}

func (h *hold) took(n int64) {
	h.held += n
	h.budget.metrics.Buffered(n)
}

// free gives all bytes back.
func (h *hold) free() {
	if h.held > 0 {
		h.budget.bytes.free(h.held)
		h.budget.metrics.Buffered(-h.held)
		h.held = 0
	}
}

// firstRead is how much of a body is read before more room is asked for.
const firstRead = 4 << 10

// readSteps reads a body to its end, in steps of at most what is there already, and asks
// for the room of each step first: a caller that announces much and sends little holds
// little. The length is the announced one, or -1.
func readSteps(r io.Reader, length int64, room func(n int64) error) ([]byte, error) {
	var b []byte
	for {
		if len(b) == cap(b) {
			step := max(firstRead, cap(b))
			if length >= int64(cap(b)) { // the end takes a byte of room to be seen
				step = int(min(int64(step), length+1-int64(cap(b))))
			}
			if err := room(int64(step)); err != nil {
				return b, err
			}
			grown := make([]byte, len(b), cap(b)+step)
			copy(grown, b)
			b = grown
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// firstAnswer is the room that an answer of unknown length takes at first. If that is not
// enough it takes all that an answer may have, in one go: many answers that each wait for
// a little more could wait for each other.
const firstAnswer = 64 << 10

// answerRoom returns the room of an answer of at most limit bytes.
func (h *hold) answerRoom(ctx context.Context, length, limit int64) func(n int64) error {
	var used, held int64
	return func(n int64) error {
		used += n
		if used <= held {
			return nil
		}
		want := max(used, firstAnswer)
		switch {
		case length >= 0 && length < limit:
			want = max(used, length+1)
		case held > 0:
			want = max(used, limit)
		}
		err := h.wait(ctx, want-held)
		held = want
		return err
	}
}
