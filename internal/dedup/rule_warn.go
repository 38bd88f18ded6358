package dedup

import (
	"fmt"
	"slices"
	"time"
)

// Warnings returns what is allowed and yet probably not meant; paths stand relative to the
// rule.
func (r *Rule) Warnings() []Fault {
	var c checks
	if r.Mode != ModeEnforce {
		return nil
	}
	c.that(r.named() || len(r.ReplayScopeHeaders) > 0, "replay_scope_headers",
		"is empty, and nothing says who is calling: whoever sends the same key and request gets the answer; set identity_header, or name the header with the caller's credentials here")
	c.that(r.TTL >= time.Hour, "ttl", fmt.Sprintf("is %v: a client that retries after that executes the operation again; set it well above the longest time that clients go on, such as 24h", r.TTL))
	return c.faults
}

// named reports whether the rule tells callers apart.
func (r *Rule) named() bool {
	return len(r.IdentityHeaders()) > 0 || r.Identity.JWT.Claim != "" || r.TenantHeader != ""
}

// WithoutEffect returns the settings that differ from their default and change nothing,
// for another one isn't as they need it; paths stand relative to the rule.
func (r *Rule) WithoutEffect() []Fault {
	var c checks
	byDefault := DefaultRule()
	c.that(r.WaitTimeout == byDefault.WaitTimeout || r.InFlight == InFlightWait, "wait_timeout", "has no effect unless in_flight is wait")
	c.that(r.ReplayAuth.Timeout == byDefault.ReplayAuth.Timeout || r.ReplayAuth.URL != "", "replay_auth.timeout", "has no effect without replay_auth.url")
	c.that(r.Identity.OnMissing == byDefault.Identity.OnMissing || len(r.IdentityHeaders()) > 0 || r.Identity.JWT.Claim != "", "identity.on_missing", "has no effect without an identity: set identity.headers or identity.jwt")
	c.that(r.Identity.JWT.OnInvalid == byDefault.Identity.JWT.OnInvalid || r.Identity.JWT.Claim != "", "identity.jwt.on_invalid", "has no effect without identity.jwt.claim")
	c.that(r.MaxScopeLength == byDefault.MaxScopeLength || r.named(), "max_scope_length", "has no effect without an identity or a tenant")

	f := r.Fingerprint
	compares := f.Enabled && slices.Contains(f.Parts, PartBody)
	c.that(f.Body == BodyExact || compares, "fingerprint.body", "has no effect: the fingerprint doesn't cover the body")
	c.that(f.Enabled || slices.Equal(f.Parts, byDefault.Fingerprint.Parts), "fingerprint.parts", "has no effect while fingerprint.enabled is false")
	c.that(f.Enabled || r.MismatchStatus == byDefault.MismatchStatus, "mismatch_status", "has no effect while fingerprint.enabled is false: no request is taken for another one")
	return c.faults
}
