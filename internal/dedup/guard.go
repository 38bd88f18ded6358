package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Guard decides, for each request that a rule guards, whether it is executed, answered
// from a record, or refused. It is the state machine of a key; the Store below only keeps
// what it decided.
type Guard struct {
	store Store
	token func() Token
	turns chan struct{} // has room for those who ask a store that is away; see Claim.Withdraw

	// Replica is the name of this replica, which its claims and records carry. It is set
	// before the Guard is used; empty means none.
	Replica string
}

// NewGuard returns a Guard over a store.
func NewGuard(store Store) *Guard {
	return &Guard{store: store, token: NewToken, turns: make(chan struct{}, 8)}
}

// An Operation is a request as the Guard sees it.
type Operation struct {
	ID          ID
	Fingerprint Fingerprint
	ReplayScope ReplayScope
}

// A Decision is what becomes of an operation; exactly one of Claim, Replay and Rejection
// is set.
type Decision struct {
	Claim     *Claim     // execute it, then end the claim
	Replay    *Record    // answer with this
	Rejection *Rejection // refuse it

	// TakenOver is set besides a Claim that was taken from an owner whose outcome nobody
	// knows.
	TakenOver bool
	// InDoubt is set besides a Rejection when the store failed in such a way that it may
	// have taken the claim, or may take it yet: withdraw it in the background.
	InDoubt *Claim
}

// Err is why the store could not be asked, if it could not.
func (d Decision) Err() error {
	if d.Rejection == nil {
		return nil
	}
	return d.Rejection.Err
}

// errLateAnswer says that a claim was ours, and that by now it may be another's.
var errLateAnswer = errors.New("the store answered after the lease of the claim was over")

// Begin decides about an operation in one round trip to the store.
func (g *Guard) Begin(ctx context.Context, rule *Rule, op Operation) Decision {
	c := &Claim{store: g.store, rule: rule, op: op, origin: Origin{rule.Name, g.Replica}, token: g.token(), turns: g.turns, leaseEnd: time.Now().Add(rule.Lease)}
	found, err := g.store.Claim(ctx, ClaimRequest{
		ID: op.ID, Token: c.token, Lease: rule.Lease, TTL: rule.TTL,
		Takeover: rule.OnUnknownOutcome == UnknownRelease, Note: c.note(),
	})
	if err != nil {
		return g.failed(c, err)
	}
	switch found.State {
	case StateAcquired, StateTakenOver:
		if c.LeaseLost() {
			return g.failed(c, errLateAnswer)
		}
		c.keepAlive()
		return Decision{Claim: c, TakenOver: found.State == StateTakenOver}
	case StateInProgress:
		r := reject(ReasonInProgress, "A request with this idempotency key is being processed; retry shortly to get its answer.")
		r.RetryAfter = min(time.Second, found.LeaseLeft)
		return Decision{Rejection: r}
	case StateUnknown:
		return Decision{Rejection: reject(ReasonOutcomeUnknown, "A request with this idempotency key was sent on and its outcome is not known; it may have been executed, so it is not executed again. Check with the service before you use a new key.")}
	case StateCompleted:
		return g.replay(rule, op, found.Blob)
	default:
		return g.failed(c, fmt.Errorf("claim: the store found state %d, which does not exist", found.State))
	}
}

// failed is the decision when the store gave no answer.
func (g *Guard) failed(c *Claim, err error) Decision {
	if errors.Is(err, ErrUnreadable) {
		r := reject(ReasonRecordUnreadable, "What is recorded for this idempotency key can't be read; nothing was sent on.")
		r.Err, r.RetryAfter = err, time.Second
		return Decision{Rejection: r}
	}
	r := reject(ReasonStoreUnavailable, "The record of idempotency keys can't be reached; nothing was sent on. Retry with the same key.")
	r.Err, r.RetryAfter = err, time.Second
	if errors.Is(err, ErrNotApplied) {
		return Decision{Rejection: r}
	}
	return Decision{Rejection: r, InDoubt: c}
}

// replay is the decision when there is a record.
func (g *Guard) replay(rule *Rule, op Operation, blob []byte) Decision {
	record, err := DecodeRecord(blob)
	switch {
	case err != nil:
		return g.failed(nil, err)
	case !record.Matches(op.Fingerprint):
		return Decision{Rejection: reject(ReasonKeyReuse, "This idempotency key was used for another request; use a new key for a new request.")}
	case len(rule.ReplayScopeHeaders) > 0 && record.ReplayScope != op.ReplayScope:
		return Decision{Rejection: reject(ReasonReplayScope, "This idempotency key was used with other credentials; its answer is given only to those.")}
	case record.NotStored:
		return Decision{Rejection: reject(ReasonResponseNotStored, "The request with this idempotency key was executed and answered with status %d; its answer was too large to keep, and it is not executed again.", record.Status)}
	default:
		return Decision{Replay: record}
	}
}
