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
	waits waits

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
	// TTL is how long its record lives from its completion, and its unknown outcome from
	// its claim, but that at least for the rule's lease; 0 means the rule's.
	TTL time.Duration
	// Scope is that of a rule with MaxLiveKeysPerScope, and otherwise unused.
	Scope ScopeID
}

// A Decision is what becomes of an operation; exactly one of Claim, Replay and Rejection
// is set.
type Decision struct {
	Claim     *Claim     // execute it, then end the claim
	Replay    *Record    // answer with this
	Rejection *Rejection // refuse it

	// TTLLeft is how long the record of a Replay will still live.
	TTLLeft time.Duration
	// TakenOver is set besides a Claim that was taken from an owner whose outcome nobody
	// knows.
	TakenOver bool
	// InDoubt is set besides a Rejection or a Replay when the store failed in such a way that
	// it may have taken the claim, or may take it yet: withdraw it in the background.
	InDoubt *Claim
}

// InProgress reports whether the operation is being executed, and this one refused for it.
func (d *Decision) InProgress() bool {
	return d.Rejection != nil && d.Rejection.Reason == ReasonInProgress
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

// Begin decides about an operation in one round trip to the store, and one more for a new
// claim of a rule with MaxLiveKeysPerScope.
func (g *Guard) Begin(ctx context.Context, rule *Rule, op Operation) Decision {
	c := g.newClaim(rule, op)
	found, err := g.claim(ctx, c, false)
	return g.decide(ctx, c, found, err)
}

func (g *Guard) newClaim(rule *Rule, op Operation) *Claim {
	if op.TTL == 0 {
		op.TTL = rule.TTL
	}
	return &Claim{store: g.store, rule: rule, op: op, origin: Origin{rule.Name, g.Replica}, token: g.token(), turns: g.turns}
}

// claim asks the store for the claim.
func (g *Guard) claim(ctx context.Context, c *Claim, wait bool) (Found, error) {
	c.leaseEnd = time.Now().Add(c.rule.Lease)
	return g.store.Claim(ctx, ClaimRequest{
		ID: c.op.ID, Token: c.token, Lease: c.rule.Lease, TTL: c.heldFor(),
		Takeover: c.rule.OnUnknownOutcome == UnknownRelease, Note: c.note(), Wait: wait,
	})
}

// decide turns what the store said to a claim into a decision.
func (g *Guard) decide(ctx context.Context, c *Claim, found Found, err error) Decision {
	if err != nil {
		return g.failed(c, err)
	}
	switch found.State {
	case StateAcquired, StateTakenOver:
		if refused := g.overQuota(ctx, c, found.State); refused != nil {
			return *refused
		}
		if c.LeaseLost() {
			return g.failed(c, errLateAnswer)
		}
		c.keepAlive()
		return Decision{Claim: c, TakenOver: found.State == StateTakenOver}
	case StateInProgress:
		return inProgress(found.LeaseLeft)
	case StateUnknown:
		return Decision{Rejection: reject(ReasonOutcomeUnknown, "A request with this idempotency key was sent on and its outcome is not known; it may have been executed, so it is not executed again. Check with the service before you use a new key.")}
	case StateCompleted:
		return g.replay(c.rule, c.op, found)
	default:
		return g.failed(c, fmt.Errorf("claim: the store found state %d, which does not exist", found.State))
	}
}

// inProgress is the decision about a key whose owner's lease lives for so long.
func inProgress(leaseLeft time.Duration) Decision {
	r := reject(ReasonInProgress, "A request with this idempotency key is being processed; retry shortly to get its answer.")
	r.RetryAfter = min(time.Second, leaseLeft)
	return Decision{Rejection: r}
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
func (g *Guard) replay(rule *Rule, op Operation, found Found) Decision {
	record, err := DecodeRecord(found.Blob)
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
		return Decision{Replay: record, TTLLeft: found.TTLLeft}
	}
}
