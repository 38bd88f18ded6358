package metrics

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics holds every collector of one process. All methods may be called concurrently
// and cost some tens of nanoseconds.
type Metrics struct {
	registry *prometheus.Registry
	families families

	operations map[string]operation
	actions    map[string]prometheus.Counter
	reloads    map[string]prometheus.Counter
	buffered   atomic.Int64

	mu     sync.Mutex
	routes map[string]*Route
}

// operation has the children of one store operation.
type operation struct {
	took     prometheus.Observer
	failures prometheus.Counter
}

// New returns the metrics of a program of this version, all of them at zero.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		families: newFamilies(),
		routes:   make(map[string]*Route),
	}
	m.operations = resolve(operations(), m.operation)
	m.actions = resolve(actions(), m.action)
	m.reloads = resolve(reloads(), m.reload)
	for _, result := range []string{"success", "failure"} {
		m.families.jwksFetches.WithLabelValues(result)
	}
	buffered := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idemproxy_buffered_bytes",
		Help: "Bytes of request and response bodies held in memory by guarded requests now.",
	}, func() float64 { return float64(m.buffered.Load()) })
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "idemproxy_build_info",
		Help:        "Always 1; its labels tell the version of idemproxy and of the Go it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buffered,
		build,
	)
	m.registry.MustRegister(m.families.all()...)
	return m
}

// Handler serves the metrics in Prometheus's text format, or as OpenMetrics to whoever
// asks for it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		Registry:          m.registry,
	})
}

// Route returns the metrics of the rule of this name, always the same for one name. The
// name must come from the configuration, never from a request: each name makes its
// series for as long as the process lives. Ask once, when the routes are built: it takes
// a lock.
func (m *Metrics) Route(name string) *Route {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.routes[name]
	if !ok {
		r = newRoute(name, m.families)
		m.routes[name] = r
	}
	return r
}

// StoreOperation counts one operation of the store (OpClaim and so on), the time it took, and whether it failed.
func (m *Metrics) StoreOperation(op string, took time.Duration, failed bool) {
	o := pick(m.operations, op, m.operation)
	o.took.Observe(took.Seconds())
	if failed {
		o.failures.Inc()
	}
}

func (m *Metrics) operation(op string) operation {
	return operation{
		took:     m.families.storeDuration.WithLabelValues(op),
		failures: m.families.storeFailures.WithLabelValues(op),
	}
}

// Buffered adds to the bytes of bodies that are held in memory: delta is negative when
// they are let go.
func (m *Metrics) Buffered(delta int64) { m.buffered.Add(delta) }

// RecordSize observes the size in bytes of a record that was handed to the store.
func (m *Metrics) RecordSize(bytes int) { m.families.records.Observe(float64(bytes)) }

// ConfigReload counts an attempt to load the configuration again, by its result
// (ReloadOK, ReloadRefused, ReloadUnchanged).
func (m *Metrics) ConfigReload(result string) {
	pick(m.reloads, result, m.reload).Inc()
}

func (m *Metrics) reload(result string) prometheus.Counter {
	return m.families.configReloads.WithLabelValues(result)
}

// JWKSFetch counts an attempt to fetch the keys of callers' tokens.
func (m *Metrics) JWKSFetch(ok bool) {
	result := "failure"
	if ok {
		result = "success"
	}
	m.families.jwksFetches.WithLabelValues(result).Inc()
}

// OperatorAction counts keys that an operator released or purged, on whichever replica or
// command line that was.
func (m *Metrics) OperatorAction(action string, keys int) {
	pick(m.actions, action, m.action).Add(float64(max(keys, 0)))
}

func (m *Metrics) action(action string) prometheus.Counter {
	return m.families.operators.WithLabelValues(action)
}
