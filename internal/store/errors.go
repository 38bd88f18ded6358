package store

import (
	"context"
	"fmt"
	"time"

	"idemproxy/internal/dedup"
)

// notApplied marks err as dedup.ErrNotApplied: the operation provably did not happen.
func notApplied(err error) error { return fmt.Errorf("%w: %w", dedup.ErrNotApplied, err) }

// stillOpen is the first step of every operation: it fails, with nothing applied, if the
// store is closed or the caller's context is over.
func stillOpen(ctx context.Context, closed bool) error {
	if closed {
		return notApplied(dedup.ErrStoreClosed)
	}
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	return nil
}

// millis is d in whole milliseconds, rounded up and at least 1, the grain of every store.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return max(ms, 1)
}
