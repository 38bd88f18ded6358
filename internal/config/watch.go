package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a file must stay the same to count as written: many programs
	// empty a file before they write it.
	settle = 100 * time.Millisecond
	// lookAnyway is for file systems that tell of no changes.
	lookAnyway = time.Minute
)

// Watch sends whenever a file has other contents than before, or is there no more, until
// ctx ends. It is the folder that is watched, since editors rename a new file over the old
// one and Kubernetes exchanges a symlink beside it. The error says why the system can't
// tell of changes; they are then noticed within a minute.
func Watch(ctx context.Context, file string) (<-chan struct{}, error) {
	w := &watch{file: file, seen: contents(file), changed: make(chan struct{}, 1)}
	notices, err := fsnotify.NewWatcher()
	if err == nil {
		w.notices, w.events, w.errors = notices, notices.Events, notices.Errors
		err = w.follow()
	}
	go w.run(ctx)
	if err != nil {
		return w.changed, fmt.Errorf("watch folder of configuration: %w", err)
	}
	return w.changed, nil
}

// A watch looks at a file whenever something happens in its folder.
type watch struct {
	file    string
	notices *fsnotify.Watcher // nil if the system gives none
	events  <-chan fsnotify.Event
	errors  <-chan error
	seen    [sha256.Size]byte
	changed chan struct{}
}

// contents is a digest of what a file holds; zeros if it can't be read.
func contents(file string) (sum [sha256.Size]byte) {
	f, err := os.Open(file)
	if err != nil {
		return sum
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum
	}
	h.Sum(sum[:0])
	return sum
}

// follow watches the folder of the file, and that of what it is a symlink to.
func (w *watch) follow() error {
	if w.notices == nil {
		return nil
	}
	err := w.notices.Add(filepath.Dir(w.file))
	if target, broken := filepath.EvalSymlinks(w.file); broken == nil {
		err = errors.Join(err, w.notices.Add(filepath.Dir(target)))
	}
	return err
}

func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(lookAnyway)
	defer ticker.Stop()
	if w.notices != nil {
		defer w.notices.Close()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.events:
		case <-w.errors: //nolint:errcheck // it says that notices were lost, and the file is looked at now
		case <-ticker.C:
		}
		now, ok := w.settled(ctx)
		if !ok {
			return
		}
		if now != w.seen {
			w.seen = now
			select {
			case w.changed <- struct{}{}:
			default: // it was said already, and nobody has looked yet
			}
		}
		_ = w.follow() // a folder may have been exchanged; if it can't be watched there is the ticker
	}
}

// settled is what the file holds once it stays the same, whatever else happens around it.
func (w *watch) settled(ctx context.Context) (now [sha256.Size]byte, ok bool) {
	for now = contents(w.file); ; {
		pause := time.After(settle)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return now, false
			case <-w.events:
			case <-pause:
				waiting = false
			}
		}
		before := now
		if now = contents(w.file); now == before {
			return now, true
		}
	}
}
