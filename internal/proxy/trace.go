package proxy

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"idemproxy/internal/dedup"
)

// Spans of a request, below the one that is the request's own.
const (
	spanClaim    = "claim"    // asking the store what becomes of a key
	spanUpstream = "upstream" // from sending the request to the whole answer
	spanComplete = "complete" // telling the store the answer
	spanUnknown  = "unknown"  // telling it that nobody knows the outcome
	spanRelease  = "release"  // telling it that nothing was executed
	spanReplay   = "replay"   // answering with a record
)

// A span is a part of a request in a trace. A nil span is that of a request that is not
// traced, and does nothing.
//
// What it carries was chosen by the configuration or by the proxy, never by a caller: the
// rule's pattern instead of the path, a hash instead of the key.
type span struct {
	tracer trace.Tracer
	ctx    context.Context // it holds the span, and nothing of the request
	trace.Span
}

// begin begins the span of a request, within the trace that the caller began, if it did.
func (t *tracing) begin(r *http.Request, rt *route) *span {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	// More than one traceparent is none; tracestate may come in parts (Trace Context, 3.3).
	if parent := r.Header["Traceparent"]; len(parent) == 1 {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": parent[0],
			"tracestate":  strings.Join(r.Header["Tracestate"], ","),
		})
	}
	method := strings.ToUpper(r.Method) // as the rule has it
	ctx, s := t.tracer.Start(ctx, method+" "+rt.rule.Path, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", method),
		attribute.String("http.route", rt.rule.Path),
		attribute.String("idemproxy.route", rt.rule.Name),
	))
	return &span{t.tracer, ctx, s}
}

// child begins a span within this one.
func (s *span) child(name string, options ...trace.SpanStartOption) *span {
	if s == nil {
		return nil
	}
	ctx, child := s.tracer.Start(s.ctx, name, options...)
	return &span{s.tracer, ctx, child}
}

// toUpstream begins the span of the upstream's part.
func (s *span) toUpstream() *span {
	if s == nil {
		return nil
	}
	return s.child(spanUpstream, trace.WithSpanKind(trace.SpanKindClient))
}

// toReplay begins the span of a replay. It links to that of the execution.
func (s *span) toReplay(of dedup.TraceID) *span {
	if s == nil {
		return nil
	}
	if of == (dedup.TraceID{}) {
		return s.child(spanReplay)
	}
	execution := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(of[:16]), SpanID: trace.SpanID(of[16:]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
	return s.child(spanReplay, trace.WithLinks(trace.Link{SpanContext: execution}))
}

// id names the span for links to it; it is zero if nobody will see the span.
func (s *span) id() (id dedup.TraceID) {
	if s == nil || !s.SpanContext().IsSampled() {
		return id
	}
	t, own := s.SpanContext().TraceID(), s.SpanContext().SpanID()
	copy(id[copy(id[:], t[:]):], own[:])
	return id
}

// inject makes the span the parent of what the upstream does. Baggage passes as it came.
func (s *span) inject(h http.Header) {
	if s == nil {
		return
	}
	h.Del("Traceparent")
	h.Del("Tracestate")
	propagation.TraceContext{}.Inject(s.ctx, propagation.HeaderCarrier(h))
}

// end ends a span. What an error says is for the log.
func (s *span) end(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}

// answered ends the span of the upstream's part.
func (s *span) answered(status int, failed bool) {
	if s == nil {
		return
	}
	if status != 0 {
		s.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if failed || status >= 500 {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}

// finish ends the span of a request with what was observed of it.
func (s *span) finish(o *observation) {
	if s == nil {
		return
	}
	s.SetAttributes(
		attribute.Int("http.response.status_code", o.status),
		attribute.String("idemproxy.outcome", o.outcome),
	)
	optional := func(key, value string) {
		if value != "" {
			s.SetAttributes(attribute.String(key, value))
		}
	}
	optional("idemproxy.code", string(o.reason))
	optional("idemproxy.key_hash", string(o.id))
	optional("idemproxy.unknown_cause", o.cause)
	if o.status >= 500 || o.cause != "" {
		s.SetStatus(codes.Error, string(o.reason))
	}
	s.End()
}

// ending is the span of telling the store how an execution ended.
func (o *observation) ending() *span {
	switch {
	case o.span == nil:
		return nil
	case o.cause != "":
		return o.span.child(spanUnknown)
	case o.outcome == outcomeExecuted:
		return o.span.child(spanComplete)
	default:
		return o.span.child(spanRelease)
	}
}
