package metrics_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"idemproxy/internal/metrics"
)

// counted returns the series of this program that are not zero, as name{labels}.
func counted(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	got := make(map[string]float64)
	for name, series := range scrape(t, m) {
		if !strings.HasPrefix(name, "idemproxy_") || name == "idemproxy_build_info" {
			continue
		}
		for labels, value := range series {
			if value != 0 {
				got[name+"{"+labels+"}"] = value
			}
		}
	}
	return got
}

// scrape reads the page as Prometheus does: name, labels, value (of a histogram: how
// many were observed).
func scrape(t *testing.T, m *metrics.Metrics) map[string]map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(page(t, m, "")))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]map[string]float64)
	for name, family := range parsed {
		got[name] = make(map[string]float64)
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			got[name][strings.Join(labels, ",")] = value(metric)
		}
	}
	return got
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	default:
		return m.GetUntyped().GetValue()
	}
}

func page(t *testing.T, m *metrics.Metrics, accept string) string {
	t.Helper()
	request := httptest.NewRequest("GET", "/metrics", nil)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, request)
	if recorder.Code != 200 {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	return recorder.Body.String()
}
