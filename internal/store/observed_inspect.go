package store

import (
	"context"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

func (o observed) Look(ctx context.Context, id dedup.ID) (dedup.Entry, error) {
	start := time.Now()
	e, err := o.store.Look(ctx, id)
	o.observe(metrics.OpLook, start, err)
	return e, err
}

func (o observed) List(ctx context.Context, req dedup.ListRequest) (dedup.Page, error) {
	start := time.Now()
	page, err := o.store.List(ctx, req)
	o.observe(metrics.OpList, start, err)
	return page, err
}

func (o observed) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	start := time.Now()
	verdict, err := o.store.Free(ctx, id, token, state)
	o.observe(metrics.OpFree, start, err)
	return verdict, err
}

func (o observed) Tell(ctx context.Context, entry []byte) error {
	start := time.Now()
	err := o.store.Tell(ctx, entry)
	o.observe(metrics.OpTell, start, err)
	return err
}

func (o observed) Told(ctx context.Context, after string) ([][]byte, string, error) {
	start := time.Now()
	entries, at, err := o.store.Told(ctx, after)
	o.observe(metrics.OpTold, start, err)
	return entries, at, err
}
