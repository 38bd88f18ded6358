package proxy

import (
	"net/http"
	"time"

	"idemproxy/internal/dedup"
)

// The headers by which a caller sees how long an answer is kept, under expose_expiry. Both
// are HTTP dates (RFC 9110, 5.6.7), whose second is never later than the truth.
const (
	expiresHeader  = "Idempotency-Expires"
	originalHeader = "X-Idempotent-Original-Date"
)

// expires says until when an answer is kept.
func expires(h http.Header, at time.Time) { h.Set(expiresHeader, at.UTC().Format(http.TimeFormat)) }

// original says when a replayed answer was first given.
func original(h http.Header, at time.Time) { h.Set(originalHeader, at.UTC().Format(http.TimeFormat)) }

// dropOurs takes from an upstream's answer the headers that only the proxy may set.
func dropOurs(rule *dedup.Rule, h http.Header) {
	if rule.ReplayHeader != "" {
		h.Del(rule.ReplayHeader)
	}
	if rule.ExposeExpiry {
		h.Del(expiresHeader)
		h.Del(originalHeader)
	}
}
