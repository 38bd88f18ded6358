package store

import (
	"context"
	"errors"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// observed times and counts the operations of the store inside it.
type observed struct {
	store   dedup.Store
	metrics *metrics.Metrics
}

// Observed returns a Store that does what s does, and reports each operation to m: the
// time it took and whether it failed. Every error is a failure of the store but two,
// which say nothing about its health: dedup.ErrStoreClosed, and the cancellation of the
// operation by whoever asked for it. An operation that ran into its deadline has failed.
//
// The result has Unwrap() dedup.Store, by which a store's further methods are found.
func Observed(s dedup.Store, m *metrics.Metrics) dedup.Store {
	return observed{store: s, metrics: m}
}

// Unwrap returns the store that is observed.
func (o observed) Unwrap() dedup.Store { return o.store }

func (o observed) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	start := time.Now()
	found, err := o.store.Claim(ctx, req)
	o.observe(metrics.OpClaim, start, err)
	return found, err
}

func (o observed) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	start := time.Now()
	verdict, err := o.store.Renew(ctx, id, token, lease)
	o.observe(metrics.OpRenew, start, err)
	return verdict, err
}

func (o observed) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	start := time.Now()
	verdict, err := o.store.Complete(ctx, id, token, c)
	o.observe(metrics.OpComplete, start, err)
	if err == nil && !c.Unknown {
		o.metrics.RecordSize(len(c.Blob))
	}
	return verdict, err
}

func (o observed) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	start := time.Now()
	verdict, err := o.store.Release(ctx, id, token)
	o.observe(metrics.OpRelease, start, err)
	return verdict, err
}

func (o observed) Enroll(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
	start := time.Now()
	wait, err := o.store.Enroll(ctx, e)
	o.observe(metrics.OpEnroll, start, err)
	return wait, err
}

func (o observed) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	start := time.Now()
	err := o.store.Dismiss(ctx, scope, id, token)
	o.observe(metrics.OpDismiss, start, err)
	return err
}

func (o observed) Watch(id dedup.ID) (<-chan struct{}, func()) { return o.store.Watch(id) }

func (o observed) Ping(ctx context.Context) error {
	start := time.Now()
	err := o.store.Ping(ctx)
	o.observe(metrics.OpPing, start, err)
	return err
}

func (o observed) Close() error { return o.store.Close() }

func (o observed) observe(op string, start time.Time, err error) {
	failed := err != nil && !errors.Is(err, dedup.ErrStoreClosed) && !errors.Is(err, context.Canceled)
	o.metrics.StoreOperation(op, time.Since(start), failed)
}
