package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keys is what an operator can learn of keys, and do to them, by hand: the decisions, over
// what a Store holds. The command line and the control listener share it.
//
// What it removes it leaves word of in the store's audit trail: see Action.
type Keys struct {
	Store Store
	By    string // who acts, for the audit trail: a name of the operator's
}

// Errors of Keys, alone or wrapped. In all of these cases nothing was changed.
var (
	// ErrKeyFree says that there is nothing under the key.
	ErrKeyFree = errors.New("the key is free")
	// ErrKeyLive says that a request with the key is being executed.
	ErrKeyLive = errors.New("a request with the key is being executed")
	// ErrKeyCompleted says that there is an answer under the key: to release it is to purge.
	ErrKeyCompleted = errors.New("the key has a recorded answer")
	// ErrKeyChanged says that the key became another's, or something else, meanwhile.
	ErrKeyChanged = errors.New("the key changed meanwhile; look at it again")
	// ErrKeysUnnamed says that a purge names nothing that could be purged.
	ErrKeysUnnamed = errors.New("claims of running requests can't be purged")
)

// ErrUntold says that something was removed, and that the audit trail could not be told. It
// is wrapped around the cause.
var ErrUntold = errors.New("it is done, but the audit trail could not be written")

// A Filter says which keys are meant. Its zero value means all.
type Filter struct {
	State     KeyState      // empty: every state
	Route     string        // empty: every route; else what is known to be of this one
	OlderThan time.Duration // claimed or completed longer ago, by the proxy's clock; 0: any
}

// has reports whether a key is meant.
func (f Filter) has(k *Known) bool {
	return (f.State == "" || f.State == k.State) && (f.Route == "" || f.Route == k.Route) &&
		(f.OlderThan == 0 || !k.Since.IsZero() && time.Since(k.Since) > f.OlderThan)
}

// A KeyPage is a part of a listing.
type KeyPage struct {
	Keys   []Known `json:"keys"`
	Looked int     `json:"looked"`         // keys looked at for it
	Next   string  `json:"next,omitempty"` // the cursor of the next page; empty after the last one
}

// A Purged is a part of a purge.
type Purged struct {
	Removed int    `json:"removed"`
	Looked  int    `json:"looked"`
	Next    string `json:"next,omitempty"`
}

// Show tells what is known of a key, with the recorded answer if it is asked for. It is
// no error that the key is free.
func (k Keys) Show(ctx context.Context, id ID, response bool) (Known, error) {
	e, err := k.Store.Look(ctx, id)
	if err != nil {
		return Known{}, fmt.Errorf("look at key: %w", err)
	}
	e.ID = id
	return know(e, response), nil
}

// List returns a page of the keys that are meant: of about limit keys looked at, from the
// cursor on. See Inspection.List for what a listing promises.
func (k Keys) List(ctx context.Context, f Filter, cursor string, limit int) (KeyPage, error) {
	_, page, err := k.list(ctx, f, cursor, limit)
	return page, err
}

// maxListed is the size of an entry from which on it is fetched by itself, so that a page
// of large ones is not too much at once.
const maxListed = 64 << 10

func (k Keys) list(ctx context.Context, f Filter, cursor string, limit int) ([]Entry, KeyPage, error) {
	found, err := k.Store.List(ctx, ListRequest{Cursor: cursor, Limit: limit, Only: f.State.inStore(), MaxBlob: maxListed})
	if err != nil {
		return nil, KeyPage{}, fmt.Errorf("list keys: %w", err)
	}
	page := KeyPage{Keys: []Known{}, Looked: found.Looked, Next: found.Next}
	var entries []Entry
	for _, e := range found.Entries {
		if len(e.Blob) == 0 && e.Size > 0 && !e.Unreadable {
			if e, err = k.Store.Look(ctx, e.ID); err != nil && !errors.Is(err, ErrUnreadable) {
				return nil, KeyPage{}, fmt.Errorf("list keys: %w", err)
			}
		}
		if e.State == 0 {
			continue // gone meanwhile
		}
		if known := know(e, false); f.has(&known) {
			page.Keys, entries = append(page.Keys, known), append(entries, e)
		}
	}
	return entries, page, nil
}

// Release frees a key whose outcome is unknown, so that the next request with it is
// executed; with force also one whose request is being executed, whose owner then finds
// its claim lost. It returns what it freed, or would not free.
func (k Keys) Release(ctx context.Context, id ID, force bool) (Known, error) {
	return k.free(ctx, ActionRelease, id, func(s State) error {
		switch {
		case s == StateCompleted:
			return ErrKeyCompleted
		case s == StateInProgress && !force:
			return ErrKeyLive
		default:
			return nil
		}
	})
}

// Remove forgets a recorded answer, or an unknown outcome: the next request with the key
// is executed. It returns what it removed, or would not remove.
func (k Keys) Remove(ctx context.Context, id ID) (Known, error) {
	return k.free(ctx, ActionPurge, id, func(s State) error {
		if s == StateInProgress {
			return ErrKeyLive
		}
		return nil
	})
}

// free removes what is under a key, as long as it stays what allowed was asked about.
func (k Keys) free(ctx context.Context, action string, id ID, allowed func(State) error) (Known, error) {
	e, err := k.Store.Look(ctx, id)
	if err != nil {
		return Known{}, fmt.Errorf("look at key: %w", err)
	}
	e.ID = id
	known := know(e, false)
	if e.State == 0 {
		return known, ErrKeyFree
	}
	if err := allowed(e.State); err != nil {
		return known, err
	}
	verdict, err := k.Store.Free(ctx, id, e.Token, e.State)
	switch {
	case err != nil:
		return known, fmt.Errorf("free key: %w", err)
	case verdict == Gone:
		return known, ErrKeyFree
	case verdict != Applied:
		return known, ErrKeyChanged
	}
	return known, k.tell(ctx, Action{Action: action, ID: id, State: known.State, Route: known.Route, Keys: 1})
}

// Purge removes the recorded answers and unknown outcomes that are meant, of about limit
// keys looked at, from the cursor on. Claims of running requests stay, and so does what
// changes meanwhile.
func (k Keys) Purge(ctx context.Context, f Filter, cursor string, limit int) (Purged, error) {
	if f.State == KeyInProgress {
		return Purged{}, ErrKeysUnnamed
	}
	entries, page, err := k.list(ctx, f, cursor, limit)
	if err != nil {
		return Purged{}, err
	}
	done := Purged{Looked: page.Looked, Next: page.Next}
	for _, e := range entries {
		if e.State == StateInProgress {
			continue
		}
		verdict, failed := k.Store.Free(ctx, e.ID, e.Token, e.State)
		if failed != nil {
			err = fmt.Errorf("free key: %w", failed)
			break
		}
		if verdict == Applied {
			done.Removed++
		}
	}
	if done.Removed > 0 {
		told := k.tell(ctx, Action{Action: ActionPurge, State: f.State, Route: f.Route, Keys: done.Removed})
		err = errors.Join(err, told)
	}
	return done, err
}
