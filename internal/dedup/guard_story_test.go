package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
)

// A story is a random sequence of callers that ask and owners that answer, fail, vanish
// and come back, over a store that loses commands and replies.
type story struct {
	*scene
	mu     sync.Mutex // guards random, which the claims' timers use too
	random *rand.Rand
	faulty atomic.Bool
	owners []*owner
	steps  []string
}

// An owner was told to execute the operation.
type owner struct {
	claim    *dedup.Claim
	body     string
	end      func(context.Context) error // the one way in which it ends, once it has begun to
	released bool                        // it has said that it did not execute
	recorded bool                        // it has an answer
}

func (st *story) intn(n int) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.random.IntN(n)
}

// flaky runs a store operation, or loses it, or loses its reply.
func flaky[T any](st *story, op func() (T, error)) (T, error) {
	var none T
	fault := 2
	if st.faulty.Load() {
		fault = st.intn(8)
	}
	if fault == 0 {
		return none, errLost
	}
	result, err := op()
	if fault == 1 {
		return none, errLost
	}
	return result, err
}

func (st *story) misbehave() {
	real := st.store.Store
	st.faulty.Store(true)
	st.store.claim = func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
		return flaky(st, func() (dedup.Found, error) { return real.Claim(ctx, req) })
	}
	st.store.onRenew(func(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
		return flaky(st, func() (dedup.Verdict, error) { return real.Renew(ctx, id, token, lease) })
	})
	st.store.complete = func(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
		return flaky(st, func() (dedup.Verdict, error) { return real.Complete(ctx, id, token, c) })
	}
	st.store.release = func(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
		return flaky(st, func() (dedup.Verdict, error) { return real.Release(ctx, id, token) })
	}
}

// executing is the owner that may have executed, or nil.
func (st *story) executing() *owner {
	if i := slices.IndexFunc(st.owners, func(o *owner) bool { return !o.released }); i >= 0 {
		return st.owners[i]
	}
	return nil
}

// ask is a caller.
func (st *story) ask() {
	d := st.begin()
	executing := st.executing()
	switch {
	case d.Claim != nil && executing != nil:
		st.Fatalf("%v: executed twice", st.steps)
	case d.Claim != nil:
		st.owners = append(st.owners, &owner{claim: d.Claim, body: fmt.Sprint(len(st.owners))})
	case d.Replay != nil && (executing == nil || !executing.recorded || string(d.Replay.Body) != executing.body):
		st.Fatalf("%v: the answer %q is replayed, which is nobody's", st.steps, d.Replay.Body)
	case d.InDoubt != nil:
		go func() { _ = d.InDoubt.Withdraw(context.Background()) }()
	}
}

// act is an owner that ends, or tries once more.
func (st *story) act() {
	o := st.owners[st.intn(len(st.owners))]
	if o.end == nil {
		switch st.intn(3) {
		case 0:
			record := answer(o.body)
			o.recorded = true
			o.end = func(ctx context.Context) error { return o.claim.Complete(ctx, record) }
		case 1:
			o.end = o.claim.Unknown
		case 2:
			o.released = true
			o.end = o.claim.Release
		}
	}
	_ = o.end(st.Context())
}

// TestGuardExecutesAtMostOnce plays stories: there is never a second execution within the
// ttl unless the first owner said that it did not execute, and at the end the key is what
// its owner made of it.
func TestGuardExecutesAtMostOnce(t *testing.T) {
	for seed := range uint64(500) {
		inBubble(t, func(r *dedup.Rule) { r.TTL = time.Hour }, func(s *scene) {
			st := &story{scene: s, random: rand.New(rand.NewPCG(seed, 0)), steps: []string{fmt.Sprint("seed ", seed)}}
			st.misbehave()
			for range 15 {
				step := st.intn(4)
				st.steps = append(st.steps, []string{"ask", "act", "wait", "wait long"}[step])
				switch {
				case step == 0:
					st.ask()
				case step == 1 && len(st.owners) > 0:
					st.act()
				default:
					time.Sleep(time.Duration(st.intn(20*step)) * time.Second)
				}
			}
			st.finish()
		})
	}
}

// finish lets every owner end over a store that works, and asks what became of the key.
func (st *story) finish() {
	st.faulty.Store(false)
	for _, o := range st.owners {
		if o.end == nil {
			o.end = o.claim.Unknown
		}
		if err := o.end(st.Context()); err != nil && (!o.released || !errors.Is(err, dedup.ErrFenced)) {
			st.Errorf("%v: the end of an owner: %v", st.steps, err)
		}
	}
	time.Sleep(2 * st.rule.Lease) // withdrawals
	synctest.Wait()
	renewals := len(st.store.at("renew"))
	d := st.begin()
	switch executing := st.executing(); {
	case executing == nil && d.Claim != nil:
		st.must(d.Claim.Release(st.Context()))
	case executing == nil && d.Rejection != nil && d.Rejection.Reason == dedup.ReasonOutcomeUnknown && len(st.store.at("claim")) > len(st.owners)+1:
		// A claim that could not be withdrawn in its lease: wrong on the safe side.
	case executing != nil && executing.recorded && d.Replay != nil && string(d.Replay.Body) == executing.body:
	case executing != nil && !executing.recorded && d.Rejection != nil && d.Rejection.Reason == dedup.ReasonOutcomeUnknown:
	default:
		st.Errorf("%v: at the end the decision is %+v (%v)", st.steps, d, d.Rejection)
	}
	time.Sleep(10 * st.rule.Lease)
	if got := len(st.store.at("renew")); got != renewals {
		st.Errorf("%v: %d renewals after the end", st.steps, got-renewals)
	}
}
