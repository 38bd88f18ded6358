package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Route counts the requests of one rule. Each request is reported by exactly one of
// Executed, Replayed, PassedThrough, Rejected, Released and Failed; the other methods
// add to that. All children are resolved when the Route is made, so that a request
// needs no label lookup. Make one with Metrics.Route.
type Route struct {
	name     string
	families families

	executed      outcome
	replayed      outcome
	rejected      outcome
	released      outcome
	failed        outcome
	passedThrough prometheus.Counter

	replays     prometheus.Counter
	lostLeases  prometheus.Counter
	callersGone prometheus.Counter
	inFlight    prometheus.Gauge
	waiting     prometheus.Gauge
	upstream    prometheus.Observer

	conflicts map[string]prometheus.Counter
	rejects   map[string]prometheus.Counter
	causes    map[string]prometheus.Counter
	auths     map[string]prometheus.Counter
	waits     map[string]prometheus.Counter
	asks      map[string]prometheus.Counter
}

// outcome has the children of one outcome of a guarded request.
type outcome struct {
	requests prometheus.Counter
	overhead prometheus.Observer
}

func (o outcome) observe(overhead time.Duration) {
	o.requests.Inc()
	o.overhead.Observe(overhead.Seconds())
}

func newRoute(name string, f families) *Route {
	r := &Route{
		name:          name,
		families:      f,
		passedThrough: f.requests.WithLabelValues(name, outcomePassedThrough),
		replays:       f.replays.WithLabelValues(name),
		lostLeases:    f.lostLeases.WithLabelValues(name),
		callersGone:   f.callersGone.WithLabelValues(name),
		inFlight:      f.inFlight.WithLabelValues(name),
		waiting:       f.waiting.WithLabelValues(name),
		upstream:      f.upstream.WithLabelValues(name),
	}
	r.executed = r.outcome(outcomeExecuted)
	r.replayed = r.outcome(outcomeReplayed)
	r.rejected = r.outcome(outcomeRejected)
	r.released = r.outcome(outcomeReleased)
	r.failed = r.outcome(outcomeFailed)
	conflicts, rejects := Reasons()
	r.conflicts = resolve(conflicts, func(reason string) prometheus.Counter {
		return f.conflicts.WithLabelValues(name, reason)
	})
	r.rejects = resolve(rejects, r.reject)
	r.causes = resolve(causes(), r.cause)
	r.auths = resolve(replayAuths(), r.auth)
	r.waits = resolve(waitResults(), r.wait)
	r.asks = resolve(states(), r.ask)
	return r
}

func (r *Route) outcome(name string) outcome {
	return outcome{
		requests: r.families.requests.WithLabelValues(r.name, name),
		overhead: r.families.overhead.WithLabelValues(r.name, name),
	}
}

func (r *Route) reject(reason string) prometheus.Counter {
	return r.families.rejects.WithLabelValues(r.name, reason)
}

func (r *Route) cause(cause string) prometheus.Counter {
	return r.families.unknownOutcomes.WithLabelValues(r.name, cause)
}

func (r *Route) auth(result string) prometheus.Counter {
	return r.families.replayAuths.WithLabelValues(r.name, result)
}

func (r *Route) wait(result string) prometheus.Counter {
	return r.families.waits.WithLabelValues(r.name, result)
}

func (r *Route) ask(state string) prometheus.Counter {
	return r.families.asks.WithLabelValues(r.name, state)
}

// Asked counts a question of a caller what is known of a key, by the state that it was
// told, or StateRefused.
func (r *Route) Asked(state string) { pick(r.asks, state, r.ask).Inc() }

// Began counts a request in that is being served; Ended must follow.
func (r *Route) Began() { r.inFlight.Inc() }

// Ended counts a request out that Began counted in.
func (r *Route) Ended() { r.inFlight.Dec() }

// Executed counts a guarded request that the upstream answered in upstream and whose
// answer was kept; overhead is the time it spent in the proxy besides.
func (r *Route) Executed(overhead, upstream time.Duration) {
	r.executed.observe(overhead)
	r.upstream.Observe(upstream.Seconds())
}

// Replayed counts a guarded request answered with a record, in overhead.
func (r *Route) Replayed(overhead time.Duration) {
	r.replayed.observe(overhead)
	r.replays.Inc()
}

// PassedThrough counts a request that was forwarded unguarded.
func (r *Route) PassedThrough() { r.passedThrough.Inc() }

// Rejected counts a request that the proxy refused without reaching the upstream, in
// overhead. The reason is the code of the answer (contract §4); see Reasons.
func (r *Route) Rejected(reason string, overhead time.Duration) {
	r.rejected.observe(overhead)
	if conflict, ok := r.conflicts[reason]; ok {
		conflict.Inc()
		return
	}
	pick(r.rejects, reason, r.reject).Inc()
}

// Released counts a guarded request that the upstream answered in upstream with a
// status of release_statuses, so that its key is free again.
func (r *Route) Released(overhead, upstream time.Duration) {
	r.released.observe(overhead)
	r.upstream.Observe(upstream.Seconds())
}

// Failed counts a guarded request that got no answer from the upstream, because it
// could not be reached, or failed, or took too long.
func (r *Route) Failed(overhead time.Duration) { r.failed.observe(overhead) }

// UnknownOutcome counts a guarded request that may have been executed, while nobody
// will see a record of it; the cause is one of the constants of this package.
func (r *Route) UnknownOutcome(cause string) { pick(r.causes, cause, r.cause).Inc() }

// LostLease counts an execution whose claim was no longer its own when it renewed or
// completed it.
func (r *Route) LostLease() { r.lostLeases.Inc() }

// ReplayAuth counts a question whether a caller may have a replay; the result is one of
// the constants of this package.
func (r *Route) ReplayAuth(result string) { pick(r.auths, result, r.auth).Inc() }

// WaitBegan counts a request in that waits for the answer of another with the same key;
// WaitEnded must follow.
func (r *Route) WaitBegan() { r.waiting.Inc() }

// WaitEnded counts a request out that WaitBegan counted in.
func (r *Route) WaitEnded() { r.waiting.Dec() }

// Waited counts a wait for another request's answer by its result, one of the constants of
// this package.
func (r *Route) Waited(result string) { pick(r.waits, result, r.wait).Inc() }

// CallerGone counts a caller that hung up before its response was delivered.
func (r *Route) CallerGone() { r.callersGone.Inc() }

// Observes makes the series of Would, for a rule in mode observe.
func (r *Route) Observes() { resolve(forecasts(), r.would) }

// Would counts what enforce would have done with a request of a rule in mode observe: an
// outcome, or the reason of a rejection.
func (r *Route) Would(outcome string) {
	if !slices.Contains(forecasts(), outcome) {
		outcome = other
	}
	r.would(outcome).Inc()
}

func (r *Route) would(outcome string) prometheus.Counter {
	return r.families.would.WithLabelValues(r.name, outcome)
}
