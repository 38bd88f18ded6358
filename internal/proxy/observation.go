package proxy

import (
	"net/http"
	"net/http/httputil"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// An observation is what is known of one request that a rule matches. The story writes
// into it; end is the one place that counts and logs.
type observation struct {
	proxy   *Proxy
	route   *route
	request *http.Request
	started time.Time

	outcome     string // see the constants below
	reason      dedup.Reason
	status      int
	id          dedup.ID
	cause       string // of an unknown outcome; "" when the outcome is known
	err         error
	leaseLost   bool
	would       string        // what enforce would have done; only of a rule that observes
	answering   bool          // something of an answer may have been sent
	served      bool          // the story came to its end: nothing broke on the way to the caller
	gone        bool          // the caller left before its answer was delivered
	took        time.Duration // set by close
	replayAuth  string        // what replay_auth said; "" when it was not asked
	takenOver   bool          // from an owner whose outcome nobody knows
	waited      time.Duration // for another request with the same key
	waitResult  string        // "" if it did not have to
	upstreamAt  time.Time     // when the request went to the upstream
	upstreamFor time.Duration // until its answer was complete
	span        *span         // of the request; nil when it is not traced
	upstream    *span         // of the upstream's part of an execution
}

// Outcomes of a request.
const (
	outcomeExecuted      = "executed"
	outcomeReplayed      = "replayed"
	outcomePassedThrough = "passed_through"
	outcomeRejected      = "rejected"
	outcomeReleased      = "released"
	outcomeFailed        = "failed"
	outcomeAbandoned     = "abandoned" // the caller left before anything was claimed
)

func (p *Proxy) begin(r *http.Request, rt *route) *observation {
	rt.metrics.Began()
	return &observation{proxy: p, route: rt, request: r, started: time.Now(), outcome: outcomeFailed, span: p.tracing.begin(r, rt)}
}

// passThrough forwards the request unguarded, though a rule matches it.
func (o *observation) passThrough(w http.ResponseWriter, r *http.Request) {
	o.outcome = outcomePassedThrough
	part := o.span.toUpstream()
	defer func() { part.answered(o.status, o.status == 0) }()
	rewrite := func(pr *httputil.ProxyRequest) {
		o.proxy.rewrite(pr)
		o.route.restoreHeaders(pr)
		part.inject(pr.Out.Header)
	}
	o.proxy.forward(w, r, passage{
		rewrite: rewrite,
		route:   o.route,
		see: func(res *http.Response) {
			o.status = res.StatusCode
			dropOurs(o.route.rule, res.Header)
		},
		failed: func(r *dedup.Rejection, status int) { o.reason, o.status = r.Reason, status },
	})
}

func (o *observation) abandon()  { o.outcome, o.gone = outcomeAbandoned, true }
func (o *observation) executed() { o.outcome = outcomeExecuted }
func (o *observation) released() { o.outcome = outcomeReleased }

func (o *observation) replayed(status int) {
	o.outcome, o.status, o.answering = outcomeReplayed, status, true
	o.delivering()
}

func (o *observation) reject(r *dedup.Rejection) {
	o.outcome, o.reason, o.err, o.answering = outcomeRejected, r.Reason, r.Err, true
	o.delivering()
}

// refused notes an answer of replay_auth that was passed on.
func (o *observation) refused(status int) {
	o.outcome, o.reason, o.status = outcomeRejected, metrics.ReasonReplayRefused, status
	o.replayAuth, o.answering = metrics.ReplayRefused, true
}

func (o *observation) fail(r *dedup.Rejection) {
	o.outcome, o.reason, o.err = outcomeFailed, r.Reason, r.Err
}

func (o *observation) waitEnded(result string) { o.waitResult = result }

// sent and answered frame the time that the upstream took.
func (o *observation) sent() {
	o.upstreamAt = time.Now()
	o.upstream = o.span.toUpstream()
}

func (o *observation) answered() {
	o.upstreamFor = time.Since(o.upstreamAt)
	o.upstream.answered(o.status, o.outcome == outcomeFailed)
}

// delivering notes whether the caller is still there when its answer is about to be
// written: one that leaves later, having read it, is not gone.
func (o *observation) delivering() { o.gone = o.gone || o.request.Context().Err() != nil }

// end counts and logs the request.
func (o *observation) end() {
	o.close()
	o.report()
}

// close notes what is known only while the request is being served.
func (o *observation) close() {
	o.took = time.Since(o.started)
	if !o.served {
		o.delivering()
	}
}

// report counts and logs the request.
func (o *observation) report() {
	o.count(o.took - o.upstreamFor - o.waited)
	o.log()
	o.span.finish(o)
}

func (o *observation) count(overhead time.Duration) {
	m := o.route.metrics
	m.Ended()
	switch o.outcome {
	case outcomeExecuted:
		m.Executed(overhead, o.upstreamFor)
	case outcomeReplayed:
		m.Replayed(overhead)
	case outcomePassedThrough:
		m.PassedThrough()
	case outcomeReleased:
		m.Released(overhead, o.upstreamFor)
	case outcomeRejected:
		m.Rejected(string(o.reason), overhead)
	default:
		m.Failed(overhead)
	}
	if o.waitResult != "" {
		m.Waited(o.waitResult)
	}
	if o.cause != "" {
		m.UnknownOutcome(o.cause)
	}
	if o.replayAuth != "" {
		m.ReplayAuth(o.replayAuth)
	}
	if o.takenOver {
		m.UnknownOutcome(metrics.CauseLease)
	}
	if o.leaseLost {
		m.LostLease()
	}
	if o.gone {
		m.CallerGone()
	}
	if o.would != "" {
		m.Would(o.would)
	}
}

// callersFault reports whether the request ended because of what the caller sent, or did
// not send.
func (o *observation) callersFault() bool {
	return o.reason == dedup.ReasonBadRequest || o.reason == dedup.ReasonRequestTimeout || o.reason == dedup.ReasonInvalidToken
}

// log writes the request's one line: what happened, nothing that the caller sent. Failures
// of the store and the upstream are written even when access lines are not asked for.
func (o *observation) log() {
	trouble := o.err != nil && !o.callersFault() || o.cause != "" || o.leaseLost || o.takenOver
	if !trouble && !o.proxy.rules.Load().accessLog {
		return
	}
	level := zap.InfoLevel
	if trouble {
		level = zap.WarnLevel
	}
	line := o.proxy.log.Check(level, "request")
	if line == nil {
		return
	}
	fields := make([]zap.Field, 0, 13)
	fields = append(fields,
		zap.String("route", o.route.rule.Name),
		zap.String("outcome", o.outcome),
		zap.Int("status", o.status),
		zap.Duration("took", o.took))
	optional := func(key, value string) {
		if value != "" {
			fields = append(fields, zap.String(key, value))
		}
	}
	optional("code", string(o.reason))
	optional("would", o.would)
	optional("key_hash", string(o.id))
	optional("unknown", o.cause)
	optional("replay_auth", o.replayAuth)
	if o.upstreamFor > 0 {
		fields = append(fields, zap.Duration("upstream", o.upstreamFor))
	}
	if o.waited > 0 {
		fields = append(fields, zap.Duration("waited", o.waited))
	}
	if o.leaseLost {
		fields = append(fields, zap.Bool("lease_lost", true))
	}
	if o.takenOver {
		fields = append(fields, zap.Bool("taken_over", true))
	}
	if o.gone {
		fields = append(fields, zap.Bool("caller_gone", true))
	}
	if o.err != nil {
		fields = append(fields, zap.Error(o.err))
	}
	line.Write(fields...)
}
