package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"

	"idemproxy/internal/dedup"
)

const (
	fileBatch      = 512                    // most operations, or entries purged, in one transaction
	filePurgeEvery = 500 * time.Millisecond // between two looks for what has expired
	fileFullFor    = time.Second            // how long a full file refuses new claims without trying
)

// fileOp is one operation on its way through the writer.
type fileOp struct {
	run      func(fileTx) error // decides and writes; may be run again after a failed transaction
	newEntry bool               // it may need room for an entry that is not there
	taken    atomic.Bool        // by the writer, or by the caller who gave up
	done     chan error
}

// write hands an operation to the writer and waits until it is on disk. An operation that
// the writer has begun may be applied although the context is over.
func (f *File) write(ctx context.Context, newEntry bool, run func(fileTx) error) error {
	op := &fileOp{run: run, newEntry: newEntry, done: make(chan error, 1)}
	select {
	case f.ops <- op:
	case <-f.stop:
		return notApplied(dedup.ErrStoreClosed)
	case <-ctx.Done():
		return notApplied(ctx.Err())
	}
	select {
	case err := <-op.done:
		return err
	case <-f.stopped: // the writer may have ended it, or never seen it
		select {
		case err := <-op.done:
			return err
		default:
			return notApplied(dedup.ErrStoreClosed)
		}
	case <-ctx.Done():
		if op.taken.CompareAndSwap(false, true) {
			return notApplied(ctx.Err())
		}
		return ctx.Err()
	}
}

// writer is the one goroutine that changes the file: whatever waits while one transaction
// goes to disk shares the next one. No timer delays anybody.
func (f *File) writer() {
	defer close(f.stopped)
	purge := time.NewTicker(filePurgeEvery)
	defer purge.Stop()
	for {
		select {
		case <-f.stop:
			return
		case op := <-f.ops:
			f.commit(f.gather(op))
		case <-purge.C:
			if f.purge() == fileBatch {
				purge.Reset(time.Millisecond) // there is more, but callers come first
			} else {
				purge.Reset(filePurgeEvery)
			}
		}
	}
}

// gather takes what waits, without waiting for more.
func (f *File) gather(first *fileOp) []*fileOp {
	var batch []*fileOp
	for op := first; ; {
		if op.taken.CompareAndSwap(false, true) {
			batch = append(batch, op)
		}
		if len(batch) == fileBatch {
			return batch
		}
		select {
		case op = <-f.ops:
		default:
			return batch
		}
	}
}

// commit applies a batch in one transaction. If that fails with nothing applied, each
// operation gets a transaction of its own, so that none fails for another's sake.
func (f *File) commit(batch []*fileOp) {
	results := make([]error, len(batch))
	err := f.apply(batch, results)
	if err != nil && len(batch) > 1 && errors.Is(err, dedup.ErrNotApplied) {
		for i, op := range batch {
			if err := f.apply([]*fileOp{op}, results[i:i+1]); err != nil {
				results[i] = err
			}
			op.done <- results[i]
		}
		return
	}
	for i, op := range batch {
		if err != nil {
			results[i] = err
		}
		op.done <- results[i]
	}
}

// apply runs operations in one transaction and fills in their own results. Its error is
// about the transaction as a whole.
func (f *File) apply(ops []*fileOp, results []error) error {
	if len(ops) == 0 {
		return nil
	}
	if f.broken != nil {
		return notApplied(f.broken)
	}
	grows := false
	for _, op := range ops {
		grows = grows || op.newEntry
	}
	if grows && f.now() < f.fullUntil {
		return notApplied(dedup.ErrStoreFull)
	}
	f.limit(grows)
	err := f.update(func(x fileTx) error {
		for i, op := range ops {
			results[i] = op.run(x)
			if errors.As(results[i], new(spoiled)) {
				return results[i]
			}
		}
		return nil
	})
	if grows && errors.Is(err, dedup.ErrStoreFull) {
		for f.purge() == fileBatch { // the next ones find the room
		}
		f.fullUntil = after(f.now(), fileFullFor)
	}
	return err
}

// limit sets how large the file may become: what is claimed can end beyond the limit.
func (f *File) limit(grows bool) {
	f.db.MaxSize = 0
	if grows {
		f.db.MaxSize = int(f.maxSize)
	}
}

// update runs fn in a transaction, and says what its failure means. Only the failure to
// write the last page leaves open what is in the file; after it nobody can say what the
// disk has, so nothing more is written.
func (f *File) update(fn func(fileTx) error) error {
	begun := false
	err := sheltered(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			if err := fn(newFileTx(tx, f.now())); err != nil {
				return err
			}
			begun = true
			return nil
		})
	})
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return notApplied(fmt.Errorf("%w: %w", dedup.ErrStoreFull, err))
	case !begun || strings.HasPrefix(err.Error(), "file resize error"):
		return notApplied(err)
	default:
		f.broken = fmt.Errorf("%s can't be trusted after a failed write, restart: %w", f.path, err)
		return f.broken
	}
}

// isFull reports whether there was no room in the file or on its disk. bbolt gives some
// errors of the system as text only.
func isFull(err error) bool {
	if errors.Is(err, boltErrors.ErrMaxSizeReached) {
		return true
	}
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) || strings.HasSuffix(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}

// purge removes some of what has expired and reports how many entries, or members. What it can't
// remove now it leaves for later: nobody sees it any more.
func (f *File) purge() (n int) {
	if f.broken != nil {
		return 0
	}
	var due bool
	_ = f.view(func(x fileTx) error {
		due = len(x.due(1)) > 0 || len(x.register().due(1)) > 0
		return nil
	})
	if !due {
		return 0
	}
	f.limit(false)
	err := f.update(func(x fileTx) (err error) {
		if n, err = x.purge(fileBatch); err != nil {
			return err
		}
		members, err := x.register().purge(fileBatch)
		n = max(n, members)
		return err
	})
	if err != nil {
		return 0
	}
	return n
}

// view runs fn on what is in the file.
func (f *File) view(fn func(fileTx) error) error {
	return sheltered(func() error {
		return f.db.View(func(tx *bbolt.Tx) error { return fn(newFileTx(tx, f.now())) })
	})
}

// sheltered makes errors of the panics by which bbolt, or the memory it maps, tells that
// the file is damaged.
func sheltered(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged file: %w: %v", dedup.ErrUnreadable, p)
		}
	}()
	return fn()
}
