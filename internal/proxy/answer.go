package proxy

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"idemproxy/internal/dedup"
)

// A reply is how a refusal is answered.
type reply struct {
	status int
	title  string
	line   string // for clients that read one line only
	retry  string // x-should-retry, which the SDKs that Stainless makes obey: "true", "false" or ""
}

// newReplies returns the reply of every reason. The titles of the first three are those of
// draft-ietf-httpapi-idempotency-key-header.
func newReplies() map[dedup.Reason]reply {
	return map[dedup.Reason]reply{
		dedup.ReasonMissingKey:          {400, "Idempotency-Key is missing", "idempotency-key missing", ""},
		dedup.ReasonKeyReuse:            {422, "Idempotency-Key is already used", "idempotency-key reused with a different request", "false"},
		dedup.ReasonInProgress:          {409, "A request is outstanding for this Idempotency-Key", "idempotency-key in-flight; retry shortly", "true"},
		dedup.ReasonInvalidKey:          {400, "Idempotency-Key is invalid", "idempotency-key invalid", ""},
		dedup.ReasonBadRequest:          {400, "Request is malformed", "request malformed", ""},
		dedup.ReasonMissingIdentity:     {400, "Caller identity is missing", "caller identity missing", ""},
		dedup.ReasonInvalidIdentity:     {400, "Caller identity is invalid", "caller identity invalid", ""},
		dedup.ReasonInvalidToken:        {401, "Bearer token is invalid", "bearer token invalid", ""},
		dedup.ReasonIdentityUnavailable: {503, "Caller identity can't be verified", "caller identity unverifiable; retry shortly", "true"},
		dedup.ReasonRequestTooLarge:     {413, "Request body is too large", "request body too large", ""},
		dedup.ReasonRequestTimeout:      {408, "Request body did not arrive in time", "request body did not arrive in time", ""},
		dedup.ReasonOutcomeUnknown:      {409, "The outcome of the request with this Idempotency-Key is unknown", "idempotency-key outcome unknown; not executed again", "false"},
		dedup.ReasonReplayScope:         {409, "Idempotency-Key belongs to other credentials", "idempotency-key used with other credentials", "false"},
		dedup.ReasonResponseNotStored:   {409, "The answer for this Idempotency-Key was not kept", "idempotency-key executed; its answer was not kept", "false"},
		dedup.ReasonReplayAuth:          {503, "Permission for the replay can't be checked", "replay permission unavailable; retry shortly", "true"},
		dedup.ReasonRecordUnreadable:    {503, "The record for this Idempotency-Key can't be read", "idempotency record unreadable; retry later", "true"},
		dedup.ReasonOverloaded:          {503, "The proxy is overloaded", "proxy overloaded; retry shortly", "true"},
		dedup.ReasonStoreUnavailable:    {503, "Idempotency store is unavailable", "idempotency store unavailable; retry shortly", "true"},
		dedup.ReasonUpstreamUnreachable: {502, "Upstream can't be reached", "upstream unreachable", ""},
		dedup.ReasonUpstreamTimeout:     {504, "Upstream did not answer in time", "upstream timed out", ""},
		dedup.ReasonUpstreamFailed:      {502, "Upstream failed while it answered", "upstream failed", ""},
	}
}

// A problem is the body of a refusal, RFC 9457, with the extension members code and error.
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Code   dedup.Reason `json:"code"`
	Error  string       `json:"error"`
}

// answer writes a refusal, by the rule where there is one. Nothing of it was chosen by a
// caller. It returns the status.
func (p *Proxy) answer(w http.ResponseWriter, rule *dedup.Rule, rejection *dedup.Rejection) int {
	to := p.replies[rejection.Reason]
	h := w.Header()
	if rule != nil && rejection.Reason == dedup.ReasonKeyReuse {
		to.status = rule.MismatchStatus
	}
	if rejection.Reason == dedup.ReasonInvalidToken {
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`) // RFC 6750, 3
	}
	if rule != nil && rule.DocsURL != "" {
		h.Set("Link", "<"+rule.DocsURL+`>; rel="describedby"`)
	}
	if rejection.RetryAfter > 0 {
		// Whole seconds and at least one (RFC 9110, 10.2.3); the SDKs that know
		// retry-after-ms prefer it.
		h.Set("Retry-After", strconv.FormatInt(max(1, int64(rejection.RetryAfter/time.Second)), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64(math.Ceil(float64(rejection.RetryAfter)/float64(time.Millisecond))), 10))
	}
	if to.retry != "" {
		h.Set("X-Should-Retry", to.retry)
	}
	body, _ := json.Marshal(problem{ // of strings and a number: it can't fail
		Type:   "urn:idemproxy:problem:" + string(rejection.Reason),
		Title:  to.title,
		Status: to.status,
		Detail: rejection.Detail,
		Code:   rejection.Reason,
		Error:  to.line,
	})
	body = append(body, '\n')
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(to.status)
	w.Write(body)
	return to.status
}
