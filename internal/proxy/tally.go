package proxy

import (
	"context"
	"sync"
)

// A tally counts what is running, and lets others wait until nothing is. Unlike a
// sync.WaitGroup it may grow from zero while somebody waits: on connections that are
// open, requests still come while the server stops.
type tally struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil if nobody waits
}

// Add counts n more.
func (t *tally) Add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

// Done counts one less.
func (t *tally) Done() { t.Add(-1) }

// wait waits until nothing runs, or for ctx. It reports whether nothing runs.
func (t *tally) wait(ctx context.Context) bool {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return true
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
		return true
	case <-ctx.Done():
		return false
	}
}
