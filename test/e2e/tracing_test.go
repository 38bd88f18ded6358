package e2e

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// These tests are about spans, as a collector receives them.

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled      = "traceparent: 00-" + callersTrace + "-00f067aa0ba902b7-01"
	unsampled    = "traceparent: 00-" + callersTrace + "-00f067aa0ba902b7-00"
)

// eachCollector runs a test with both kinds of collector, on every store.
func eachCollector(t *testing.T, test func(t *testing.T, s storage, c *collector)) {
	for name, collect := range map[string]func(*testing.T) *collector{"http": collectHTTP, "grpc": collectGRPC} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s storage) { test(t, s, collect(t)) })
		})
	}
}

// has checks the names of the spans below one, and returns these.
func has(t *testing.T, all spans, parent *tracepb.Span, want ...string) map[string]*tracepb.Span {
	t.Helper()
	children := all.below(parent)
	if got := slices.Sorted(maps.Keys(children)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("below %s are the spans %q, want %q", parent.GetName(), got, want)
	}
	return children
}

// carries checks attributes of a span.
func carries(t *testing.T, span *tracepb.Span, want map[string]string) {
	t.Helper()
	got := attributes(span.GetAttributes())
	for key, value := range want {
		if got[key] != value && (value != "*" || got[key] == "") {
			t.Errorf("%s of span %s is %q, want %q", key, span.GetName(), got[key], value)
		}
	}
	for key := range got {
		if _, expected := want[key]; !expected {
			t.Errorf("span %s has %s = %q", span.GetName(), key, got[key])
		}
	}
}

func TestSpans(t *testing.T) {
	eachCollector(t, func(t *testing.T, s storage, c *collector) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, tracing: "otlp_endpoint: \"" + c.endpoint + "\"", routes: `
  - {name: payments, path: "/accounts/{id}/payments"}
  - {name: optional, path: /optional, missing_header: pass-through}`})
		headers := []string{sampled, "Tracestate: a=1,b=2", "tracestate: c=3", "baggage: marker-of-the-baggage=1", "baggage: more=2", "Authorization: Bearer marker-of-a-credential"}
		req := request{key: newKey(), target: "/accounts/marker-of-the-path/payments?q=marker-of-the-query", body: "marker-of-the-body", header: headers}
		first := p.send(t, req).fresh(t, 201)
		sent := up.last(t).header
		req.header = headers[5:]
		p.send(t, req).replays(t, first)
		req.body = "another-marker-of-the-body"
		p.send(t, req).refused(t, 422, "key_reuse")
		p.send(t, request{target: "/accounts/1/payments"}).refused(t, 400, "missing_key")
		p.send(t, request{target: "/optional"}).fresh(t, 201)
		passed := up.last(t).header
		p.send(t, request{target: "/unmatched"}).fresh(t, 201)
		if got := up.last(t).header.Get("Traceparent"); got != "" {
			t.Errorf("a request that no rule matches has the traceparent %q", got)
		}
		up.answers(dropped())
		p.send(t, request{target: "/accounts/1/payments", key: newKey()}).refused(t, 502, "upstream_failed")
		up.answers(text(429, ""))
		p.send(t, request{target: "/accounts/1/payments", key: newKey()}).fresh(t, 429)
		p.stop()

		all := c.spans()
		requests := all.requests()
		if len(requests) != 7 {
			t.Fatalf("%d requests are traced, want 7: %s", len(requests), c.text())
		}
		executed, replayed, reused, missing, through, failed, released := requests[0], requests[1], requests[2], requests[3], requests[4], requests[5], requests[6]
		common := func(outcome, status string, more map[string]string) map[string]string {
			want := map[string]string{
				"http.request.method": "POST", "http.route": "/accounts/{id}/payments", "idemproxy.route": "payments",
				"http.response.status_code": status, "idemproxy.outcome": outcome, "idemproxy.key_hash": "*",
			}
			maps.Copy(want, more)
			return want
		}
		if got := traceparent(executed); !strings.HasPrefix(got, "00-"+callersTrace) || string(executed.GetParentSpanId()) != "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7" || executed.GetName() != "POST /accounts/{id}/payments" {
			t.Errorf("the caller's trace is not continued: %v", executed)
		}
		carries(t, executed, common("executed", "201", nil))
		parts := has(t, all, executed, "claim", "upstream", "complete")
		carries(t, parts["upstream"], map[string]string{"http.response.status_code": "201"})
		if got := sent["Traceparent"]; !slices.Equal(got, []string{traceparent(parts["upstream"])}) {
			t.Errorf("the service got traceparent %q, want %q", got, traceparent(parts["upstream"]))
		}
		if got := sent["Tracestate"]; !slices.Equal(got, []string{"a=1,b=2,c=3"}) {
			t.Errorf("the service got tracestate %q", got)
		}
		if got := sent["Baggage"]; !slices.Equal(got, []string{"marker-of-the-baggage=1", "more=2"}) {
			t.Errorf("the service got baggage %q", got)
		}

		carries(t, replayed, common("replayed", "201", nil))
		links := has(t, all, replayed, "claim", "replay")["replay"].GetLinks()
		if len(links) != 1 || !bytes.Equal(links[0].GetTraceId(), executed.GetTraceId()) || !bytes.Equal(links[0].GetSpanId(), parts["upstream"].GetSpanId()) {
			t.Errorf("a replay links to %v, want the span %s", links, traceparent(parts["upstream"]))
		}
		if len(replayed.GetParentSpanId()) != 0 || bytes.Equal(replayed.GetTraceId(), executed.GetTraceId()) {
			t.Error("a request without a traceparent begins no trace of its own")
		}

		carries(t, reused, common("rejected", "422", map[string]string{"idemproxy.code": "key_reuse"}))
		has(t, all, reused, "claim")
		want := common("rejected", "400", map[string]string{"idemproxy.code": "missing_key"})
		delete(want, "idemproxy.key_hash")
		carries(t, missing, want)
		has(t, all, missing)
		want = common("passed_through", "201", map[string]string{"http.route": "/optional", "idemproxy.route": "optional"})
		delete(want, "idemproxy.key_hash")
		carries(t, through, want)
		if part := has(t, all, through, "upstream")["upstream"]; passed.Get("Traceparent") != traceparent(part) {
			t.Errorf("the service got traceparent %q, want %q", passed.Get("Traceparent"), traceparent(part))
		}
		carries(t, failed, common("failed", "502", map[string]string{"idemproxy.code": "upstream_failed", "idemproxy.unknown_cause": "connection"}))
		if part := has(t, all, failed, "claim", "upstream", "unknown")["upstream"]; part.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || failed.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
			t.Error("a failure is no error in the trace")
		}
		carries(t, released, common("released", "429", nil))
		has(t, all, released, "claim", "upstream", "release")

		exported := c.text()
		for _, secret := range append(slices.Clone(p.secrets), "marker-of") {
			if strings.Contains(exported, secret) {
				t.Errorf("the spans have %q, which a caller sent", secret)
			}
		}
		resource := attributes(c.received[0].GetResource().GetAttributes())
		if resource["service.name"] != "idemproxy" || resource["service.version"] == "" {
			t.Errorf("the spans are those of %v", resource)
		}
	})
}

// A caller that decided against a trace decided for all who follow.
func TestSpansAreSampled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ratio, header string
		exported      bool
		flags         string
	}{
		"the caller says no":              {"1", unsampled, false, "-00"},
		"the caller says yes":             {"0", sampled, true, "-01"},
		"nobody says anything, no":        {"0", "", false, "-00"},
		"nobody says anything, yes":       {"1", "", true, "-01"},
		"what can't be read says nothing": {"0", "traceparent: 00-" + strings.ToUpper(callersTrace) + "-00f067aa0ba902b7-01", false, "-00"},
		"two say nothing":                 {"0", sampled + "\r\n" + sampled, false, "-00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collectHTTP(t)
			up := newUpstream(t, created)
			p := start(t, setup{store: memory(), upstream: up.url, tracing: "otlp_endpoint: \"" + c.endpoint + "\", sample_ratio: " + tc.ratio, routes: payments})
			req := request{key: newKey(), body: "x"}
			if tc.header != "" {
				req.header = []string{tc.header}
			}
			p.twice(t, req, 201)
			if got := up.last(t).header["Traceparent"]; len(got) != 1 || !strings.HasSuffix(got[0], tc.flags) ||
				strings.Contains(got[0], callersTrace) != (tc.header == sampled || tc.header == unsampled) {
				t.Errorf("the service got traceparent %q", got)
			}
			p.stop()
			if got := c.spans(); (len(got) > 0) != tc.exported {
				t.Errorf("%d spans, want some: %v", len(got), tc.exported)
			}
		})
	}
}

// Without tracing nothing is added, taken, or understood.
func TestNoTracing(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		c := collectHTTP(t)
		up := newUpstream(t, created)
		p := &proxy{t: t, addr: local(freePort()), admin: local(freePort())}
		p.file = t.TempDir() + "/idemproxy.yaml"
		write(t, p.file, setup{store: s, upstream: up.url, routes: payments}.yaml(p.addr, p.admin))
		p.environment = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.endpoint} // is no wish of ours
		t.Cleanup(p.finish)
		p.run("serve", "--config", p.file)
		p.waitReady()
		for _, headers := range [][]string{
			nil,
			{sampled, "Tracestate: a=1 , b=2", "Tracestate: ", "Baggage: x = y ;z"},
			{"traceparent: 00-XYZ", "traceparent: ", "tracestate: =", "baggage: ,,"},
		} {
			req := request{key: newKey(), body: "x", header: headers}
			p.twice(t, req, 201)
			got := up.last(t).header
			for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
				var want []string
				for _, line := range headers {
					if n, value, _ := strings.Cut(line, ":"); strings.EqualFold(n, name) {
						want = append(want, strings.TrimSpace(value))
					}
				}
				if !slices.Equal(got[name], want) {
					t.Errorf("the service got %s %q, want %q", name, got[name], want)
				}
			}
		}
		p.stop()
		if got := c.spans(); len(got) != 0 {
			t.Errorf("%d spans", len(got))
		}
	})
}

// A collector that is away, or takes and never answers, holds up nobody.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{
		"http": "http://" + local(freePort()), "grpc": local(freePort()),
		"http that hangs": "http://" + silent(t), "grpc that hangs": "grpc://" + silent(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t, created)
			p := &proxy{t: t, addr: local(freePort()), admin: local(freePort())}
			p.file = t.TempDir() + "/idemproxy.yaml"
			write(t, p.file, setup{store: memory(), upstream: up.url, tracing: "otlp_endpoint: \"" + endpoint + "\"", routes: payments}.yaml(p.addr, p.admin))
			p.environment = []string{"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_BSP_EXPORT_TIMEOUT=100"}
			t.Cleanup(p.finish)
			p.run("serve", "--config", p.file)
			p.waitReady()
			for i := range 20 {
				p.twice(t, request{key: newKey(), body: "x"}, 201)
				if i == 10 {
					p.logged(t, "spans could not be exported")
				}
			}
			begun := time.Now()
			p.stop()
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("it stopped after %v", took)
			}
			if n := strings.Count(p.log.String(), "spans could not be exported"); n != 1 {
				t.Errorf("%d complaints, want 1", n)
			}
		})
	}
}
