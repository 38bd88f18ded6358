package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// errResponseTimeout ends a guarded request whose answer is not complete in time.
var errResponseTimeout = errors.New("no complete answer within upstream.response_timeout")

// An execution is a guarded request on its way to the upstream and back. Exactly one of
// its endings is told to the claim: see settle.
type execution struct {
	proxy   *Proxy
	claim   *dedup.Claim
	o       *observation
	w       http.ResponseWriter
	caller  context.Context // ends when the caller is gone
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout *time.Timer
	held    *hold
	settled bool
	drains  bool // the answer is read to its end after the caller is gone
}

// execute sends a claimed request to the upstream, on its own deadline and whatever
// becomes of the caller, records the answer, and only then delivers it.
func (p *Proxy) execute(w http.ResponseWriter, r *http.Request, o *observation, claim *dedup.Claim, body []byte, held *hold) {
	// A context without Done would make ReverseProxy watch the caller by itself.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	ex := &execution{proxy: p, claim: claim, o: o, w: w, caller: r.Context(), ctx: ctx, cancel: cancel, held: held}
	ex.timeout = time.AfterFunc(p.options.Upstream.ResponseTimeout, func() { cancel(errResponseTimeout) })
	defer ex.close()

	rp := p.reverseProxy()
	rp.Rewrite = ex.rewrite
	rp.Transport = p.upstream.guarded
	rp.ModifyResponse = func(res *http.Response) error {
		err := ex.capture(res)
		o.answering = err == nil
		return err
	}
	rp.ErrorHandler = ex.failed
	o.sent()
	rp.ServeHTTP(w, buffered(r.WithContext(ctx), body))
}

// rewrite makes the request that the upstream sees.
func (ex *execution) rewrite(pr *httputil.ProxyRequest) {
	ex.proxy.rewrite(pr)
	ex.o.route.restoreHeaders(pr)
	out := pr.Out
	out.URL.Opaque, out.URL.RawQuery, out.URL.ForceQuery = target(pr.In), "", false
	out.Header.Del("Expect") // the whole body is here already
	ex.o.upstream.inject(out.Header)
	if !ex.o.route.rule.ForwardKey {
		for _, name := range ex.o.route.rule.HeaderName {
			out.Header.Del(name)
		}
	}
}

// capture sees the answer's head, before the caller sees anything of it. It records the
// answer, or what is known of it, and leaves a body to deliver.
func (ex *execution) capture(res *http.Response) error {
	rule := ex.o.route.rule
	if res.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("the upstream switched protocols unasked")
	}
	inventNothing(ex.w)
	ex.proxy.letGo(ex.w)
	cleanAnswer(rule, res)
	ex.o.status = res.StatusCode
	if rule.Releases(res.StatusCode) {
		ex.o.released()
		ex.settle(ex.claim.Release)
		return nil
	}
	ex.held.free() // the request's body is the upstream's now
	if endless(res) {
		ex.o.executed()
		ex.pass(res, nil)
		return nil
	}
	limit := int64(rule.MaxResponseBody)
	room := ex.held.answerRoom(ex.ctx, res.ContentLength, limit+1)
	body, err := readSteps(io.LimitReader(res.Body, limit+1), res.ContentLength, room)
	if err != nil && !errors.Is(err, errNoRoom) {
		ex.o.cause = metrics.CauseBody
		return fmt.Errorf("read answer: %w", err)
	}
	ex.o.executed()
	if err != nil || int64(len(body)) > limit {
		ex.pass(res, body)
		return nil
	}
	ex.keep(res, body)
	return nil
}

// keep records a whole answer, and then lets it be delivered.
func (ex *execution) keep(res *http.Response, body []byte) {
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	frame(res, len(body))
	rule := ex.o.route.rule
	record := &dedup.Record{
		Trace:     ex.o.upstream.id(),
		Completed: time.Now(),
		Status:    res.StatusCode,
		Header:    recorded(rule, res.Header),
		Trailer:   dedup.Fields(res.Trailer),
		Body:      body,
	}
	if ex.complete(record) && !record.NotStored && rule.ExposeExpiry {
		expires(res.Header, record.Completed.Add(ex.claim.TTL()))
	}
}

// complete reports whether the record is in the store.
func (ex *execution) complete(record *dedup.Record) bool {
	return ex.settle(func(ctx context.Context) error { return ex.claim.Complete(ctx, record) })
}

// cleanAnswer takes from an answer what only the proxy may say, and gives it the Date
// that a replay will carry too (RFC 9110, 6.6.1).
func cleanAnswer(rule *dedup.Rule, res *http.Response) {
	dropOurs(rule, res.Header)
	if len(res.Header["Date"]) == 0 {
		res.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
}

// frame gives a whole answer its length. HTTP/1.1 sends trailers only with a chunked body,
// so that an answer with trailers has none.
func frame(res *http.Response, length int) {
	switch {
	case len(res.Trailer) > 0:
		res.ContentLength = -1
		res.Header.Del("Content-Length")
	case res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified:
		res.ContentLength = int64(length)
		res.Header.Set("Content-Length", strconv.Itoa(length))
	}
}

// recorded are the headers to record: those that are delivered, without the rule's
// drop_response_headers.
func recorded(rule *dedup.Rule, h http.Header) dedup.Fields {
	if len(rule.DropResponseHeaders) == 0 {
		return dedup.Fields(h)
	}
	h = h.Clone()
	for _, name := range rule.DropResponseHeaders {
		h.Del(name)
	}
	return dedup.Fields(h)
}

// failed answers a request that has no complete answer from the upstream, and ends its
// claim by what is known: it was provably not sent, or nobody knows.
func (ex *execution) failed(w http.ResponseWriter, _ *http.Request, err error) {
	rejection := failure(ex.ctx, err)
	ex.o.fail(rejection)
	switch rejection.Reason {
	case dedup.ReasonUpstreamUnreachable:
		ex.o.cause = ""
		ex.settle(ex.claim.Release)
	case dedup.ReasonUpstreamTimeout:
		ex.unknown(metrics.CauseTimeout)
	default:
		ex.unknown(metrics.CauseConnection)
	}
	ex.o.answering = true
	ex.o.status = ex.proxy.answer(w, ex.o.route, rejection)
}

// unknown ends the claim of a request that may have been executed. A cause that was noted
// already is the better one.
func (ex *execution) unknown(cause string) {
	if ex.o.cause == "" {
		ex.o.cause = cause
	}
	ex.settle(ex.claim.Unknown)
}

// close ends the execution, and settles what nothing else has settled, as when a panic
// passes by.
func (ex *execution) close() {
	ex.timeout.Stop()
	if !ex.drains {
		ex.cancel(nil)
	}
	if !ex.settled {
		ex.unknown(metrics.CauseConnection)
	}
}

// settle tells the store how the claim ended, and reports whether it took it. If it does
// not, the caller doesn't wait: it is tried on in the background while the claim's lease
// lives.
func (ex *execution) settle(end func(context.Context) error) bool {
	ex.o.answered()
	span := ex.o.ending()
	err := end(context.Background())
	ex.settled = true
	span.end(err)
	ex.o.leaseLost = ex.claim.LeaseLost()
	ex.o.delivering()
	if err == nil {
		return true
	}
	ex.o.err = errors.Join(ex.o.err, err)
	if !errors.Is(err, dedup.ErrFenced) {
		ex.persist(end)
	}
	return false
}

// persist tries on to tell the store how the claim ended. What the observation counts
// already, an outcome that is unknown or a lease that is lost, is not counted again.
func (ex *execution) persist(end func(context.Context) error) {
	p, rt, id := ex.proxy, ex.o.route, ex.o.id
	known, lost := ex.o.cause != "", ex.o.leaseLost
	log := p.log.With(zap.String("route", rt.rule.Name), zap.String("key_hash", string(id)))
	p.later.run(func(ctx context.Context) {
		err := ex.claim.Persist(ctx, end)
		switch {
		case err == nil:
		case errors.Is(err, dedup.ErrFenced):
			if !lost {
				rt.metrics.LostLease()
			}
			log.Warn("a claim was somebody else's before the store took its end", zap.Error(err))
		default:
			if !known {
				rt.metrics.UnknownOutcome(metrics.CauseStore)
			}
			log.Error("the store never took the end of a claim; its outcome is unknown to others", zap.Error(err))
		}
	})
}

// failure is the answer to a request that the upstream did not answer completely.
func failure(ctx context.Context, err error) *dedup.Rejection {
	r := &dedup.Rejection{Err: err}
	dial, isOp := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errNotSent) || isOp && dial.Op == "dial":
		r.Reason = dedup.ReasonUpstreamUnreachable
		r.Detail = "The service behind this proxy can't be reached; the request was not sent. Retry with the same key."
	case errors.Is(context.Cause(ctx), errResponseTimeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		r.Reason = dedup.ReasonUpstreamTimeout
		r.Detail = "The service behind this proxy did not answer in time; it may have executed the request."
	default:
		r.Reason = dedup.ReasonUpstreamFailed
		r.Detail = "The service behind this proxy gave no complete answer; it may have executed the request."
	}
	return r
}
