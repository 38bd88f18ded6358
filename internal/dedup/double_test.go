package dedup_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

// errLost is what a store double fails with: nothing is known of the operation.
var errLost = errors.New("connection lost")

// A double is the memory store with one or more operations that misbehave, and a list of
// when each was called. A nil function is the store's own operation.
type double struct {
	dedup.Store
	claim    func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error)
	complete func(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error)
	release  func(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error)
	enroll   func(ctx context.Context, e dedup.Enrolment) (time.Duration, error)
	dismiss  func(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error

	watch func(id dedup.ID) (<-chan struct{}, func())

	mu    sync.Mutex // guards what follows, which claims' timers use
	renew renewal
	start time.Time
	calls map[string][]time.Duration // by operation, since start
}

type renewal func(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error)

// onRenew makes renewals misbehave from now on, or no more.
func (d *double) onRenew(f renewal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renew = f
}

func (d *double) called(op string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op] = append(d.calls[op], time.Since(d.start))
}

// at are the instants of an operation, since start.
func (d *double) at(op string) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

func (d *double) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	d.called("claim")
	d.mu.Lock()
	claim := d.claim
	d.mu.Unlock()
	if claim != nil {
		return claim(ctx, req)
	}
	return d.Store.Claim(ctx, req)
}

func (d *double) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	d.called("renew")
	d.mu.Lock()
	renew := d.renew
	d.mu.Unlock()
	if renew != nil {
		return renew(ctx, id, token, lease)
	}
	return d.Store.Renew(ctx, id, token, lease)
}

func (d *double) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	d.called("complete")
	if d.complete != nil {
		return d.complete(ctx, id, token, c)
	}
	return d.Store.Complete(ctx, id, token, c)
}

func (d *double) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	d.called("release")
	if d.release != nil {
		return d.release(ctx, id, token)
	}
	return d.Store.Release(ctx, id, token)
}

func (d *double) Enroll(ctx context.Context, e dedup.Enrolment) (time.Duration, error) {
	d.called("enroll")
	if d.enroll != nil {
		return d.enroll(ctx, e)
	}
	return d.Store.Enroll(ctx, e)
}

func (d *double) Dismiss(ctx context.Context, scope dedup.ScopeID, id dedup.ID, token dedup.Token) error {
	d.called("dismiss")
	if d.dismiss != nil {
		return d.dismiss(ctx, scope, id, token)
	}
	return d.Store.Dismiss(ctx, scope, id, token)
}

func (d *double) Watch(id dedup.ID) (<-chan struct{}, func()) {
	if d.watch != nil {
		return d.watch(id)
	}
	return d.Store.Watch(id)
}

// onClaim makes claims misbehave from now on, or no more, while others claim.
func (d *double) onClaim(f func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claim = f
}

// failRenewals makes renewals fail from now on, or no more.
func (d *double) failRenewals(fail bool) {
	if !fail {
		d.onRenew(nil)
		return
	}
	d.onRenew(func(context.Context, dedup.ID, dedup.Token, time.Duration) (dedup.Verdict, error) { return 0, errLost })
}

// A scene is a Guard over a double, in a bubble whose time costs nothing.
type scene struct {
	*testing.T
	store *double
	guard *dedup.Guard
	rule  *dedup.Rule
	op    dedup.Operation
}

// inBubble runs f with a scene. When f returns, the store is closed, and the bubble fails
// the test if a goroutine is left.
func inBubble(t *testing.T, change func(*dedup.Rule), f func(s *scene)) {
	t.Helper()
	inBubbleOf(t, store.DefaultConfig().Memory, change, f)
}

func inBubbleOf(t *testing.T, cfg store.MemoryConfig, change func(*dedup.Rule), f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory(cfg)
		defer memory.Close()
		d := &double{Store: memory, start: time.Now(), calls: map[string][]time.Duration{}}
		f(&scene{
			T: t, store: d, guard: dedup.NewGuard(d), rule: rule(t, change),
			op: dedup.Operation{ID: dedup.Scope{}.ID("key"), Fingerprint: dedup.Fingerprint{1}, ReplayScope: dedup.ReplayScope{2}},
		})
	})
}

func releaseUnknown(r *dedup.Rule) { r.OnUnknownOutcome = dedup.UnknownRelease }

// begin asks the Guard.
func (s *scene) begin() dedup.Decision { return s.guard.Begin(s.Context(), s.rule, s.op) }

// mustClaim begins what must be executed.
func (s *scene) mustClaim() *dedup.Claim {
	s.Helper()
	d := s.begin()
	if d.Claim == nil || d.Replay != nil || d.Rejection != nil || d.InDoubt != nil {
		s.Fatalf("decision %+v (%v), want a claim", d, d.Rejection)
	}
	return d.Claim
}

// mustReplay begins what must be answered from a record.
func (s *scene) mustReplay() *dedup.Record {
	s.Helper()
	d := s.begin()
	if d.Replay == nil || d.Claim != nil || d.Rejection != nil || d.InDoubt != nil {
		s.Fatalf("decision %+v (%v), want a replay", d, d.Rejection)
	}
	return d.Replay
}

// mustReject begins what must be refused.
func (s *scene) mustReject(reason dedup.Reason) *dedup.Rejection {
	s.Helper()
	d := s.begin()
	if d.Rejection == nil || d.Rejection.Reason != reason || d.Claim != nil || d.Replay != nil {
		s.Fatalf("decision %+v (%v), want %s", d, d.Rejection, reason)
	}
	return d.Rejection
}

// must fails on an error.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// answer is a record as the proxy makes it.
func answer(body string) *dedup.Record {
	return &dedup.Record{Completed: time.Now(), Status: 201, Header: dedup.Fields{"Set-Cookie": {"a", "b"}}, Body: []byte(body)}
}

// other claims the ID as another replica's owner would, without renewals.
func (s *scene) other(lease time.Duration) dedup.Token {
	s.Helper()
	token := dedup.NewToken()
	found, err := s.store.Store.Claim(s.Context(), dedup.ClaimRequest{ID: s.op.ID, Token: token, Lease: lease, TTL: s.rule.TTL})
	if err != nil || found.State != dedup.StateAcquired {
		s.Fatalf("other claim: %+v, %v", found, err)
	}
	return token
}
