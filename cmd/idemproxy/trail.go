package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// trail follows the store's audit trail, so that what operators do by hand is logged and
// counted by every replica.
type trail struct {
	keys    dedup.Keys
	metrics *metrics.Metrics
	log     *zap.Logger
	every   time.Duration // between two looks
}

// follow tells each action once, from now on, until ctx ends. While the store is away it
// waits: the store's own failures are counted, and the trail keeps what it is told.
func (t trail) follow(ctx context.Context) {
	ticker := time.NewTicker(t.every)
	defer ticker.Stop()
	for at := ""; ; {
		actions, next, err := t.keys.Actions(ctx, at)
		if err == nil {
			at = next
		}
		for _, a := range actions {
			t.tell(a)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t trail) tell(a dedup.Action) {
	t.metrics.OperatorAction(a.Action, a.Keys)
	fields := []zap.Field{
		zap.String("action", a.Action), zap.Int("keys", a.Keys), zap.Time("at", a.At), zap.String("by", a.By),
	}
	optional := func(key, value string) {
		if value != "" {
			fields = append(fields, zap.String(key, value))
		}
	}
	optional("key_hash", string(a.ID))
	optional("state", string(a.State))
	optional("route", a.Route)
	t.log.Warn("an operator removed keys", fields...)
}
