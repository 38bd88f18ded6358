package dedup

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Validate returns everything that is wrong with the rule; paths stand relative to it.
func (r *Rule) Validate() []Fault {
	var c checks
	r.checkMatch(&c)
	r.checkTimes(&c)
	r.checkHeaders(&c)
	r.checkAnswers(&c)
	r.checkFingerprint(&c)
	r.checkKeyFrom(&c)
	r.checkToken(&c)
	r.checkErrors(&c)
	return c.faults
}

// checkMatch checks which requests the rule applies to. Whether the pattern is one, and
// conflicts with no other, is the router's to say.
func (r *Rule) checkMatch(c *checks) {
	c.that(r.Name != "", "name", "a route needs a name: it labels metrics and logs")
	c.that(len(r.Methods) > 0, "methods", "name at least one method, such as [POST]")
	for i, m := range r.Methods {
		at := fmt.Sprintf("methods[%d]", i)
		c.that(!slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"}, strings.ToUpper(m)), at,
			strings.ToUpper(m)+" changes nothing on the server (RFC 9110, 9.2.1) or is no request to it; guard methods that do, such as POST")
		c.that(isToken(m) && strings.ToUpper(m) == m, at, "not a method: use a name in capitals, such as POST")
		c.that(slices.Index(r.Methods, m) == i, at, m+" is listed twice")
	}
	c.that(strings.HasPrefix(r.Path, "/"), "path", "must be a pattern that begins with a slash, such as /api/payments or /api/{rest...}")
	_, err := netip.ParseAddr(strings.Trim(r.Host, "[]"))
	c.that(!strings.ContainsAny(r.Host, "/ \t") && (err == nil || !strings.Contains(r.Host, ":")), "host", "must be a host name alone, without a scheme, a port or a path")
	oneOf(c, "mode", r.Mode, ModeEnforce, ModeObserve, ModeOff)
}

func (r *Rule) checkTimes(c *checks) {
	c.that(r.TTL >= time.Millisecond, "ttl", "must be at least 1ms, such as 24h")
	c.that(r.Lease >= 3*time.Millisecond, "lease", "must be more than 0, such as 30s; it is renewed at a third of it")
	c.that(r.Lease < r.TTL, "lease", fmt.Sprintf("must be shorter than ttl (%v): a lease marks a running request, the ttl how long its answer is kept", r.TTL))
	c.that(r.MaxKeyLength > 0, "max_key_length", "must be at least 1")
	c.that(r.MaxScopeLength > 0, "max_scope_length", "must be at least 1")
	c.that(r.WaitTimeout > 0, "wait_timeout", "must be more than 0, such as 10s")
	c.that(r.ReplayAuth.Timeout > 0, "replay_auth.timeout", "must be more than 0, such as 5s")
	c.that(r.MaxLiveKeysPerScope >= 0, "max_live_keys_per_scope", "must not be negative; 0 means no bound")
	c.that(r.MaxRequestBody >= 0, "max_request_body", "must not be negative")
	c.that(r.MaxResponseBody >= 0, "max_response_body", "must not be negative")
}

// checkHeaders checks every header name, and that no header serves two purposes.
func (r *Rule) checkHeaders(c *checks) {
	c.that(len(r.HeaderName) > 0, "header_name", "name the header that carries the key, such as Idempotency-Key")
	c.names("header_name", r.HeaderName)
	c.that(r.TenantHeader == "" || isToken(r.TenantHeader), "tenant_header", notAHeader)
	c.that(!strings.EqualFold(r.TenantHeader, "Host"), "tenant_header", hostIsNone)
	c.that(!strings.EqualFold(r.IdentityHeader, "Host"), "identity_header", hostIsNone)
	c.that(r.TenantHeader != "" || r.RequireTenant == nil, "require_tenant", "has no effect without tenant_header")
	c.that(r.IdentityHeader == "" || isToken(r.IdentityHeader), "identity_header", notAHeader)
	c.that(r.IdentityHeader == "" || len(r.Identity.Headers) == 0, "identity_header", "is short for identity.headers: set one of the two")
	c.names("identity.headers", r.Identity.Headers)
	oneOf(c, "identity.on_missing", r.Identity.OnMissing, IdentityReject, IdentityAnonymous)
	c.names("fingerprint.headers", r.Fingerprint.Headers)
	c.names("replay_scope_headers", r.ReplayScopeHeaders)
	c.names("drop_response_headers", r.DropResponseHeaders)
	c.that(r.ReplayHeader == "" || isToken(r.ReplayHeader), "replay_header", notAHeader)

	for i, h := range r.IdentityHeaders() {
		at := "identity_header"
		if r.IdentityHeader == "" {
			at = fmt.Sprintf("identity.headers[%d]", i)
		}
		c.that(!hasName(r.HeaderName, h), at, "is the key header too: a caller is not its key")
		c.that(!strings.EqualFold(h, r.TenantHeader), at, "is the tenant header too")
	}
	c.that(!hasName(r.HeaderName, r.TenantHeader), "tenant_header", "is the key header too")
}

func (r *Rule) checkAnswers(c *checks) {
	oneOf(c, "missing_header", r.MissingHeader, MissingReject, MissingPassThrough, MissingDerive)
	oneOf(c, "in_flight", r.InFlight, InFlightReject, InFlightWait)
	oneOf(c, "on_unknown_outcome", r.OnUnknownOutcome, UnknownHold, UnknownRelease)
	oneOf(c, "on_store_failure", r.OnStoreFailure, StoreReject, StorePassThrough)
	c.that(r.MismatchStatus == 422 || r.MismatchStatus == 409, "mismatch_status", "must be 422 or 409")
	for i, s := range r.ReleaseStatuses {
		c.that(s.valid(), fmt.Sprintf("release_statuses[%d]", i), `must be a status code from 200 to 599, such as 429, or a class, such as "5xx"`)
	}
	c.that(r.DocsURL == "" || isURL(r.DocsURL), "docs_url", "must be an absolute URL, such as https://example.com/docs/idempotency")
	c.that(r.ReplayAuth.URL == "" || isHTTP(r.ReplayAuth.URL), "replay_auth.url", "must be an http:// or https:// URL without a user, such as http://auth:9000/check")
}

func (r *Rule) checkFingerprint(c *checks) {
	f := r.Fingerprint
	oneOf(c, "fingerprint.body", f.Body, BodyExact, BodyJSON, BodyForm)
	for i, p := range f.Parts {
		oneOf(c, fmt.Sprintf("fingerprint.parts[%d]", i), p, PartMethod, PartPath, PartQuery, PartBody)
		c.that(slices.Index(f.Parts, p) == i, fmt.Sprintf("fingerprint.parts[%d]", i), "is listed twice")
	}
	for i, pointer := range f.Ignore {
		c.that(isPointer(pointer), fmt.Sprintf("fingerprint.ignore[%d]", i), notAPointer)
	}
	c.that(len(f.Ignore) == 0 || f.Body == BodyJSON, "fingerprint.ignore", "has no effect unless fingerprint.body is json")
	c.that(f.Enabled || len(f.Ignore)+len(f.Headers) == 0, "fingerprint.enabled", "is false, so that headers and ignore have no effect; leave them out")
	c.that(!f.Enabled || len(f.Parts)+len(f.Headers) > 0, "fingerprint.parts", "a fingerprint of nothing tells no two requests apart; to compare nothing, set enabled: false")
}

const hostIsNone = "Host is no header field here; use the route's host to tell hosts apart"

const notAHeader = "not a header name: use letters, digits and hyphens, such as X-Account"

// checks collects faults.
type checks struct{ faults []Fault }

// that notes a fault at path unless ok.
func (c *checks) that(ok bool, path, message string) {
	if !ok {
		c.faults = append(c.faults, Fault{Path: path, Message: message})
	}
}

// names checks a list of header names.
func (c *checks) names(path string, names []string) {
	for i, n := range names {
		at := path
		if len(names) > 1 || path != "header_name" {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		c.that(isToken(n), at, notAHeader)
		c.that(!strings.EqualFold(n, "Host"), at, hostIsNone)
		c.that(slices.IndexFunc(names, func(m string) bool { return strings.EqualFold(m, n) }) == i, at, "is listed twice")
	}
}

// oneOf checks that a word is one of those known.
func oneOf[T ~string](c *checks, path string, got T, known ...T) {
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	c.that(slices.Contains(known, got), path, "must be "+strings.Join(words, " or "))
}

// hasName reports whether a header is among names; header names have no case.
func hasName(names []string, header string) bool {
	return header != "" && slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, header) })
}

// isToken reports whether s is a token of RFC 9110, 5.6.2, as methods and header names
// are.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
