package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// A collector receives spans, as OTLP over HTTP or gRPC.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	endpoint string

	mu       sync.Mutex
	received []*tracepb.ResourceSpans
}

// collectHTTP starts a collector for OTLP over HTTP, with protobuf.
func collectHTTP(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{endpoint: "http://" + l.Addr().String()}
	server := &http.Server{Handler: c, ReadHeaderTimeout: patience}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collectorpb.ExportTraceServiceRequest
	if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), &req)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// collectGRPC starts a collector for OTLP over gRPC, without TLS.
func collectGRPC(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{endpoint: l.Addr().String()}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return c
}

func (c *collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, req.GetResourceSpans()...)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// spans are all that were received.
func (c *collector) spans() (all spans) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range c.received {
		for _, scope := range resource.GetScopeSpans() {
			all = append(all, scope.GetSpans()...)
		}
	}
	return all
}

// text is all that was received, with every byte of it.
func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, r := range c.received {
		b.WriteString(prototext.Format(r))
	}
	return b.String()
}

type spans []*tracepb.Span

// requests are the spans of requests, in their order.
func (s spans) requests() (requests spans) {
	for _, span := range s {
		if span.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
			requests = append(requests, span)
		}
	}
	return requests
}

// below are the names of the spans within one.
func (s spans) below(parent *tracepb.Span) map[string]*tracepb.Span {
	children := map[string]*tracepb.Span{}
	for _, span := range s {
		if bytes.Equal(span.GetParentSpanId(), parent.GetSpanId()) && bytes.Equal(span.GetTraceId(), parent.GetTraceId()) {
			children[span.GetName()] = span
		}
	}
	return children
}

// attributes are those of a span, or of a resource, as text.
func attributes(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = itoa(int(v.IntValue))
		default:
			all[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
	}
	return all
}

// traceparent names a span as a header does.
func traceparent(span *tracepb.Span) string {
	return "00-" + hex.EncodeToString(span.GetTraceId()) + "-" + hex.EncodeToString(span.GetSpanId()) + "-01"
}
