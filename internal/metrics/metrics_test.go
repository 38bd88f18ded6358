package metrics_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"idemproxy/internal/metrics"
)

// want is the whole contract §8: each name with its labels and their values at start.
func want() map[string][]string {
	conflicts, rejects := metrics.Reasons()
	return map[string][]string{
		"idemproxy_requests_total":            routes("outcome", "executed", "replayed", "passed_through", "rejected", "released", "failed"),
		"idemproxy_replays_total":             {"route=payments"},
		"idemproxy_conflicts_total":           routes("reason", conflicts...),
		"idemproxy_rejects_total":             routes("reason", rejects...),
		"idemproxy_unknown_outcomes_total":    routes("cause", "timeout", "connection", "body", "store", "lease"),
		"idemproxy_lost_leases_total":         {"route=payments"},
		"idemproxy_callers_gone_total":        {"route=payments"},
		"idemproxy_replay_auths_total":        routes("result", "allowed", "refused", "unavailable"),
		"idemproxy_jwks_fetches_total":        {"result=success", "result=failure"},
		"idemproxy_store_failures_total":      ops(),
		"idemproxy_store_duration_seconds":    ops(),
		"idemproxy_upstream_duration_seconds": {"route=payments"},
		"idemproxy_overhead_seconds":          routes("outcome", "executed", "replayed", "rejected", "released", "failed"),
		"idemproxy_in_flight":                 {"route=payments"},
		"idemproxy_waiting":                   {"route=payments"},
		"idemproxy_waits_total":               routes("result", "replayed", "took_over", "refused", "timed_out", "left", "drained", "no_room"),
		"idemproxy_status_requests_total":     {"route=payments,state=free", "route=payments,state=in-progress", "route=payments,state=unknown", "route=payments,state=completed", "route=payments,state=refused"},
		"idemproxy_buffered_bytes":            {""},
		"idemproxy_records_bytes":             {""},
		"idemproxy_operator_actions_total":    {"action=release", "action=purge"},
		"idemproxy_config_reloads_total":      {"result=ok", "result=refused", "result=unchanged"},
	}
}

func ops() []string {
	return []string{
		"op=claim", "op=renew", "op=complete", "op=release", "op=enroll", "op=dismiss", "op=ping",
		"op=look", "op=list", "op=free", "op=tell", "op=told",
	}
}

func routes(label string, values ...string) []string {
	var series []string
	for _, v := range values {
		series = append(series, label+"="+v+",route=payments")
	}
	return series
}

func TestNamesAndLabelsStandAtZeroFromTheStart(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Route("payments")
	got := scrape(t, m)
	for name, series := range want() {
		if g, w := slices.Sorted(maps.Keys(got[name])), slices.Sorted(slices.Values(series)); !slices.Equal(g, w) {
			t.Errorf("%s:\n got %q\nwant %q", name, g, w)
		}
		for labels, value := range got[name] {
			if value != 0 {
				t.Errorf("%s{%s} = %v at start", name, labels, value)
			}
		}
	}
	for name := range got {
		_, known := want()[name]
		foreign := strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_")
		if !known && !foreign && name != "idemproxy_build_info" {
			t.Errorf("%s is not in the contract", name)
		}
	}
	for labels, value := range got["idemproxy_build_info"] {
		if !strings.HasPrefix(labels, "goversion=go") || !strings.HasSuffix(labels, ",version=1.2.3") || value != 1 {
			t.Errorf("build_info{%s} = %v", labels, value)
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "idemproxy_build_info"} {
		if len(got[name]) != 1 {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestEvents(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		event func(*metrics.Metrics, *metrics.Route)
		want  map[string]float64 // of a histogram: how many were observed
	}{
		"executed": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.Executed(ms, ms) },
			map[string]float64{
				"idemproxy_requests_total{outcome=executed,route=payments}":   1,
				"idemproxy_overhead_seconds{outcome=executed,route=payments}": 1,
				"idemproxy_upstream_duration_seconds{route=payments}":         1,
			},
		},
		"replayed": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.Replayed(ms) },
			map[string]float64{
				"idemproxy_requests_total{outcome=replayed,route=payments}":   1,
				"idemproxy_overhead_seconds{outcome=replayed,route=payments}": 1,
				"idemproxy_replays_total{route=payments}":                     1,
			},
		},
		"passed through": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.PassedThrough() },
			map[string]float64{"idemproxy_requests_total{outcome=passed_through,route=payments}": 1},
		},
		"released": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.Released(ms, ms) },
			map[string]float64{
				"idemproxy_requests_total{outcome=released,route=payments}":   1,
				"idemproxy_overhead_seconds{outcome=released,route=payments}": 1,
				"idemproxy_upstream_duration_seconds{route=payments}":         1,
			},
		},
		"failed, outcome unknown": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.Failed(ms); r.UnknownOutcome(metrics.CauseTimeout) },
			map[string]float64{
				"idemproxy_requests_total{outcome=failed,route=payments}":        1,
				"idemproxy_overhead_seconds{outcome=failed,route=payments}":      1,
				"idemproxy_unknown_outcomes_total{cause=timeout,route=payments}": 1,
			},
		},
		"observed": {
			func(_ *metrics.Metrics, r *metrics.Route) {
				r.Observes()
				r.Would("replayed")
				r.Would("upstream_failed")
				r.Would("key_reuse")
				r.Would("key-4711")
			},
			map[string]float64{
				"idemproxy_would_total{outcome=replayed,route=payments}":        1,
				"idemproxy_would_total{outcome=upstream_failed,route=payments}": 1,
				"idemproxy_would_total{outcome=key_reuse,route=payments}":       1,
				"idemproxy_would_total{outcome=other,route=payments}":           1,
			},
		},
		"lease lost, caller gone": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.LostLease(); r.CallerGone() },
			map[string]float64{
				"idemproxy_lost_leases_total{route=payments}":  1,
				"idemproxy_callers_gone_total{route=payments}": 1,
			},
		},
		"replay auth, keys of tokens": {
			func(m *metrics.Metrics, r *metrics.Route) {
				r.ReplayAuth(metrics.ReplayRefused)
				m.JWKSFetch(true)
				m.JWKSFetch(false)
			},
			map[string]float64{
				"idemproxy_replay_auths_total{result=refused,route=payments}": 1,
				"idemproxy_jwks_fetches_total{result=success}":                1,
				"idemproxy_jwks_fetches_total{result=failure}":                1,
			},
		},
		"in flight": {
			func(_ *metrics.Metrics, r *metrics.Route) { r.Began(); r.Began(); r.Ended() },
			map[string]float64{"idemproxy_in_flight{route=payments}": 1},
		},
		"waiting": {
			func(_ *metrics.Metrics, r *metrics.Route) {
				r.WaitBegan()
				r.WaitBegan()
				r.WaitEnded()
				r.Waited(metrics.WaitReplayed)
			},
			map[string]float64{
				"idemproxy_waiting{route=payments}":                     1,
				"idemproxy_waits_total{result=replayed,route=payments}": 1,
			},
		},
		"status": {
			func(_ *metrics.Metrics, r *metrics.Route) {
				r.Asked("free")
				r.Asked(metrics.StateRefused)
			},
			map[string]float64{
				"idemproxy_status_requests_total{route=payments,state=free}":    1,
				"idemproxy_status_requests_total{route=payments,state=refused}": 1,
			},
		},
		"store": {
			func(m *metrics.Metrics, _ *metrics.Route) {
				m.StoreOperation(metrics.OpClaim, ms, false)
				m.StoreOperation(metrics.OpClaim, ms, true)
			},
			map[string]float64{
				"idemproxy_store_duration_seconds{op=claim}": 2,
				"idemproxy_store_failures_total{op=claim}":   1,
			},
		},
		"bytes": {
			func(m *metrics.Metrics, _ *metrics.Route) { m.Buffered(10); m.Buffered(-3); m.RecordSize(300) },
			map[string]float64{"idemproxy_buffered_bytes{}": 7, "idemproxy_records_bytes{}": 1},
		},
		"reloads": {
			func(m *metrics.Metrics, _ *metrics.Route) {
				m.ConfigReload(metrics.ReloadOK)
				m.ConfigReload(metrics.ReloadRefused)
				m.ConfigReload(metrics.ReloadRefused)
			},
			map[string]float64{
				"idemproxy_config_reloads_total{result=ok}":      1,
				"idemproxy_config_reloads_total{result=refused}": 2,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New("test")
			test.event(m, m.Route("payments"))
			if got := counted(t, m); !maps.Equal(got, test.want) {
				t.Errorf("got %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestRejectedCountsByCode(t *testing.T) {
	conflicts, rejects := metrics.Reasons()
	check := func(code, series string) {
		t.Helper()
		m := metrics.New("test")
		m.Route("payments").Rejected(code, time.Millisecond)
		want := map[string]float64{
			"idemproxy_requests_total{outcome=rejected,route=payments}":   1,
			"idemproxy_overhead_seconds{outcome=rejected,route=payments}": 1,
			series: 1,
		}
		if got := counted(t, m); !maps.Equal(got, want) {
			t.Errorf("%s: got %v\nwant %v", code, got, want)
		}
	}
	for _, code := range conflicts {
		check(code, "idemproxy_conflicts_total{reason="+code+",route=payments}")
	}
	for _, code := range rejects {
		check(code, "idemproxy_rejects_total{reason="+code+",route=payments}")
	}
}

// Whatever is passed by mistake, the number of series stays known.
func TestForeignLabelValuesAreCountedAsOther(t *testing.T) {
	m := metrics.New("test")
	r := m.Route("payments")
	for _, foreign := range []string{"key-4711", "", "a\xff\n\"}", strings.Repeat("x", 10000)} {
		r.Rejected(foreign, time.Millisecond)
		r.UnknownOutcome(foreign)
		m.StoreOperation(foreign, time.Millisecond, true)
	}
	got := counted(t, m)
	want := map[string]float64{
		"idemproxy_requests_total{outcome=rejected,route=payments}":    4,
		"idemproxy_overhead_seconds{outcome=rejected,route=payments}":  4,
		"idemproxy_rejects_total{reason=other,route=payments}":         4,
		"idemproxy_unknown_outcomes_total{cause=other,route=payments}": 4,
		"idemproxy_store_duration_seconds{op=other}":                   4,
		"idemproxy_store_failures_total{op=other}":                     4,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestRouteIsOneForAName(t *testing.T) {
	m := metrics.New("test")
	var same sync.Map
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			r := m.Route("payments")
			r.PassedThrough()
			same.Store(r, true)
		})
	}
	group.Wait()
	n := 0
	same.Range(func(_, _ any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d routes for one name", n)
	}
	if m.Route("orders") == m.Route("payments") {
		t.Error("one route for two names")
	}
	if got := scrape(t, m)["idemproxy_requests_total"]["outcome=passed_through,route=payments"]; got != 16 {
		t.Errorf("passed through: %v, want 16", got)
	}
}

func TestTwoProgramsInOneProcessShareNothing(t *testing.T) {
	a, b := metrics.New("a"), metrics.New("b")
	a.Route("payments").PassedThrough()
	b.Route("payments")
	if got := counted(t, b); len(got) != 0 {
		t.Errorf("the other's events were counted: %v", got)
	}
}

func TestLint(t *testing.T) {
	m := metrics.New("test")
	m.Route("payments")
	problems, err := promlint.New(strings.NewReader(page(t, m, ""))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "idemproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestHandlerSpeaksOpenMetrics(t *testing.T) {
	m := metrics.New("test")
	if text := page(t, m, "application/openmetrics-text;version=1.0.0"); !strings.HasSuffix(text, "# EOF\n") {
		t.Error("not OpenMetrics")
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	m := metrics.New("test")
	r := m.Route("payments")
	allocs := testing.AllocsPerRun(100, func() {
		r.Began()
		m.StoreOperation(metrics.OpClaim, time.Millisecond, false)
		m.Buffered(1)
		m.RecordSize(300)
		r.Executed(time.Millisecond, time.Millisecond)
		r.Rejected("in_progress", time.Millisecond)
		r.Ended()
	})
	if allocs != 0 {
		t.Errorf("%v allocations a request", allocs)
	}
}
