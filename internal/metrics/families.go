package metrics

import "github.com/prometheus/client_golang/prometheus"

// families are the collectors that have labels, and the one histogram without.
type families struct {
	requests        *prometheus.CounterVec
	replays         *prometheus.CounterVec
	conflicts       *prometheus.CounterVec
	rejects         *prometheus.CounterVec
	unknownOutcomes *prometheus.CounterVec
	lostLeases      *prometheus.CounterVec
	callersGone     *prometheus.CounterVec
	would           *prometheus.CounterVec
	replayAuths     *prometheus.CounterVec
	jwksFetches     *prometheus.CounterVec
	storeFailures   *prometheus.CounterVec
	configReloads   *prometheus.CounterVec
	waits           *prometheus.CounterVec
	asks            *prometheus.CounterVec
	operators       *prometheus.CounterVec
	inFlight        *prometheus.GaugeVec
	waiting         *prometheus.GaugeVec
	storeDuration   *prometheus.HistogramVec
	upstream        *prometheus.HistogramVec
	overhead        *prometheus.HistogramVec
	records         prometheus.Histogram
}

func newFamilies() families {
	f := families{
		inFlight: gauge("in_flight", "Requests being served now.", "route"),
		waiting:  gauge("waiting", "Requests waiting for another with the same key now.", "route"),
		storeDuration: histogram("store_duration_seconds",
			"Time of store operations in seconds, failed ones included.",
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}, "op"),
		upstream: histogram("upstream_duration_seconds",
			"Time from sending a guarded request to the end of the upstream's response in seconds.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "route"),
		overhead: histogram("overhead_seconds",
			"Time guarded requests spent in the proxy outside the upstream, the store included, in seconds.",
			[]float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "route", "outcome"),
		records: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "idemproxy_records_bytes",
			Help:    "Size of the records handed to the store in bytes.",
			Buckets: prometheus.ExponentialBuckets(256, 4, 9), // 256 B to 16 MiB
		}),
	}
	f.addCounters()
	return f
}

func (f *families) addCounters() {
	f.requests = counter("requests_total",
		"Requests answered, by rule and by how each ended.", "route", "outcome")
	f.replays = counter("replays_total",
		"Requests answered with a recorded response, without reaching the upstream.", "route")
	f.conflicts = counter("conflicts_total",
		"Requests refused because of what was found under their key.", "route", "reason")
	f.rejects = counter("rejects_total",
		"Requests refused for any reason other than what was found under their key.", "route", "reason")
	f.unknownOutcomes = counter("unknown_outcomes_total",
		"Requests that may have been executed although no response of theirs was recorded. "+
			"An owner that died is seen here (cause lease) only when another takes its claim over, under on_unknown_outcome: release; "+
			"under hold it shows as conflicts_total{reason=outcome_unknown}.", "route", "cause")
	f.lostLeases = counter("lost_leases_total",
		"Executions whose claim was found gone or somebody else's before they were recorded.", "route")
	f.callersGone = counter("callers_gone_total",
		"Callers that hung up before the response to their guarded request was delivered.", "route")
	f.would = counter("would_total",
		"Requests of rules in mode observe, all of them passed through, by what enforce would have done with them.", "route", "outcome")
	f.replayAuths = counter("replay_auths_total",
		"Questions to replay_auth whether a caller may have a replay, by rule and result.", "route", "result")
	f.jwksFetches = counter("jwks_fetches_total",
		"Attempts to fetch the keys of callers' tokens; on a failure those at hand stay in use.", "result")
	f.storeFailures = counter("store_failures_total",
		"Store operations that failed.", "op")
	f.configReloads = counter("config_reloads_total",
		"Attempts to load the configuration again; when it is refused the old one stays in force.", "result")
	f.operators = counter("operator_actions_total",
		"Keys that operators released or purged, as the store's audit trail tells every replica.", "action")
	f.asks = counter("status_requests_total",
		"Questions of callers what is known of a key, by the answer.", "route", "state")
	f.waits = counter("waits_total",
		"Requests that had to wait for another with the same key, by how that ended.", "route", "result")
}

func (f families) all() []prometheus.Collector {
	return []prometheus.Collector{
		f.requests, f.replays, f.conflicts, f.rejects, f.unknownOutcomes, f.lostLeases, f.callersGone,
		f.would, f.replayAuths, f.jwksFetches, f.storeFailures, f.configReloads, f.waits, f.asks, f.operators, f.inFlight, f.waiting, f.storeDuration, f.upstream, f.overhead, f.records,
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "idemproxy_" + name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "idemproxy_" + name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "idemproxy_" + name,
		Help:    help,
		Buckets: buckets,
	}, labels)
}
