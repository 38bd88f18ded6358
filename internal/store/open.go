package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"idemproxy/internal/dedup"
)

// A constructor opens one kind of store.
type constructor func(ctx context.Context, cfg Config) (dedup.Store, error)

// constructors is the one table of the stores: a new one gets a line here.
func constructors() map[string]constructor {
	return map[string]constructor{
		"memory":   func(_ context.Context, cfg Config) (dedup.Store, error) { return NewMemory(cfg.Memory), nil },
		"file":     func(_ context.Context, cfg Config) (dedup.Store, error) { return opened(NewFile(cfg)) },
		"postgres": func(ctx context.Context, cfg Config) (dedup.Store, error) { return opened(NewPostgres(ctx, cfg)) },
		"redis":    func(_ context.Context, cfg Config) (dedup.Store, error) { return opened(NewRedis(cfg)) },
	}
}

// Types returns the names that Config.Type may have, sorted.
func Types() []string { return slices.Sorted(maps.Keys(constructors())) }

// Open opens the store that the configuration names. It does not wait for a server: a
// store whose server is down opens, fails operation by operation, and recovers by itself.
// It fails if the configuration is wrong (see Config.Validate) or a file that it names
// can't be read.
func Open(ctx context.Context, cfg Config) (dedup.Store, error) {
	var errs []error
	for _, f := range cfg.Validate() {
		errs = append(errs, fmt.Errorf("store.%s: %s", f.Path, f.Message))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("open store: %w", errors.Join(errs...))
	}
	encode, err := newCodec(cfg)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := constructors()[cfg.Type](ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s store: %w", cfg.Type, err)
	}
	return encode.around(s), nil
}

// opened is s as a dedup.Store, which is nil if s is not to be used.
func opened[S dedup.Store](s S, err error) (dedup.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
