package dedup

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// How long those who wait for a key let the store be without a question, should nobody
// tell them that the key has ended: at first, and at most.
const (
	firstWait = time.Second
	maxWait   = 4 * time.Second
	minWait   = 10 * time.Millisecond // where the end of the lease would come sooner
)

// waits are those who wait in this process.
type waits struct {
	mu sync.Mutex
	of map[waitKey]*queue
}

// waitKey is what they wait for, and by which rule: those of one rule all do the same
// with what they find.
type waitKey struct {
	id   ID
	rule *Rule
}

// A queue is those who wait for one key. One of them, who has the turn, asks the store
// for all, when it is told to, when the owner's lease should be over, and now and then.
// The others wait for the turn, or for what it found.
type queue struct {
	waiting  int           // guarded by waits.mu
	turn     chan struct{} // has a value while nobody has the turn
	wake     <-chan struct{}
	stop     func()
	leaseEnd atomic.Int64 // of the owner, as far as it is known, in Unix nanoseconds

	// Only who has the turn uses these.
	askAt   time.Time
	pause   time.Duration
	longest time.Duration // that the store is left without a question

	over  chan struct{} // closed when there is an answer for all; it stands in what follows
	found Found
	err   error
}

// Await decides about an operation that Begin found in progress: it waits until the
// running one has ended, and then replays its answer, takes the key over if it is free, or
// refuses for another reason. When ctx is over before, it refuses as Begin did, and holds
// nothing.
//
// However many wait for a key in this process, one at a time asks the store, in general
// only when the store says that it is worth it. The rule must be the same *Rule for all
// requests of a route.
func (g *Guard) Await(ctx context.Context, rule *Rule, op Operation) Decision {
	key := waitKey{op.ID, rule}
	q := g.waits.enter(key, g.store, cmp.Or(op.TTL, rule.TTL))
	defer g.waits.leave(key, q)
	select {
	case <-q.over:
	case <-q.turn:
		defer func() { q.turn <- struct{}{} }()
		return g.lead(ctx, q, g.newClaim(rule, op))
	case <-ctx.Done():
		return q.gaveUp()
	}
	return g.decide(ctx, g.newClaim(rule, op), q.found, q.err)
}

// lead asks for all who wait, until there is an answer for all, the claim is this one's,
// or ctx is over.
func (g *Guard) lead(ctx context.Context, q *queue, c *Claim) Decision {
	var doubt *Claim // one token, whose every attempt is a repetition of the first
	for {
		if !q.pass(ctx) {
			d := q.gaveUp()
			select {
			case <-q.over: // before this one had the turn
				d = g.decide(context.WithoutCancel(ctx), c, q.found, q.err)
			default:
			}
			d.InDoubt = doubt
			return d
		}
		found, err := g.claim(context.WithoutCancel(ctx), c, true)
		switch {
		case err == nil && found.State == StateInProgress:
			q.goOn(found.LeaseLeft)
		case err == nil && (found.State == StateAcquired || found.State == StateTakenOver):
			q.pause = 0
			q.goOn(c.rule.Lease)
			q.askAt = time.Now() // so that the store learns that others wait for this claim, too
			if ctx.Err() != nil {
				return q.giveBack(ctx, c)
			}
			return g.decide(context.WithoutCancel(ctx), c, found, nil)
		case err != nil && !errors.Is(err, ErrUnreadable):
			if !errors.Is(err, ErrNotApplied) {
				doubt = c
			}
			q.goOn(maxWait)
		default:
			g.waits.end(waitKey{c.op.ID, c.rule}, q, found, err)
			d := g.decide(context.WithoutCancel(ctx), c, found, err)
			d.InDoubt = doubt
			return d
		}
	}
}

// pass waits until it makes sense to ask the store. It reports false when there is
// nothing to ask any more: ctx is over, or the answer is there. Who was told to ask does so
// whatever ctx says, for the others have not been told.
func (q *queue) pass(ctx context.Context) bool {
	select {
	case <-q.over:
		return false
	default:
	}
	timer := time.NewTimer(time.Until(q.askAt))
	defer timer.Stop()
	select {
	case <-q.wake:
		return true
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// goOn notes what is left of the owner's lease, and when to ask again.
func (q *queue) goOn(leaseLeft time.Duration) {
	now := time.Now()
	q.pause = min(max(firstWait, 2*q.pause), q.longest)
	q.leaseEnd.Store(now.Add(leaseLeft).UnixNano())
	q.askAt = now.Add(max(minWait, min(q.pause, leaseLeft)))
}

// gaveUp is the decision for who does not wait any longer.
func (q *queue) gaveUp() Decision {
	return inProgress(max(time.Millisecond, time.Until(time.Unix(0, q.leaseEnd.Load()))))
}

// giveBack frees a claim that came when nobody was there any more to execute it.
func (q *queue) giveBack(ctx context.Context, c *Claim) Decision {
	d := q.gaveUp()
	if err := c.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, ErrFenced) {
		d.InDoubt = c
	}
	return d
}

// enter joins those who wait, or is the first of them. The record that they wait for lives
// for ttl, which may not pass between two questions: then the key would be free, and what
// they asked for be executed again.
func (w *waits) enter(key waitKey, store Store, ttl time.Duration) *queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.of[key]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1), over: make(chan struct{}), longest: min(maxWait, ttl/2)}
		q.askAt = time.Now().Add(min(firstWait, q.longest))
		q.turn <- struct{}{}
		q.leaseEnd.Store(time.Now().Add(key.rule.Lease).UnixNano())
		q.wake, q.stop = store.Watch(key.id)
		if w.of == nil {
			w.of = make(map[waitKey]*queue)
		}
		w.of[key] = q
	}
	q.waiting++
	return q
}

// leave is the end of waiting, for whatever reason.
func (w *waits) leave(key waitKey, q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.waiting--; q.waiting > 0 {
		return
	}
	q.stop()
	if w.of[key] == q {
		delete(w.of, key)
	}
}

// end gives all who wait an answer. Who comes later waits anew.
func (w *waits) end(key waitKey, q *queue, found Found, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.found, q.err = found, err
	close(q.over)
	delete(w.of, key)
}
