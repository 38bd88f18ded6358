package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"

	"idemproxy/internal/dedup"
)

// trailKey begins the keys of the audit trail in bucketMeta; its number follows.
const trailKey = "trail"

// Look is dedup.Store's.
func (f *File) Look(ctx context.Context, id dedup.ID) (found dedup.Entry, err error) {
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", err)
	}
	err = f.view(func(x fileTx) error {
		e, alive, err := x.load(id)
		if err == nil && alive {
			found = e.entry(x.now)
			found.Blob = bytes.Clone(found.Blob)
		}
		return err
	})
	if err != nil {
		return dedup.Entry{}, fmt.Errorf("look at entry: %w", closing(err))
	}
	return found, nil
}

// List is dedup.Store's. A cursor is the last ID that was seen. Each page is a transaction
// of its own, so that none keeps old pages of the file from being used again for long.
func (f *File) List(ctx context.Context, req dedup.ListRequest) (page dedup.Page, err error) {
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return dedup.Page{}, fmt.Errorf("list entries: %w", err)
	}
	err = f.view(func(x fileTx) error {
		c := x.entries.Cursor()
		k, v := c.Seek([]byte(req.Cursor))
		if req.Cursor != "" && string(k) == req.Cursor {
			k, v = c.Next()
		}
		for ; k != nil; k, v = c.Next() {
			if page.Looked >= req.Limit {
				return nil
			}
			var seen dedup.Entry // nothing that can be read, or that is alive
			if e, err := decodeFileEntry(dedup.ID(k), v); err == nil && x.now < e.expiry {
				seen = e.entry(x.now)
			}
			before := len(page.Entries)
			addTo(&page, seen, req)
			if len(page.Entries) > before {
				last := &page.Entries[before]
				last.Blob = bytes.Clone(last.Blob)
			}
			page.Next = string(k)
		}
		page.Next = ""
		return nil
	})
	if err != nil {
		return dedup.Page{}, fmt.Errorf("list entries: %w", closing(err))
	}
	return page, nil
}

// Free is dedup.Store's.
func (f *File) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	verdict, err := written(ctx, f, false, func(x fileTx) (dedup.Verdict, error) {
		e, alive, err := x.load(id)
		switch {
		case err != nil:
			return 0, err
		case !alive:
			return dedup.Gone, nil
		case !e.still(token, state, x.now):
			return dedup.Fenced, nil
		}
		return dedup.Applied, x.remove(e)
	})
	if err != nil {
		return 0, fmt.Errorf("free entry: %w", err)
	}
	f.watchers.wake(id)
	return verdict, nil
}

// Tell is dedup.Store's.
func (f *File) Tell(ctx context.Context, entry []byte) error {
	_, err := written(ctx, f, false, func(x fileTx) (struct{}, error) {
		meta := x.meta()
		n, err := meta.NextSequence()
		if err == nil {
			err = meta.Put(trailAt(n), entry)
		}
		if err == nil && n > dedup.TrailLength {
			err = meta.Delete(trailAt(n - dedup.TrailLength))
		}
		if err != nil {
			return struct{}{}, spoiled{err}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("write audit trail: %w", err)
	}
	return nil
}

// Told is dedup.Store's.
func (f *File) Told(ctx context.Context, after string) (entries [][]byte, at string, err error) {
	if err := stillOpen(ctx, f.closed.Load()); err != nil {
		return nil, "", fmt.Errorf("read audit trail: %w", err)
	}
	seen, bad := strconv.ParseUint(after, 10, 64)
	if after != "" && bad != nil {
		return nil, "", errPosition()
	}
	err = f.view(func(x fileTx) error {
		meta := x.meta()
		end := meta.Sequence()
		at = strconv.FormatUint(end, 10)
		if after == "" {
			return nil
		}
		c := meta.Cursor()
		for k, v := c.Seek(trailAt(seen + 1)); bytes.HasPrefix(k, []byte(trailKey)); k, v = c.Next() {
			entries = append(entries, bytes.Clone(v))
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("read audit trail: %w", closing(err))
	}
	return entries, at, nil
}

func (x fileTx) meta() *bbolt.Bucket { return x.entries.Tx().Bucket([]byte(bucketMeta)) }

func trailAt(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte(trailKey), n) }
