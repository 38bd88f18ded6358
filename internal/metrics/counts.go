package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts are the counters of one rule as they stand, by the words of their labels.
type Counts struct {
	InFlight        int64            `json:"in_flight"`
	Waiting         int64            `json:"waiting"`
	Requests        map[string]int64 `json:"requests"`
	Conflicts       map[string]int64 `json:"conflicts"`
	Rejects         map[string]int64 `json:"rejects"`
	UnknownOutcomes map[string]int64 `json:"unknown_outcomes"`
}

// Counts returns the counters of every rule by its name, for people who look; those of
// requests that no rule matches are under "". It takes a millisecond or so.
func (m *Metrics) Counts() (map[string]Counts, error) {
	f := m.families
	some := prometheus.NewRegistry()
	some.MustRegister(f.requests, f.conflicts, f.rejects, f.unknownOutcomes, f.inFlight, f.waiting)
	families, err := some.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather counters: %w", err)
	}
	all := map[string]Counts{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			route, word := "", ""
			for _, label := range metric.GetLabel() {
				if label.GetName() == "route" {
					route = label.GetValue()
				} else {
					word = label.GetValue()
				}
			}
			value := int64(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
			all[route] = all[route].with(family.GetName(), word, value)
		}
	}
	return all, nil
}

func (c Counts) with(family, word string, value int64) Counts {
	if c.Requests == nil {
		c.Requests, c.Conflicts, c.Rejects, c.UnknownOutcomes = map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	}
	switch family {
	case "idemproxy_in_flight":
		c.InFlight = value
	case "idemproxy_waiting":
		c.Waiting = value
	case "idemproxy_requests_total":
		c.Requests[word] = value
	case "idemproxy_conflicts_total":
		c.Conflicts[word] = value
	case "idemproxy_rejects_total":
		c.Rejects[word] = value
	case "idemproxy_unknown_outcomes_total":
		c.UnknownOutcomes[word] = value
	}
	return c
}
