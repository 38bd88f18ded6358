package proxy

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"idemproxy/internal/dedup"
)

// replay answers from a record: the same status, headers, body and trailers, and the
// rule's replay header. The record lives for another ttl. It reports whether the body was
// written.
func replay(w http.ResponseWriter, rule *dedup.Rule, record *dedup.Record, ttl time.Duration) bool {
	h := w.Header()
	inventNothing(w)
	maps.Copy(h, record.Header)
	if rule.ReplayHeader != "" {
		h.Set(rule.ReplayHeader, "true")
	}
	if rule.ExposeExpiry {
		expires(h, time.Now().Add(ttl))
		original(h, record.Completed)
	}
	names := slices.Sorted(maps.Keys(record.Trailer))
	for _, name := range names {
		h.Add("Trailer", name)
	}
	w.WriteHeader(record.Status)
	_, err := w.Write(record.Body) // a caller that is gone can ask again
	for _, name := range names {
		h[name] = record.Trailer[name]
	}
	return err == nil
}
