package proxy

import (
	"context"
	"net/http"
	"strings"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// serve serves a request that a rule matches, and observes its outcome once, however it
// ends.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, rt *route) {
	o := p.begin(r, rt)
	if rt.rule.Mode == dedup.ModeObserve {
		p.observe(w, r, o)
		return
	}
	defer o.end()
	defer p.rescue(w, o)
	if rejection := p.guarded(w, r, o); rejection != nil {
		o.reject(rejection)
		hurry(w, r)
		o.status = p.answer(w, rt, rejection)
	}
	o.served = true
}

// guarded is the story of a request: key, identity, body, fingerprint (and with it the key
// of a caller that sent none), decision, and then a replay, an execution, or the rejection
// that it returns. Until the decision nothing is claimed and nothing is sent.
func (p *Proxy) guarded(w http.ResponseWriter, r *http.Request, o *observation) *dedup.Rejection {
	rule := o.route.rule
	head, rejection := o.route.head(r)
	if rejection != nil {
		return rejection
	}
	if head.passes {
		o.passThrough(w, r)
		return nil
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
	op, rejection := p.operation(r, o.route.rule, head, body)
	if rejection != nil {
		return rejection
	}
	return p.decide(w, r, o, op, body, &held)
}

// readInTurns is the size of a body, in bytes, above which it is read in turn.
const readInTurns = 64 << 10

// operation makes of a request what is decided about. To read a body takes several times
// its memory for a moment, so that no more large ones are read at a time than there are
// processors: more would not be read sooner.
func (p *Proxy) operation(r *http.Request, rule *dedup.Rule, h head, body []byte) (dedup.Operation, *dedup.Rejection) {
	if len(body) > readInTurns && rule.ReadsBody() {
		p.budget.readers <- struct{}{}
		defer func() { <-p.budget.readers }()
	}
	return rule.Operation(h.scope, h.key, dedup.Request{Method: r.Method, Target: target(r), Header: r.Header.Values, Body: body})
}

// decide asks what becomes of an operation, and does it. A caller that leaves from now on
// changes nothing, unless it is waiting for another's request.
func (p *Proxy) decide(w http.ResponseWriter, r *http.Request, o *observation, op dedup.Operation, body []byte, held *hold) *dedup.Rejection {
	rule := o.route.rule
	o.id = op.ID
	claim := o.span.child(spanClaim)
	decision := p.guard.Begin(context.WithoutCancel(r.Context()), rule, op)
	claim.end(decision.Err())
	if rule.InFlight == dedup.InFlightWait && decision.InProgress() {
		decision = p.await(r, o, op, held, decision)
	}
	o.takenOver = decision.TakenOver
	if decision.InDoubt != nil {
		p.later.withdraw(decision.InDoubt)
	}
	if rule.ReplayAuth.URL != "" && tells(decision) {
		if allowed, rejection := p.mayHave(w, r, o, held); !allowed {
			return rejection
		}
	}
	switch {
	case decision.Claim != nil:
		p.execute(w, r, o, decision.Claim, body, held)
	case decision.Replay != nil:
		o.replayed(decision.Replay.Status)
		span := o.span.toReplay(decision.Replay.Trace)
		p.letGo(w)
		o.gone = !replay(w, rule, decision.Replay, decision.TTLLeft) || o.gone
		span.end(nil)
	case decision.Rejection.Reason == dedup.ReasonStoreUnavailable && rule.OnStoreFailure == dedup.StorePassThrough:
		o.err = decision.Rejection
		o.passThrough(w, buffered(r, body))
	case o.waitResult == metrics.WaitLeft:
		o.abandon()
	default:
		return decision.Rejection
	}
	return nil
}

// A head is what a rule reads in the head of a request.
type head struct {
	key    dedup.Key // "" if it has none
	passes bool      // for it has none and needs none
	scope  dedup.Scope
}

// head reads the head of a request.
func (rt *route) head(r *http.Request) (head, *dedup.Rejection) {
	rule := rt.rule
	key, rejection := rule.Key(r.Header.Values)
	if rejection != nil {
		return head{}, rejection
	}
	if key == "" && rule.MissingHeader == dedup.MissingReject {
		return head{}, &dedup.Rejection{Reason: dedup.ReasonMissingKey, Detail: "This request needs the header " + rule.HeaderName[0] + ": a value of your choice that names this one operation; send the same value when you retry it."}
	}
	passes := key == "" && rule.MissingHeader == dedup.MissingPassThrough
	if rejection := rt.checkHead(r, !passes); rejection != nil || passes {
		return head{passes: passes}, rejection
	}
	caller, rejection := rt.subject(r)
	if rejection != nil {
		return head{}, rejection
	}
	scope, rejection := rule.Scope(r.Header.Values, caller)
	return head{key: key, scope: scope}, rejection
}

// checkHead refuses a request that hides a key under another header's name, and one that
// is to be guarded and can't be.
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
