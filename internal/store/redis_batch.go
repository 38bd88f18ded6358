package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxUnderWay is how many round trips are under way at once before commands wait to
	// share one. A command that finds fewer is sent at once and by itself.
	maxUnderWay = 2
	// maxBatch bounds the commands that share a round trip.
	maxBatch = 128
	// largeArgument is the size from which a command has a round trip of its own, so that
	// small ones don't wait for it.
	largeArgument = 16 << 10
)

// errNotTaken says that a command was still waiting for a round trip when its time was
// over: it was never sent.
var errNotTaken = errors.New("no round trip to redis began in time")

// redisBatch sends commands that come at the same time in one round trip: with many
// callers most of what a command costs is its system calls and the wait for a connection.
// It is for one server; a Cluster's commands go to many.
type redisBatch struct {
	client  *redis.Client
	timeout time.Duration

	mu       sync.Mutex
	underWay int
	waiting  []*batched
}

// batched is a command that waits for a round trip to share.
type batched struct {
	cmd  redis.Cmder
	done chan struct{} // closed when cmd has its reply or error
}

// Process implements processor.
func (b *redisBatch) Process(ctx context.Context, cmd redis.Cmder) error {
	if large(cmd) {
		return b.client.Process(ctx, cmd)
	}
	b.mu.Lock()
	if b.underWay < maxUnderWay {
		b.underWay++
		b.mu.Unlock()
		defer b.next()
		return b.client.Process(ctx, cmd)
	}
	w := &batched{cmd, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.done:
		return cmd.Err()
	case <-ctx.Done():
		return b.leave(ctx, w)
	}
}

// leave gives a command up. Its result is nobody's business any more; if it has been sent,
// it may be applied.
func (b *redisBatch) leave(ctx context.Context, w *batched) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.waiting, w); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		return errNotTaken
	}
	return ctx.Err()
}

// next ends a round trip, and begins the next one for those that wait.
func (b *redisBatch) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.underWay--
		return
	}
	n := min(len(b.waiting), maxBatch)
	batch := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	go b.send(batch)
}

func (b *redisBatch) send(batch []*batched) {
	defer b.next()
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	pipe := b.client.Pipeline()
	for _, w := range batch {
		_ = pipe.Process(ctx, w.cmd) // only queues it
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, w := range batch {
		close(w.done)
	}
}

// large reports whether a command has an argument that others should not wait for.
func large(cmd redis.Cmder) bool {
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		b, ok := arg.([]byte)
		return ok && len(b) >= largeArgument
	})
}
