package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"idemproxy/internal/dedup"
)

// policyStore is a store whose server answers the question for its policy.
type policyStore struct {
	dedup.Store
	answers []string // the last one for ever; "" = it can't be asked
}

func (s *policyStore) EvictionPolicy(context.Context) (string, error) {
	policy := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if policy == "" {
		return "", errors.New("down")
	}
	return policy, nil
}

// wrapped hides a store as a decorator does.
type wrapped struct{ dedup.Store }

func (w wrapped) Unwrap() dedup.Store { return w.Store }

func TestEviction(t *testing.T) {
	for _, tc := range []struct {
		name     string
		answers  []string
		required bool
		loud     bool // warned that claims may be lost
		refused  bool
	}{
		{name: "safe", answers: []string{"noeviction"}},
		{name: "safe and required", answers: []string{"noeviction"}, required: true},
		{name: "unsafe", answers: []string{"allkeys-lru"}, loud: true},
		{name: "unsafe and required", answers: []string{"allkeys-lru"}, required: true, refused: true},
		{name: "down at start, unsafe", answers: []string{"", "", "volatile-ttl"}, loud: true},
		{name: "down at start, safe", answers: []string{"", "noeviction"}},
		{name: "down for ever", answers: []string{""}, required: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				core, logs := observer.New(zapcore.WarnLevel)
				watch := eviction{log: zap.New(core), required: tc.required, every: 10 * time.Second}
				err := watch.check(ctx, wrapped{wrapped{&policyStore{answers: tc.answers}}})
				if (err != nil) != tc.refused {
					t.Errorf("error %v", err)
				}
				time.Sleep(time.Minute)
				loud := 0
				for _, line := range logs.All() {
					if strings.Contains(line.Message, "MAY EVICT CLAIMS") {
						loud++
					}
				}
				if tc.loud != (loud == 1) || loud > 1 {
					t.Errorf("%d warnings: %v", loud, logs.All())
				}
			})
		})
	}
}

func TestStoreThatNeverEvicts(t *testing.T) {
	watch := eviction{log: zap.NewNop(), required: true}
	if err := watch.check(t.Context(), wrapped{}); err != nil {
		t.Error(err)
	}
}
