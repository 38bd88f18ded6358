package proxy

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"idemproxy/internal/dedup"
)

func TestTracingTarget(t *testing.T) {
	for endpoint, want := range map[string]collector{
		"http://c:4318":            {url: "http://c:4318/v1/traces"},
		"https://c":                {url: "https://c/v1/traces"},
		"https://c/otlp/":          {url: "https://c/otlp/v1/traces"},
		"https://c/x/v1/traces":    {url: "https://c/x/v1/traces"},
		"http://[::1]:4318":        {url: "http://[::1]:4318/v1/traces"},
		"c:4317":                   {grpc: true, url: "http://c:4317"},
		"c":                        {grpc: true, url: "http://c:4317"},
		"127.0.0.1:9":              {grpc: true, url: "http://127.0.0.1:9"},
		"grpc://c":                 {grpc: true, url: "http://c:4317"},
		"grpcs://c:443/":           {grpc: true, url: "https://c:443"},
		"grpc://[::1]":             {grpc: true, url: "http://[::1]:4317"},
		"https://collector.svc:80": {url: "https://collector.svc:80/v1/traces"},
	} {
		cfg := TracingConfig{OTLPEndpoint: endpoint, SampleRatio: 1}
		if got, err := cfg.target(); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", endpoint, got, err, want)
		}
		if faults := cfg.Validate(); len(faults) > 0 {
			t.Errorf("%s: %v", endpoint, faults)
		}
	}
	for endpoint, fragment := range map[string]string{
		"ftp://c":           "must begin with",
		"http://u:p@c":      "no user or password",
		"http://c/?k=v":     "neither query nor fragment",
		"http://":           "has no host",
		":4317":             "has no host",
		"grpc://c:4317/x":   "gRPC has no path",
		"http://c:port":     "not an endpoint",
		"http://c\x00:4317": "not an endpoint",
	} {
		wantFault(t, TracingConfig{OTLPEndpoint: endpoint, SampleRatio: 1}.Validate(), "otlp_endpoint", fragment)
	}
	for _, ratio := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		wantFault(t, TracingConfig{OTLPEndpoint: "c", SampleRatio: ratio}.Validate(), "sample_ratio", "from 0 to 1")
	}
	wantFault(t, TracingConfig{SampleRatio: 0.5}.Validate(), "sample_ratio", "no effect")
}

// Without tracing a request pays for nothing.
func TestNoTracingCostsNothing(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/pay", nil)
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	rt := &route{rule: &dedup.Rule{}}
	p := &Proxy{}
	allocated := testing.AllocsPerRun(100, func() {
		var o observation
		o.span = p.tracing.begin(r, rt)
		o.span.child(spanClaim).end(nil)
		o.sent()
		o.upstream.inject(r.Header)
		o.answered()
		o.ending().end(nil)
		o.span.toReplay(dedup.TraceID{1}).end(nil)
		if o.upstream.id() != (dedup.TraceID{}) {
			t.Error("a span that is not there has an id")
		}
		o.span.finish(&o)
	})
	if allocated > 0 {
		t.Errorf("%v allocations a request", allocated)
	}
	if got := r.Header.Get("Traceparent"); got != "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" {
		t.Errorf("traceparent became %q", got)
	}
}

func TestComplaintsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		c := &complaints{log: zap.New(core)}
		for range 130 {
			c.Handle(errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		if logs.Len() != 3 {
			t.Fatalf("%d lines in 130 s, want 3", logs.Len())
		}
		if n := logs.All()[2].ContextMap()["not_logged"]; n != int64(59) {
			t.Errorf("%v were not logged, want 59", n)
		}
	})
}
