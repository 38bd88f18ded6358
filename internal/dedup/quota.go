package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Between these lies what a caller is told to wait for room in its scope. The first of its
// keys may be freed sooner than it expires, and SDKs obey nothing longer than a minute.
const (
	minQuotaWait = time.Second
	maxQuotaWait = time.Minute
)

// overQuota makes a new claim a member of its scope, if the rule bounds those, and returns
// the decision if it can't be one. The claim comes first: of a key that lives already
// there is nothing to count, and a replay costs one round trip.
func (g *Guard) overQuota(ctx context.Context, c *Claim, state State) *Decision {
	limit := c.rule.MaxLiveKeysPerScope
	if limit == 0 {
		return nil
	}
	if state == StateTakenOver {
		limit = 0 // the key lives already
	}
	c.memberUntil = time.Now().Add(c.heldFor())
	wait, err := c.enroll(ctx, c.heldFor(), limit)
	switch {
	case err != nil && c.rule.OnStoreFailure == StorePassThrough:
		return nil // uncounted, but guarded: the claim is there
	case err != nil:
		d := g.failed(c, err)
		d.InDoubt = c // the claim is there, whatever became of the enrolment
		return &d
	case wait == 0:
		return nil
	}
	r := reject(ReasonTooManyKeys, "As many idempotency keys as there may be at a time (%d) are in use; nothing was sent on. Retry with the same key when one of them has expired.", c.rule.MaxLiveKeysPerScope)
	r.RetryAfter = min(max(wait, minQuotaWait), maxQuotaWait)
	d := Decision{Rejection: r}
	if err := c.release(ctx); err != nil && !errors.Is(err, ErrFenced) {
		d.InDoubt = c
	}
	return &d
}

// enroll makes the claim's key a member of its scope.
func (c *Claim) enroll(ctx context.Context, ttl time.Duration, limit int) (wait time.Duration, err error) {
	wait, err = c.store.Enroll(ctx, Enrolment{Scope: c.op.Scope, ID: c.op.ID, Token: c.token, TTL: ttl, Limit: limit})
	if err != nil {
		return 0, fmt.Errorf("enroll key: %w", err)
	}
	return wait, nil
}

// stayMember keeps the key a member of its scope, or makes it one again, for the time of
// its record. Nobody waits for it, nor for its success: it is a member by its claim, and
// would only leave somewhat early.
func (c *Claim) stayMember() {
	if c.rule.MaxLiveKeysPerScope > 0 {
		go func() {
			c.member.Lock()
			defer c.member.Unlock()
			_, _ = c.enroll(context.Background(), c.op.TTL, 0)
		}()
	}
}

// renewMember keeps the key a member until the end of a renewed lease, as the store keeps
// the claim, unless the claim ends before. Only renewals call it.
func (c *Claim) renewMember(until time.Time) {
	if c.rule.MaxLiveKeysPerScope == 0 || !until.After(c.memberUntil) {
		return
	}
	c.memberUntil = until
	go func() {
		c.member.Lock()
		defer c.member.Unlock()
		if !c.hasEnded() {
			_, _ = c.enroll(context.Background(), c.rule.Lease, 0)
		}
	}()
}

// dismiss takes a key that is free again from the members of its scope.
func (c *Claim) dismiss(ctx context.Context) error {
	if c.rule.MaxLiveKeysPerScope == 0 {
		return nil
	}
	c.member.Lock()
	defer c.member.Unlock()
	if err := c.store.Dismiss(ctx, c.op.Scope, c.op.ID, c.token); err != nil {
		return fmt.Errorf("dismiss key: %w", err)
	}
	return nil
}
