package proxy

import (
	"context"
	"net/http"
	"strings"

	"idemproxy/internal/dedup"
)

// serve serves a request that a rule matches, and observes its outcome once, however it
// ends.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, rt *route) {
	o := p.begin(r, rt)
	defer o.end()
	if rejection := p.guarded(w, r, o); rejection != nil {
		o.reject(rejection)
		hurry(w, r)
		o.status = p.answer(w, rt.rule, rejection)
	}
}

// guarded is the story of a request: key, identity, body, fingerprint, decision, and then
// a replay, an execution, or the rejection that it returns. Until the decision nothing is
// claimed and nothing is sent.
func (p *Proxy) guarded(w http.ResponseWriter, r *http.Request, o *observation) *dedup.Rejection {
	rule := o.route.rule
	key, rejection := rule.Key(r.Header.Values)
	if rejection != nil {
		return rejection
	}
	if key == "" && rule.MissingHeader == dedup.MissingReject {
		return &dedup.Rejection{Reason: dedup.ReasonMissingKey, Detail: "This request needs the header " + rule.HeaderName[0] + ": a value of your choice that names this one operation; send the same value when you retry it."}
	}
	if rejection := o.route.checkHead(r, key != ""); rejection != nil {
		return rejection
	}
	if key == "" {
		o.passThrough(w, r)
		return nil
	}
	scope, rejection := rule.Scope(r.Header.Values)
	if rejection != nil {
		return rejection
	}
	if !p.budget.enter() {
		return overloaded()
	}
	defer p.budget.leave()
	held := hold{budget: p.budget}
	defer held.free()
	body, rejection := p.receive(w, r, rule.MaxRequestBody, &held)
	if rejection != nil {
		return rejection
	}
	if r.Context().Err() != nil { // the caller left before anything was claimed
		o.abandon()
		return nil
	}
	op := dedup.Operation{ID: scope.ID(key)}
	op.Fingerprint = rule.Fingerprint.Of(dedup.Request{Method: r.Method, Target: target(r), Header: r.Header.Values, Body: body})
	op.ReplayScope = rule.ReplayScope(op.ID, r.Header.Values)
	return p.decide(w, r, o, op, body, &held)
}

// decide asks what becomes of an operation, and does it. A caller that leaves from now on
// changes nothing.
func (p *Proxy) decide(w http.ResponseWriter, r *http.Request, o *observation, op dedup.Operation, body []byte, held *hold) *dedup.Rejection {
	rule := o.route.rule
	o.id = op.ID
	claim := o.span.child(spanClaim)
	decision := p.guard.Begin(context.WithoutCancel(r.Context()), rule, op)
	claim.end(decision.Err())
	o.takenOver = decision.TakenOver
	if decision.InDoubt != nil {
		p.later.withdraw(decision.InDoubt)
	}
	switch {
	case decision.Claim != nil:
		p.execute(w, r, o, decision.Claim, body, held)
	case decision.Replay != nil:
		o.replayed(decision.Replay.Status)
		span := o.span.toReplay(decision.Replay.Trace)
		replay(w, rule, decision.Replay)
		span.end(nil)
	case decision.Rejection.Reason == dedup.ReasonStoreUnavailable && rule.OnStoreFailure == dedup.StorePassThrough:
		o.err = decision.Rejection
		o.passThrough(w, buffered(r, body))
	default:
		return decision.Rejection
	}
	return nil
}

// checkHead refuses a request that hides a key under another header's name, and one with
// a key that can't be guarded.
func (rt *route) checkHead(r *http.Request, guarded bool) *dedup.Rejection {
	detail := ""
	switch {
	case rt.twins.in(r.Header):
		detail = "A header is there under a name with underscores that some services take for the one with hyphens; send the one with hyphens only."
	case guarded && r.Header.Get("Upgrade") != "":
		detail = "A request that is to be safe to retry can't upgrade its connection."
	case guarded && !r.ProtoAtLeast(1, 1) && r.Header.Get("Content-Length") == "":
		detail = "An HTTP/1.0 request needs a Content-Length here."
	default:
		return nil
	}
	return &dedup.Rejection{Reason: dedup.ReasonBadRequest, Detail: detail}
}

// target is the request-target as it was sent and is forwarded, byte for byte. Of the
// absolute form (RFC 9112, 3.2.2) it is what follows the authority.
func target(r *http.Request) string {
	t := r.RequestURI
	if t == "" || t[0] == '/' || t == "*" {
		return t
	}
	_, rest, _ := strings.Cut(t, ":") // after the scheme, which has no colon
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		at := strings.IndexAny(authority, "/?")
		switch {
		case at < 0:
			return "/"
		case authority[at] == '?':
			return "/" + authority[at:]
		default:
			return authority[at:]
		}
	}
	if strings.HasPrefix(rest, "/") {
		return rest
	}
	return r.URL.RequestURI()
}
