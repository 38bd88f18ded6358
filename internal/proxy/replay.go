package proxy

import (
	"maps"
	"net/http"
	"slices"

	"idemproxy/internal/dedup"
)

// replay answers from a record: the same status, headers, body and trailers, and the
// rule's replay header.
func replay(w http.ResponseWriter, rule *dedup.Rule, record *dedup.Record) {
	h := w.Header()
	inventNothing(w)
	maps.Copy(h, record.Header)
	if rule.ReplayHeader != "" {
		h.Set(rule.ReplayHeader, "true")
	}
	names := slices.Sorted(maps.Keys(record.Trailer))
	for _, name := range names {
		h.Add("Trailer", name)
	}
	w.WriteHeader(record.Status)
	w.Write(record.Body) // a caller that is gone can ask again
	for _, name := range names {
		h[name] = record.Trailer[name]
	}
}
