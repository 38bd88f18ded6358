package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Claim is the right to execute an operation once. Its lease is renewed by itself until
// it is ended by Complete, Release or Unknown; each of these may be called again with the
// same arguments when it failed. A Claim is used by one goroutine at a time.
type Claim struct {
	store  Store
	rule   *Rule
	op     Operation
	origin Origin
	token  Token
	turns  chan struct{} // see Withdraw

	memberUntil time.Time  // see renewMember
	member      sync.Mutex // so that the end of the claim has the last word about its place in its scope

	mu       sync.Mutex // guards what follows
	timer    *time.Timer
	leaseEnd time.Time // when the lease is over unless it is renewed; the owner's own estimate, never late
	ended    bool
	lost     bool
}

// ErrFenced says that a claim is not its owner's any more: its lease was over and another
// took it, or it was freed.
var ErrFenced = errors.New("the claim belongs to another owner by now")

// Complete records the answer of the operation. A record that the store has no room for
// is replaced by a small one that says so, so that the key never runs again; r.NotStored
// then tells that. The error says why nothing was recorded; see Persist.
func (c *Claim) Complete(ctx context.Context, r *Record) error {
	c.stop()
	r.Fingerprint, r.ReplayScope, r.Origin = c.op.Fingerprint, c.op.ReplayScope, c.origin
	err := c.complete(ctx, Completion{TTL: c.op.TTL, Blob: r.Encode()})
	if errors.Is(err, ErrStoreFull) && !r.NotStored {
		small := Record{NotStored: true, Fingerprint: r.Fingerprint, ReplayScope: r.ReplayScope, Completed: r.Completed, Status: r.Status, Origin: r.Origin, Trace: r.Trace}
		err = c.complete(ctx, Completion{TTL: c.op.TTL, Blob: small.Encode()})
		r.NotStored = err == nil
	}
	return err
}

// Unknown ends the claim of an operation that may have been executed and has no answer,
// by the rule's policy: held until its TTL, or freed.
func (c *Claim) Unknown(ctx context.Context) error {
	if c.rule.OnUnknownOutcome == UnknownRelease {
		return c.Release(ctx)
	}
	c.stop()
	return c.complete(ctx, Completion{Unknown: true})
}

// Release frees the key of an operation that was provably not executed.
func (c *Claim) Release(ctx context.Context) error {
	err := c.release(ctx)
	if err != nil && !errors.Is(err, ErrFenced) {
		return err
	}
	if failed := c.dismiss(ctx); failed != nil {
		return failed
	}
	return err
}

// release is Release for a claim that is no member of its scope.
func (c *Claim) release(ctx context.Context) error {
	c.stop()
	verdict, err := c.store.Release(ctx, c.op.ID, c.token)
	if err != nil {
		return fmt.Errorf("release claim: %w", err)
	}
	return c.check(verdict)
}

func (c *Claim) complete(ctx context.Context, completion Completion) error {
	verdict, err := c.store.Complete(ctx, c.op.ID, c.token, completion)
	if err != nil {
		return fmt.Errorf("complete claim: %w", err)
	}
	if err := c.check(verdict); err != nil {
		return err
	}
	if !completion.Unknown {
		c.stayMember()
	}
	return nil
}

// check notes a claim that turned out to be somebody else's.
func (c *Claim) check(v Verdict) error {
	if v != Fenced {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
	return ErrFenced
}

// TTL is how long the record of the operation lives from its completion.
func (c *Claim) TTL() time.Duration { return c.op.TTL }

// heldFor is how long the claim lives if it is never completed: a window that is shorter
// than the lease must not end it before its first renewal.
func (c *Claim) heldFor() time.Duration { return max(c.op.TTL, c.rule.Lease) }

// LeaseLost reports whether the owner found its claim gone, taken over, or not renewed
// in time.
func (c *Claim) LeaseLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLoss()
	return c.lost
}

// noteLoss notes a lease that is over before the claim has ended. It needs mu.
func (c *Claim) noteLoss() {
	if !c.ended && !time.Now().Before(c.leaseEnd) {
		c.lost = true
	}
}

// Persist repeats end, one of the ways to end the claim, with growing pauses until it
// succeeds, the claim turns out to be somebody else's, the lease is over, or ctx ends. It
// returns the last error, nil when end succeeded.
func (c *Claim) Persist(ctx context.Context, end func(context.Context) error) error {
	c.mu.Lock()
	ctx, cancel := context.WithDeadline(ctx, c.leaseEnd)
	c.mu.Unlock()
	defer cancel()
	return persist(ctx, end)
}

func persist(ctx context.Context, end func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for {
		err := end(ctx)
		if err == nil || errors.Is(err, ErrFenced) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		}
	}
}

// Withdraw frees a claim that the store may have taken although it gave no answer. A
// command that timed out may be applied late: as soon as a store that hung goes on, also
// long after the lease, and then nobody would execute the key until its TTL. So it goes on
// until the store answers, and a release is repeated a second later. While a store is away
// the Guard's claims take turns in asking for it.
func (c *Claim) Withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.heldFor())
	defer cancel()
	release := func(ctx context.Context) error {
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
			return c.Release(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := persist(ctx, release); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	return persist(ctx, release)
}

// keepAlive renews the lease at a third of it, from now until the claim ends.
func (c *Claim) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.rule.Lease/3, c.renew)
}

// renew runs on the timer. A renewal that fails is tried again a third later, or as soon
// as makes sense before the lease is over.
func (c *Claim) renew() {
	sent := time.Now()
	verdict, err := c.store.Renew(context.Background(), c.op.ID, c.token, c.rule.Lease)
	if err == nil && verdict == Applied {
		c.renewMember(sent.Add(c.rule.Lease))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.rule.Lease / 3
	switch {
	case c.ended:
		return
	case err != nil:
		next = c.rule.Lease / 10
	case verdict != Applied:
		c.lost = true
		return
	default:
		c.leaseEnd = sent.Add(c.rule.Lease)
	}
	c.noteLoss()
	c.timer.Reset(next)
}

func (c *Claim) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// stop ends the renewals.
func (c *Claim) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLoss()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
