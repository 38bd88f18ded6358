// Package metrics counts what idemproxy does. It owns every collector, in a registry
// of its own, and offers one method for each event, so that whoever reports an event
// knows no metric names, labels or units.
//
// Label values come from closed lists in this package and from the configuration (the
// names of the rules): nothing that a caller, an upstream or a store sent becomes a
// label, and the number of series is known once the configuration is. A value outside
// its list is counted as "other".
//
// It does not decide, log or trace, knows neither HTTP requests nor stores, and uses
// neither globals nor Prometheus's default registry.
package metrics
