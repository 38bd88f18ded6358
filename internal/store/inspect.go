package store

import (
	"errors"
	"fmt"
	"strings"

	"idemproxy/internal/dedup"
)

// idLength is the length of every dedup.ID, in bytes.
const idLength = 43

func errCursor() error { return notApplied(fmt.Errorf("list entries: %w", dedup.ErrCursor)) }

func errPosition() error {
	return notApplied(errors.New("read audit trail: not a position of this store"))
}

// addTo puts an entry that was looked at on a page, if it was asked for.
func addTo(page *dedup.Page, e dedup.Entry, req dedup.ListRequest) {
	page.Looked++
	if e.State == 0 || req.Only != 0 && e.State != req.Only {
		return
	}
	if len(e.Blob) > req.MaxBlob {
		e.Blob = nil
	}
	page.Entries = append(page.Entries, e)
}

// isID reports whether a string looks like a dedup.ID: what else lies in a store has
// another form.
func isID(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return len(s) == idLength && strings.Trim(s, letters) == ""
}
