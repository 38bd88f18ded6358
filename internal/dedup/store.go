package dedup

import (
	"context"
	"errors"
	"time"
)

// Errors a Store returns, alone or wrapped. Callers branch on them with errors.Is.
var (
	// ErrStoreFull says that the store is working but has no room: nothing was
	// written. A smaller entry may still fit.
	ErrStoreFull = errors.New("store is full")
	// ErrUnreadable says that what the store holds under this ID is not an entry of
	// this program: another type, a foreign or damaged layout, or an unknown version.
	// Nothing was changed.
	ErrUnreadable = errors.New("stored entry is unreadable")
	// ErrStoreClosed says that the store was closed by this process.
	ErrStoreClosed = errors.New("store is closed")
	// ErrNotApplied, wrapped around another error, says that the operation was
	// provably not applied (refused by the server, or never sent). Without it an error
	// means that the operation may have been applied, or may still be.
	ErrNotApplied = errors.New("not applied")
)

// A Store holds claims and records for all replicas. It is dumb and atomic: it
// claims, renews, completes and releases, and counts who lives in a scope; every decision
// is Guard's.
//
// An entry has an ID, a state, the fencing Token of its owner, an end of lease, an
// expiry, and bytes (Note or Blob) that the store never looks into. Beyond its expiry
// an entry does not exist, whether or not it has been removed yet.
//
// Each operation but Watch is atomic on one ID and takes one round trip, but for a claim
// that waits for replicas to have it. Bytes that are given to a store are the store's, and
// bytes that it returns are shared: nobody changes either. Instants are the store's own:
// callers pass durations, and the store's clock alone decides what is over. Durations are
// kept to the millisecond and are at least one millisecond.
//
// Every operation may be repeated with the same token, since a reply can be lost
// after the operation was applied: a repeated Claim that finds its own claim acquires
// it, a repeated Complete that finds its own completion succeeds, a repeated Release
// that finds nothing succeeds.
//
// Operations obey the deadline and the cancellation of their context, and besides
// the store's own per-operation timeout. All methods may be called concurrently.
type Store interface {
	// Claim takes the ID if it is free, if it already is claimed with the same token
	// (then its lease begins anew, its note and expiry stay, and it reports
	// StateAcquired, also for a repeated takeover), or, with req.Takeover, if its claim's
	// lease is over or its outcome is unknown. Otherwise it changes nothing, in particular
	// no expiry, and reports what it found. With req.Wait it also notes, on a claim that it
	// finds in progress, that somebody waits for its end: then its end is told to those who
	// Watch. A claim without a note is left as it is: versions that write none know of nobody
	// who waits.
	Claim(ctx context.Context, req ClaimRequest) (Found, error)

	// Renew sets the end of the lease of a claim to lease from now. Its expiry stays,
	// unless it would come before that: a running request's claim does not expire. It
	// reports Fenced when the entry is not a claim of this token, and Gone
	// when there is no entry; in both cases nothing is changed.
	Renew(ctx context.Context, id ID, token Token, lease time.Duration) (Verdict, error)

	// Complete turns the claim of this token into its end: see Completion. It does so
	// even when the lease is over, as long as nobody has taken the claim over. It
	// reports Applied (also when repeated), Gone when there was no entry (a Completed
	// entry is then created all the same, so that the answer is not lost; an Unknown
	// one needs its claim's expiry and is not), or Fenced when the entry is somebody
	// else's, in which case nothing is changed. Of two records of one token the first
	// stays; a record of the token that marked the outcome unknown is Applied, for the
	// answer came after all; a record can't be marked unknown any more, and is Fenced.
	Complete(ctx context.Context, id ID, token Token, c Completion) (Verdict, error)

	// Release removes the claim of this token, so that the ID is free. It reports
	// Applied, Gone when there was no entry, or Fenced when the entry is somebody
	// else's or is no claim any more; then nothing is changed.
	Release(ctx context.Context, id ID, token Token) (Verdict, error)

	// Enroll counts an ID among the members of its scope until e.TTL from now: in a register
	// of its own, which knows nothing of entries. An ID is one member, however often it is
	// enrolled, and belongs to the token that enrolled it last; that one's TTL begins anew,
	// but ends no earlier than the same token was told before. With a limit, an ID that is
	// no member is refused where there are that many: then wait is how long until the first
	// of them leaves by itself, more than 0. Otherwise it is 0.
	Enroll(ctx context.Context, e Enrolment) (wait time.Duration, err error)

	// Dismiss removes the ID from the members of its scope, if it belongs to this token.
	// Otherwise it changes nothing, which is no error.
	Dismiss(ctx context.Context, scope ScopeID, id ID, token Token) error

	// Watch tells when an ID is worth being claimed again. The channel has a value soon
	// after a claim of the ID that somebody waits for (see ClaimRequest.Wait) was completed,
	// marked unknown or released, by whichever process; values that nobody has read yet are
	// one. It also has a value whenever the watch comes into force, at the beginning and
	// after a connection was lost: who claims after it misses nothing that comes later.
	//
	// Watching is a help, not a promise: values may come without reason, and may be lost, as
	// when the server can't be reached or refuses; then a watcher has to ask by itself now
	// and then. It takes no round trip, holds no connection of its own, and tells nothing
	// after the store was closed. Stop ends it, and may be called again.
	Watch(id ID) (wake <-chan struct{}, stop func())

	// Ping reports whether the store can be written to now, by writing.
	Ping(ctx context.Context) error

	// Close frees what the store holds in this process. Operations after it fail with
	// ErrStoreClosed.
	Close() error

	Inspection
}

// A ClaimRequest asks a Store for the right to execute an operation.
type ClaimRequest struct {
	ID       ID
	Token    Token         // fencing token of this attempt, never used for another
	Lease    time.Duration // how long the claim lives without renewal; after it the outcome is unknown
	TTL      time.Duration // how long the entry lives if it is never completed
	Takeover bool          // also take a claim whose lease is over, or an unknown outcome
	Wait     bool          // if it is in progress, the end of its claim is waited for: see Watch
	Note     []byte        // bytes kept with the claim until it is completed; may be empty
}

// State is what a Store found under an ID when it was asked to claim it.
type State byte

const (
	// StateAcquired: the ID was free, or already ours; the claim is the caller's now.
	StateAcquired State = iota + 1
	// StateTakenOver: like StateAcquired, from an owner whose outcome nobody knows.
	StateTakenOver
	// StateInProgress: another token's claim, its lease alive.
	StateInProgress
	// StateUnknown: another token's claim with its lease over, or an outcome marked
	// unknown.
	StateUnknown
	// StateCompleted: a record.
	StateCompleted
)

// Found is what a Store answers to a claim.
type Found struct {
	State     State
	LeaseLeft time.Duration // of StateInProgress: what is left of the owner's lease, more than 0
	Blob      []byte        // of StateCompleted: the record's bytes; of StateInProgress and StateUnknown: the claim's note
	TTLLeft   time.Duration // of StateCompleted: how long the record will still live
}

// Verdict is what a Store says to an owner.
type Verdict byte

const (
	// Applied: the entry is this token's, and is now as asked.
	Applied Verdict = iota + 1
	// Gone: there was no entry.
	Gone
	// Fenced: the entry belongs to another token, or has ended otherwise.
	Fenced
)

// An Enrolment asks a Store to count an ID among the members of a scope.
type Enrolment struct {
	Scope ScopeID
	ID    ID
	Token Token
	TTL   time.Duration // how long it is a member, from now
	Limit int           // the most members that the scope may have with a new one; 0: no limit
}

// A Completion ends a claim.
type Completion struct {
	// Unknown marks the outcome as unknown: the note and the expiry of the claim stay,
	// TTL and Blob are not used. Otherwise the entry becomes a record.
	Unknown bool
	TTL     time.Duration // of a record, from now
	Blob    []byte        // the record's bytes
}
