package dedup

import (
	"context"
	"errors"
	"time"
)

// ErrCursor says that a listing was to go on from what is no cursor of the store's.
var ErrCursor = errors.New("not a cursor of this store")

// Inspection is the part of a Store that is for its operators: to see what it holds, to
// free an ID by hand, and to leave word of that. No request needs it.
type Inspection interface {
	// Look returns the entry of the ID, all its bytes included, and changes nothing. Its
	// State is 0 if there is none.
	Look(ctx context.Context, id ID) (Entry, error)

	// List returns some of the entries, in no particular order. It begins with an empty
	// cursor, goes on with Page.Next, and is at its end when that is empty. What is there
	// all the while is in one of the pages, in two if the store rearranges itself meanwhile;
	// what comes or goes may be in none. A page may be empty although it is not the last.
	// What is not an entry of this program is left out. Nobody is kept waiting for it:
	// no page holds up other operations for longer than they take themselves.
	List(ctx context.Context, req ListRequest) (Page, error)

	// Free removes the entry of the ID whatever its owner does, if it is still the one that
	// was looked at: its token is this one, and its state is that one. A claim whose
	// outcome became unknown in another way is in the same state. It reports Applied, Gone
	// when there was no entry, or Fenced when there is another, or it has changed; then
	// nothing is changed. An owner whose claim is freed finds it Gone, or is Fenced.
	Free(ctx context.Context, id ID, token Token, state State) (Verdict, error)

	// Tell appends an entry to the store's audit trail, which all who share the store can
	// read. The trail keeps the last TrailLength entries at least for a while; older ones may
	// go.
	Tell(ctx context.Context, entry []byte) error

	// Told returns the entries of the audit trail that came after a position, oldest first,
	// at most TrailLength, and the position after them, which is the same one if there are
	// none. After "", it returns none, and the position after all there are. An entry may
	// take seconds to show.
	Told(ctx context.Context, after string) (entries [][]byte, at string, err error)
}

// TrailLength is how many entries of its audit trail a store keeps, more or less.
const TrailLength = 1000

// An Entry is what a Store holds under an ID.
type Entry struct {
	ID        ID
	State     State         // StateInProgress, StateUnknown or StateCompleted
	LeaseLeft time.Duration // of StateInProgress, more than 0
	TTLLeft   time.Duration // how long the entry will still live
	Size      int           // of its bytes as the store keeps them: compressed, encrypted
	Blob      []byte        // the record's bytes or the claim's note; see ListRequest
	// Unreadable says that the bytes can't be decrypted or inflated; Blob is then nil.
	Unreadable bool
	// Token is the owner's. It is for Free alone, and for nobody's eyes.
	Token Token
}

// A ListRequest asks a Store for a page of its entries.
type ListRequest struct {
	Cursor string
	// Limit is how many entries are looked at for one page, more or less.
	Limit int
	// Only leaves out what is in another state; 0 means all.
	Only State
	// MaxBlob is the size from which on the bytes of an entry are left out: Look has them.
	MaxBlob int
}

// A Page is a part of what a Store holds.
type Page struct {
	Entries []Entry
	Looked  int    // entries looked at, those left out included
	Next    string // the cursor of the next page; empty after the last one
}
