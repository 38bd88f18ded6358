package store

import (
	"context"

	"idemproxy/internal/dedup"
)

// Look is dedup.Store's.
func (e *encoded) Look(ctx context.Context, id dedup.ID) (dedup.Entry, error) {
	entry, err := e.Store.Look(ctx, id)
	if err == nil {
		e.reveal(&entry)
	}
	return entry, err
}

// List is dedup.Store's.
func (e *encoded) List(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	page, err := e.Store.List(ctx, req)
	for i := range page.Entries {
		e.reveal(&page.Entries[i])
	}
	return page, err
}

// reveal decodes what an entry holds. An operator can free what can't be read, too.
func (e *encoded) reveal(entry *dedup.Entry) {
	if len(entry.Blob) == 0 {
		return
	}
	blob, err := e.codec.decode(entry.ID, entry.Blob)
	entry.Blob, entry.Unreadable = blob, err != nil
}
