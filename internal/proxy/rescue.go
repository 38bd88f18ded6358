package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// rescue is deferred around the story of a request, and ends a panic, which is a fault of
// this program: logged once, and answered if nothing of an answer was sent yet. The claim,
// if there is one, has been ended by then as one whose outcome is unknown; see
// execution.close.
func (p *Proxy) rescue(w http.ResponseWriter, o *observation) {
	fault := recover()
	if fault == nil {
		return
	}
	p.panicked(fault)
	if o.answering {
		panic(http.ErrAbortHandler) // the caller must see that this is not the whole answer
	}
	rejection := broken()
	o.fail(rejection)
	o.status = p.answer(w, o.route, rejection)
	o.served = true
}

// broken is the answer to a request that this program failed to serve.
func broken() *dedup.Rejection {
	return &dedup.Rejection{
		Reason: dedup.ReasonUpstreamFailed,
		Detail: "This proxy failed while it served the request; the service behind it may have executed it. Retry once with the same key: the answer says what is known.",
	}
}

// rescueForward is rescue for a request that passes through, unguarded.
func (p *Proxy) rescueForward(w http.ResponseWriter, how passage, answering *bool) {
	fault := recover()
	if fault == nil {
		return
	}
	p.panicked(fault)
	if *answering {
		panic(http.ErrAbortHandler)
	}
	rejection := broken()
	status := p.answer(w, how.route, rejection)
	if how.failed != nil {
		how.failed(rejection, status)
	}
}

// panicked logs a panic. One that only ends a connection, as ReverseProxy does it, goes on.
func (p *Proxy) panicked(fault any) {
	if err, _ := fault.(error); errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	logPanic(p.log, fault)
}

// logPanic logs a panic with its stack, called by the deferred function that recovered it.
// The value may have bytes of a caller in it, unless it is the runtime's.
func logPanic(log *zap.Logger, fault any) {
	what := fmt.Sprintf("%T", fault)
	if err, _ := fault.(error); err != nil {
		if known, ok := errors.AsType[runtime.Error](err); ok {
			what = known.Error()
		}
	}
	log.WithOptions(zap.AddStacktrace(zap.ErrorLevel)).Error("panic: a fault of this program", zap.String("fault", what))
}
