package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"

	"idemproxy/internal/dedup"
)

// fileLockWait is how long Open waits for a process that is just closing the file.
const fileLockWait = 100 * time.Millisecond

// File is the dedup.Store in one file of this machine, for one process at a time. What it
// has acknowledged is on disk: it survives a crash of the process, of the machine, and a
// power cut, as far as the disk keeps what it has synced.
//
// Concurrent operations share one write and one sync of the disk; what is found without
// taking it writes nothing. Expired entries are removed in the background and their room
// is used again; the file does not become smaller.
//
// Instants are wall-clock time. While the process runs, a clock that is set changes
// nothing; while it does not, leases and expiries move with it.
type File struct {
	db        *bbolt.DB
	path      string
	timeout   time.Duration
	maxSize   dedup.Size
	start     time.Time // instants are nanoseconds since 1970 in whole milliseconds, counted from start
	ops       chan *fileOp
	stop      chan struct{}
	stopped   chan struct{}
	closed    atomic.Bool
	closeOnce sync.Once
	closeErr  error
	watchers  watchers
	// Only the writer uses these.
	broken    error
	fullUntil int64
}

// NewFile opens a File, and makes it, and the folder it is in, if it is not there. It
// fails at once if another process has it open. The cfg must be valid.
func NewFile(cfg Config) (*File, error) {
	f := &File{
		path: cfg.File.Path, timeout: cfg.Timeout, maxSize: cfg.File.MaxSize, start: time.Now(),
		ops: make(chan *fileOp, fileBatch), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := sheltered(f.open); err != nil {
		return nil, err
	}
	go f.writer()
	return f, nil
}

// open opens the file and makes what is missing in it.
func (f *File) open() (err error) {
	f.db, err = bbolt.Open(f.path, 0o600, &bbolt.Options{Timeout: fileLockWait, FreelistType: bbolt.FreelistMapType, NoStatistics: true})
	if errors.Is(err, boltErrors.ErrTimeout) {
		return fmt.Errorf("%s is in use by another process: one process can have it at a time", f.path)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", f.path, err)
	}
	if err := f.prepare(); err != nil {
		_ = f.db.Close()
		return fmt.Errorf("prepare %s: %w", f.path, err)
	}
	return nil
}

func (f *File) prepare() error {
	missing := false
	err := f.db.View(func(tx *bbolt.Tx) error {
		missing = tx.Bucket([]byte(bucketPresence)) == nil // the youngest
		return nil
	})
	if err != nil || !missing {
		return err
	}
	err = f.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketEntries, bucketExpiry, bucketMeta, bucketMembers, bucketLeaving, bucketPresence} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.path)) // or a power cut may take the file's name
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Claim is dedup.Store's. What is found without taking it is read beside the writer.
func (f *File) Claim(ctx context.Context, req dedup.ClaimRequest) (found dedup.Found, err error) {
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	var taken bool
	err = f.view(func(x fileTx) (err error) {
		found, taken, err = x.find(req)
		return err
	})
	if err == nil && !taken {
		found, err = written(ctx, f, true, func(x fileTx) (dedup.Found, error) { return x.claim(req) })
	}
	if err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", closing(err))
	}
	return found, nil
}

// Renew is dedup.Store's.
func (f *File) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	verdict, err := written(ctx, f, false, func(x fileTx) (dedup.Verdict, error) { return x.renew(id, token, lease) })
	if err != nil {
		return 0, fmt.Errorf("renew lease: %w", err)
	}
	return verdict, nil
}

// Complete is dedup.Store's. The record may make the file larger than FileConfig.MaxSize.
func (f *File) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	verdict, err := written(ctx, f, false, func(x fileTx) (dedup.Verdict, error) { return x.complete(id, token, c) })
	if err != nil {
		return 0, fmt.Errorf("complete claim: %w", err)
	}
	f.watchers.wake(id)
	return verdict, nil
}

// Release is dedup.Store's.
func (f *File) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	verdict, err := written(ctx, f, false, func(x fileTx) (dedup.Verdict, error) { return x.release(id, token) })
	if err != nil {
		return 0, fmt.Errorf("release claim: %w", err)
	}
	f.watchers.wake(id)
	return verdict, nil
}

// Watch is dedup.Store's.
func (f *File) Watch(id dedup.ID) (<-chan struct{}, func()) { return f.watchers.watch(id) }

// Ping is dedup.Store's. It needs as much room as a claim.
func (f *File) Ping(ctx context.Context) error {
	_, err := written(ctx, f, true, func(x fileTx) (struct{}, error) {
		if err := x.entries.Tx().Bucket([]byte(bucketMeta)).Put([]byte("ping"), []byte{byte(x.now / int64(time.Millisecond))}); err != nil {
			return struct{}{}, spoiled{err}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("ping file store: %w", err)
	}
	return nil
}

// Close is dedup.Store's. It waits for the transaction under way; a second Close does
// nothing.
func (f *File) Close() error {
	f.closeOnce.Do(func() {
		f.closed.Store(true)
		close(f.stop)
		<-f.stopped
		if err := f.db.Close(); err != nil {
			f.closeErr = fmt.Errorf("close %s: %w", f.path, err)
		}
	})
	return f.closeErr
}

// written runs an operation by the writer, within the store's timeout. The result is the
// operation's only once the writer is done with it: a caller who gave up must not read it.
func written[T any](ctx context.Context, f *File, newEntry bool, op func(fileTx) (T, error)) (T, error) {
	var none T
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var result T
	err := f.write(ctx, newEntry, func(x fileTx) (err error) {
		result, err = op(x)
		return err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

// closing is err, or dedup.ErrStoreClosed if the file was closed meanwhile.
func closing(err error) error {
	if errors.Is(err, boltErrors.ErrDatabaseNotOpen) {
		return notApplied(dedup.ErrStoreClosed)
	}
	return err
}

// now is the present in whole milliseconds.
func (f *File) now() int64 {
	ms := f.start.UnixMilli() + time.Since(f.start).Milliseconds()
	return ms * int64(time.Millisecond)
}
