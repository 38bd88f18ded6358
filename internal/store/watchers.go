package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"idemproxy/internal/dedup"
)

// watchers are those in this process who watch IDs of one store. The zero value is ready
// for a store whose every change is made by this process.
type watchers struct {
	count atomic.Int64 // without any, nobody takes the lock
	mu    sync.Mutex
	of    map[dedup.ID][]chan struct{}

	// Of a store on a server:
	start   func() // begins to listen; nil where nobody else changes anything
	inForce bool   // what others change is heard of
	warn    func(error)
}

// watch is dedup.Store's Watch.
func (w *watchers) watch(id dedup.ID) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wake := make(chan struct{}, 1)
	if w.of == nil {
		w.of = make(map[dedup.ID][]chan struct{})
	}
	w.of[id] = append(w.of[id], wake)
	w.count.Add(1)
	if w.start != nil {
		w.start()
	}
	if w.start == nil || w.inForce {
		wake <- struct{}{}
	}
	return wake, sync.OnceFunc(func() { w.leave(id, wake) })
}

func (w *watchers) leave(id dedup.ID, wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var others []chan struct{}
	for _, other := range w.of[id] {
		if other != wake {
			others = append(others, other)
		}
	}
	if w.of[id] = others; len(others) == 0 {
		delete(w.of, id)
	}
	w.count.Add(-1)
}

// wake tells those who watch an ID.
func (w *watchers) wake(id dedup.ID) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	tell(w.of[id])
}

func tell(watching []chan struct{}) {
	for _, wake := range watching {
		select {
		case wake <- struct{}{}:
		default: // it has been told and has not looked yet
		}
	}
}

// comeIntoForce says that whatever happens from now on is heard of.
func (w *watchers) comeIntoForce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inForce = true
	for _, watching := range w.of {
		tell(watching)
	}
}

// comeOutOfForce says that nothing is heard of for now, and reports whether anything was
// before.
func (w *watchers) comeOutOfForce() (was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, w.inForce = w.inForce, false
	return was
}

// warnBy sets what is called when nothing is heard of the server, once until it is again.
func (w *watchers) warnBy(warn func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warn = warn
}

func (w *watchers) warnOf(err error) {
	w.mu.Lock()
	warn := w.warn
	w.mu.Unlock()
	if warn != nil {
		warn(err)
	}
}

// The pauses between two attempts to listen.
const (
	firstListenPause = 100 * time.Millisecond
	maxListenPause   = 30 * time.Second
)

// keepListening listens until ctx ends. The function listens on one connection: it calls
// comeIntoForce once it does, wake for what it hears, and returns when the connection is
// no good any more.
func (w *watchers) keepListening(ctx context.Context, listen func(context.Context) error) {
	wait, warned := firstListenPause, false
	for {
		err := listen(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case w.comeOutOfForce():
			wait, warned = firstListenPause, false
		case !warned:
			warned = true
			w.warnOf(err)
		}
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, maxListenPause)
	}
}
