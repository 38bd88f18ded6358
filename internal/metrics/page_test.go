package metrics_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"idemproxy/internal/metrics"
)

// entries are the metrics in the order of docs/metrics.md, each with when to look at it: all
// else the page tells is asked of the registry. A heading begins with #.
func entries() [][2]string {
	return [][2]string{
		{"# Requests"},
		{"requests_total", "First: how much goes on, and how it ends. A share of `failed` above what the service itself has is trouble between the proxy and it."},
		{"replays_total", "To see what the proxy is worth: each one is an execution that did not happen a second time. Many at once: callers retry, ask why."},
		{"conflicts_total", "When callers complain of 409 or 422. `in_progress`: impatient or doubled callers. `key_reuse`: a client that makes keys badly. `outcome_unknown`: somebody waits for a decision of yours."},
		{"rejects_total", "When callers complain of 4xx or 503. After a rule was turned on: `missing_key`, `missing_identity`. In trouble: `store_unavailable`, `overloaded`, `record_unreadable`, `identity_unavailable`."},
		{"would_total", "Before a rule goes from `observe` to `enforce`: what its callers would get."},
		{"in_flight", "Under load, and while a replica drains: at 0 it can go."},
		{"callers_gone_total", "When it grows, callers' timeouts are shorter than the service's answers."},
		{"# Outcomes that nobody knows"},
		{"unknown_outcomes_total", "**Always.** Each one is an operation that may have happened and has no answer; under `hold` it needs a person."},
		{"lost_leases_total", "**Always.** An owner was paused, or cut off from the store, for longer than its `lease`."},
		{"operator_actions_total", "When keys were released or purged, to see that it was you."},
		{"# Time"},
		{"overhead_seconds", "When requests are slow: what the proxy and its store add."},
		{"upstream_duration_seconds", "When requests are slow: the service's own part. Its slowest honest answer must stay below `upstream.response_timeout`."},
		{"# The store"},
		{"store_duration_seconds", "When `overhead_seconds` grows; near `store.timeout` operations begin to fail."},
		{"store_failures_total", "**Always.** `claim`: requests are refused, or pass unguarded under `on_store_failure: pass-through`. `complete`: answers that are not recorded yet. `renew`: leases in danger."},
		{"records_bytes", "When the store's memory or disk is planned, or fills up."},
		{"# Limits and waiting"},
		{"buffered_bytes", "Near `limits.max_buffered_bytes` (256 MiB unless set) requests get 503 `overloaded`."},
		{"waiting", "With `in_flight: wait`: how many callers hang on somebody else's request now."},
		{"waits_total", "`timed_out`: `wait_timeout` is shorter than the service takes. `no_room`: too many wait. `took_over`: keys that were freed while others waited."},
		{"status_requests_total", "With `server.status_path`: what callers who ask were told about their keys. Many `unknown` belong with `unknown_outcomes_total`."},
		{"# Who may, and which rules"},
		{"jwks_fetches_total", "When `invalid_token` or `identity_unavailable` grow: no `success` for long means old keys, and then none."},
		{"replay_auths_total", "When retries get refusals: `refused` is the service's word, `unavailable` is trouble."},
		{"config_reloads_total", "After a change of the file: `ok`, or the log tells every fault."},
		{"build_info", "During an upgrade: which replica runs what."},
	}
}

const pageHead = `# Metrics

On the admin port (` + "`admin.listen`, `:9090`" + `) at ` + "`/metrics`" + `, in Prometheus's text format or as OpenMetrics. This page is generated from what the
program registers (` + "`UPDATE_GOLDEN=1 go test ./internal/metrics -run Page`" + `); a test compares the two.

` + "`route`" + ` is the name of a rule; requests that no rule matches count under ` + "`route=\"\"`" + `. No label has a value that a caller chose: what is in
none of the lists below counts as ` + "`other`" + `. All series of a rule stand at 0 from the start, so that ` + "`rate()`" + ` and ` + "`increase()`" + ` see the first event.

Alerts on these are in [deploy/prometheus/rules.yaml](../deploy/prometheus/rules.yaml), a dashboard in
[deploy/grafana/idemproxy.json](../deploy/grafana/idemproxy.json), and what to do in [operations.md](operations.md).
`

const pageFoot = `
## Go and the process

` + "`go_*`" + ` (goroutines, memory, garbage collection) and ` + "`process_*`" + ` (CPU, resident memory, open files) as every Go program has them, and
` + "`promhttp_*`" + ` of the page itself. ` + "`process_open_fds`" + ` near ` + "`process_max_fds`" + ` and a steadily growing ` + "`go_goroutines`" + ` are worth an alert of your own.
`

// registered is every metric of this program, by its name without the prefix.
func registered(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	m := metrics.New("1.2.3")
	m.Route("payments").Observes()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(page(t, m, "")))
	if err != nil {
		t.Fatal(err)
	}
	ours := make(map[string]*dto.MetricFamily)
	for name, family := range parsed {
		if short, ok := strings.CutPrefix(name, "idemproxy_"); ok {
			ours[short] = family
		}
	}
	return ours
}

// labelValues are the labels of a metric, and the values that they have.
func labelValues(family *dto.MetricFamily) map[string]map[string]bool {
	values := make(map[string]map[string]bool)
	for _, metric := range family.GetMetric() {
		for _, l := range metric.GetLabel() {
			if values[l.GetName()] == nil {
				values[l.GetName()] = make(map[string]bool)
			}
			values[l.GetName()][l.GetValue()] = true
		}
	}
	return values
}

// labels are the names of a metric's labels, with their values where the program knows them.
func labels(family *dto.MetricFamily) string {
	values := labelValues(family)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name == "route" || name == "version" || name == "goversion" {
			names = append(names, "`"+name+"`")
			continue
		}
		names = append(names, "`"+name+"`: "+strings.Join(slices.Sorted(maps.Keys(values[name])), ", "))
	}
	return strings.Join(names, "; ")
}

// TestPageOfMetrics: docs/metrics.md tells of every metric that is registered, and of no other.
func TestPageOfMetrics(t *testing.T) {
	ours := registered(t)
	var b strings.Builder
	b.WriteString(pageHead)
	for _, e := range entries() {
		if heading, ok := strings.CutPrefix(e[0], "# "); ok {
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | what it counts | when to look |\n| --- | --- | --- | --- | --- |\n", heading)
			continue
		}
		family, ok := ours[e[0]]
		if !ok {
			t.Errorf("there is no metric %s", e[0])
			continue
		}
		delete(ours, e[0])
		fmt.Fprintf(&b, "| `idemproxy_%s` | %s | %s | %s | %s |\n",
			e[0], strings.ToLower(family.GetType().String()), labels(family), family.GetHelp(), e[1])
	}
	b.WriteString(pageFoot)
	for name := range ours {
		t.Errorf("%s is registered; entries, and so docs/metrics.md, don't tell of it", name)
	}
	golden(t, "../../docs/metrics.md", b.String())
}

// golden compares a file of the repository with what it should be. UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, file, want string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not up to date: run the tests of this package with UPDATE_GOLDEN=1, and read the difference", file)
	}
}
