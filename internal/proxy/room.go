package proxy

import (
	"container/list"
	"context"
	"sync"
)

// A room is a number of bytes that many share, in the order in which they ask. Its size
// may change while it is in use, which no semaphore of golang.org/x/sync allows.
type room struct {
	mu      sync.Mutex
	size    int64
	taken   int64
	waiting list.List // of *waiter
}

// A waiter waits for n more bytes, beside those that it has.
type waiter struct {
	n, has  int64
	decided chan struct{} // closed when it got them, or never will
	got     bool
}

// bound is the size.
func (r *room) bound() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size
}

// try takes n bytes if they are there now, and nobody asked before.
func (r *room) try(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(n)
}

func (r *room) take(n int64) bool {
	if r.waiting.Len() > 0 || r.taken+n > r.size {
		return false
	}
	r.taken += n
	return true
}

// wait takes n bytes, beside those that the caller has, as soon as they are there. It
// reports false when ctx ends before, or when the room is too small for them all.
func (r *room) wait(ctx context.Context, n, has int64) bool {
	r.mu.Lock()
	if ctx.Err() != nil || has+n > r.size {
		r.mu.Unlock()
		return false
	}
	if r.take(n) {
		r.mu.Unlock()
		return true
	}
	w := &waiter{n: n, has: has, decided: make(chan struct{})}
	place := r.waiting.PushBack(w)
	r.mu.Unlock()

	select {
	case <-w.decided:
		return w.got
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.decided: // just now
		return w.got
	default:
		r.waiting.Remove(place)
		r.serve() // it may have been in the way of others
		return false
	}
}

// free gives n bytes back.
func (r *room) free(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= n
	r.serve()
}

// resize changes the size. What is taken stays taken: a room that became too small gives
// nothing away until enough was given back.
func (r *room) resize(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size = size
	r.serve()
}

// serve decides about those who wait, in their order, as far as there is room.
func (r *room) serve() {
	for place := r.waiting.Front(); place != nil; {
		next := place.Next()
		w := place.Value.(*waiter)
		fits, never := r.taken+w.n <= r.size, w.has+w.n > r.size
		if !fits && !never {
			return
		}
		r.waiting.Remove(place)
		if w.got = !never; w.got {
			r.taken += w.n
		}
		close(w.decided)
		place = next
	}
}
