package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"idemproxy/internal/dedup"
)

// observe forwards a request as if there were no rule, and finds out besides what the rule
// would have done with it. Nothing waits for that but the last byte of the answer, and
// that not for long: see forecast.await.
func (p *Proxy) observe(w http.ResponseWriter, r *http.Request, o *observation) {
	o.outcome = outcomePassedThrough
	f := &forecast{proxy: p, o: o, r: r, endings: make(chan ending, 1), known: make(chan struct{}), held: hold{budget: p.budget}}
	defer f.end()
	defer p.rescue(w, o)
	f.begin()
	p.forward(w, r, passage{rewrite: p.rewrite, see: f.answered, failed: f.failed})
	o.served = true
}

// A forecast finds out what enforce would have done with one request. It looks on while
// the request's body passes, claims when that is whole, and ends the claim as the upstream
// answers; claims and records are real ones, under IDs of their own (dedup.ID.Observed),
// and without answers.
type forecast struct {
	proxy *Proxy
	o     *observation
	r     *http.Request
	head  head

	endings chan ending   // takes one: how a claim ends
	ended   bool          // endings has its one
	once    sync.Once     // closes known
	known   chan struct{} // closed when what follows is known, and the store has what is to be kept
	would   string
	id      dedup.ID
	err     error

	mu    sync.Mutex // guards what follows: bodies are read by the transport
	asked time.Time  // when the body was whole, or the forecast known without; then nothing is kept any more
	body  []byte
	held  hold
}

// An ending is what becomes of a claim.
type ending struct {
	would string
	tell  func(context.Context, *dedup.Claim) error
}

// statusGone is recorded for an answer that came to nothing because the caller left: under
// enforce the request would have run to its end.
const statusGone = 499

// begin reads the request's head.
func (f *forecast) begin() {
	o, r := f.o, f.r
	var rejection *dedup.Rejection
	f.head, rejection = o.route.head(r)
	switch {
	case rejection != nil:
		f.know(string(rejection.Reason))
	case f.head.passes:
		f.know(outcomePassedThrough)
	case r.ContentLength > int64(o.route.rule.MaxRequestBody):
		f.know(string(dedup.ReasonRequestTooLarge))
	case r.ContentLength == 0:
		f.ask(true)
	default:
		r.Body = &observedBody{r.Body, f}
	}
}

// learned ends what waits for the forecast.
func (f *forecast) learned() { f.once.Do(func() { close(f.known) }) }

// know settles the forecast without asking the store, unless it was asked already.
func (f *forecast) know(would string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked.IsZero() {
		return
	}
	f.asked, f.would, f.body = time.Now(), would, nil
	f.held.free()
	f.learned()
}

// ask asks the store, once. Of a body that isn't whole, for the upstream answered without
// reading it, there is no fingerprint: it counts as any body.
func (f *forecast) ask(whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked.IsZero() {
		return
	}
	f.asked = time.Now()
	f.proxy.later.run(func(ctx context.Context) {
		defer f.learned() // also when it breaks
		op, rejection := f.proxy.operation(f.r, f.o.route.rule, f.head, f.body)
		f.body = nil
		f.held.free()
		if rejection != nil {
			f.would = string(rejection.Reason)
			f.learned()
			return
		}
		if !whole {
			op.Fingerprint = dedup.Fingerprint{}
		}
		f.decide(ctx, op.Observed())
	})
}

// decide claims the operation as enforce would, and ends the claim when it is known how.
func (f *forecast) decide(ctx context.Context, op dedup.Operation) {
	rule := f.o.route.rule
	f.id = op.ID
	decision := f.proxy.guard.Begin(ctx, rule, op)
	if decision.InDoubt != nil {
		f.proxy.later.withdraw(decision.InDoubt)
	}
	if decision.Claim == nil {
		f.would = outcomeReplayed
		if r := decision.Rejection; r != nil {
			f.would, f.err = string(r.Reason), r.Err
			if r.Reason == dedup.ReasonStoreUnavailable && rule.OnStoreFailure == dedup.StorePassThrough {
				f.would = outcomePassedThrough
			}
		}
		f.learned()
		return
	}
	e := <-f.endings
	tell := func(ctx context.Context) error { return e.tell(ctx, decision.Claim) }
	err := tell(ctx)
	f.would = e.would
	f.learned()
	if err != nil {
		_ = decision.Claim.Persist(ctx, tell) // what is never recorded counts as unknown, as under enforce
	}
}

// answered sees the head of the answer. It looks on while the body passes.
func (f *forecast) answered(res *http.Response) {
	f.o.status = res.StatusCode
	if res.StatusCode == http.StatusSwitchingProtocols {
		return // the body is a connection
	}
	if endless(res) {
		f.executed(true)
	}
	res.Body = &observedAnswer{ReadCloser: res.Body, f: f}
}

// failed sees that no answer came.
func (f *forecast) failed(r *dedup.Rejection, status int) {
	f.o.reason, f.o.status = r.Reason, status
	f.ask(false) // unless it was asked, with the whole body
	if r.Reason == dedup.ReasonUpstreamUnreachable {
		f.finish(ending{string(r.Reason), func(ctx context.Context, c *dedup.Claim) error { return c.Release(ctx) }})
		return
	}
	f.unknown(r.Reason)
}

// executed ends the claim of a request that was answered, and whose answer enforce would
// have kept, or not.
func (f *forecast) executed(notStored bool) {
	f.ask(false) // unless it was asked, with the whole body
	rule, status := f.o.route.rule, cmp.Or(f.o.status, statusGone)
	switch {
	case rule.Releases(status):
		f.finish(ending{outcomeReleased, func(ctx context.Context, c *dedup.Claim) error { return c.Release(ctx) }})
	case !notStored && f.since() > f.proxy.options.Upstream.ResponseTimeout:
		f.unknown(dedup.ReasonUpstreamTimeout)
	default:
		record := &dedup.Record{NotStored: notStored, Completed: time.Now(), Status: status}
		f.finish(ending{outcomeExecuted, func(ctx context.Context, c *dedup.Claim) error { return c.Complete(ctx, record) }})
	}
}

func (f *forecast) unknown(why dedup.Reason) {
	f.finish(ending{string(why), func(ctx context.Context, c *dedup.Claim) error { return c.Unknown(ctx) }})
}

// finish says how a claim ends, if there is one. Only the first word counts.
func (f *forecast) finish(e ending) {
	if !f.ended {
		f.ended = true
		f.endings <- e
	}
}

func (f *forecast) since() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.asked)
}

// recordGrace is how long the last byte of an answer waits until the store knows of it.
const recordGrace = 100 * time.Millisecond

// await holds back the end of an answer until it is recorded, so that a retry right behind
// it is taken for one; but not for long, whatever the store does.
func (f *forecast) await() {
	select {
	case <-f.known:
		return
	default:
	}
	timer := time.NewTimer(recordGrace)
	defer timer.Stop()
	select {
	case <-f.known:
	case <-timer.C:
	}
}

// end settles what nothing else has settled, and counts and logs the request as soon as
// the forecast is known.
func (f *forecast) end() {
	f.o.close()
	if f.o.gone {
		f.know(string(dedup.ReasonBadRequest)) // unless the body was whole before
		f.executed(false)
	}
	f.ask(false) // unless it was asked, with the whole body
	f.unknown(dedup.ReasonUpstreamFailed)
	select {
	case <-f.known:
		f.report()
	default:
		f.proxy.later.run(func(context.Context) {
			<-f.known
			f.report()
		})
	}
}

func (f *forecast) report() {
	f.o.would, f.o.id, f.o.err = f.would, f.id, errors.Join(f.o.err, f.err)
	f.o.report()
}
