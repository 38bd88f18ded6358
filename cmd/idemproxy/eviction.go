package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// noeviction is the only policy of Redis under which what it acknowledged stays.
const noeviction = "noeviction"

// evicting is a store whose server may throw entries away by itself.
type evicting interface {
	EvictionPolicy(ctx context.Context) (string, error)
}

// eviction watches that a store's server keeps what it acknowledged.
type eviction struct {
	log      *zap.Logger
	required bool          // refuse to start otherwise
	every    time.Duration // between two questions while the server doesn't answer
}

// check warns, or fails if noeviction is required, when the store's server may evict
// claims. While the server can't be asked it goes on asking in the background, until ctx
// ends; a store that requires noeviction is not ready in the meantime.
func (e eviction) check(ctx context.Context, s dedup.Store) error {
	asked, ok := below[evicting](s)
	if !ok {
		return nil
	}
	policy, err := asked.EvictionPolicy(ctx)
	switch {
	case err != nil:
		e.log.Warn("the eviction policy of the store is not known yet", zap.Error(err))
		go e.keepAsking(ctx, asked)
	case policy != noeviction && e.required:
		return fmt.Errorf("the store may evict claims, and an evicted claim is a double execution: its maxmemory-policy is %s, store.redis.require_noeviction asks for %s", policy, noeviction)
	default:
		e.tell(policy)
	}
	return nil
}

func (e eviction) keepAsking(ctx context.Context, asked evicting) {
	ticker := time.NewTicker(e.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if policy, err := asked.EvictionPolicy(ctx); err == nil {
			e.tell(policy)
			return
		}
	}
}

func (e eviction) tell(policy string) {
	if policy != noeviction {
		e.log.Warn("THE STORE MAY EVICT CLAIMS, and an evicted claim is a double execution: set maxmemory-policy "+noeviction+" in Redis", zap.String("maxmemory_policy", policy))
	}
}
