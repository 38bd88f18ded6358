package proxy

import (
	"context"
	"net/http"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// await lets a request wait for the end of the one that is being executed under its key,
// and returns what becomes of it then. While it waits it counts as waiting, not as being
// served, but keeps its body: it may have to execute yet. A request that there is no room
// to let wait is refused as if the rule did not wait.
//
// It waits no longer than the rule says, than its caller is there, and than the proxy
// serves: one that drains refuses all who wait at once, so that they find another.
func (p *Proxy) await(r *http.Request, o *observation, op dedup.Operation, held *hold, refused dedup.Decision) dedup.Decision {
	if !p.budget.park(held.held) {
		o.waitEnded(metrics.WaitNoRoom)
		return refused
	}
	defer p.budget.unpark(held.held)
	rule := o.route.rule
	ctx, cancel := context.WithTimeout(r.Context(), rule.WaitTimeout)
	defer cancel()
	defer context.AfterFunc(p.serving, cancel)()

	o.route.metrics.WaitBegan()
	defer o.route.metrics.WaitEnded()
	started := time.Now()
	decision := p.guard.Await(ctx, rule, op)
	o.waited = time.Since(started)
	o.waitEnded(p.waitResult(r, decision))
	return decision
}

// waitResult is the word for how a wait ended.
func (p *Proxy) waitResult(r *http.Request, d dedup.Decision) string {
	switch {
	case d.Replay != nil:
		return metrics.WaitReplayed
	case d.Claim != nil:
		return metrics.WaitTookOver
	case d.Rejection.Reason != dedup.ReasonInProgress:
		return metrics.WaitRefused
	case r.Context().Err() != nil:
		return metrics.WaitLeft
	case p.serving.Err() != nil:
		return metrics.WaitDrained
	default:
		return metrics.WaitTimedOut
	}
}
