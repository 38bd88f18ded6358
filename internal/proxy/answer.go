package proxy

import (
	"cmp"
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
		dedup.ReasonTooManyKeys:         {429, "Too many idempotency keys", "too many idempotency keys in use; retry later", "true"},
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
// The type is always ours: it names an entry of this program's list, while the code may
// be the word that the rule has for it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Error  string `json:"error"`
}

// A simpleError is the body of a refusal under errors.format: simple.
type simpleError struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// answers are the replies in the words of one rule.
type answers struct {
	replies map[dedup.Reason]reply
	codes   map[dedup.Reason]string
	simple  map[dedup.Reason][]byte // whole bodies; nil for problems
	link    string                  // "" for none
}

// newAnswers returns the answers by a rule, or, of nil, those where there is none.
func newAnswers(rule *dedup.Rule) *answers {
	a := &answers{replies: newReplies()}
	if rule == nil {
		return a
	}
	a.codes = rule.Errors.Codes
	if reuse := a.replies[dedup.ReasonKeyReuse]; rule.MismatchStatus != 0 {
		reuse.status = rule.MismatchStatus
		a.replies[dedup.ReasonKeyReuse] = reuse
	}
	if rule.DocsURL != "" {
		a.link = "<" + rule.DocsURL + `>; rel="describedby"`
	}
	if rule.Errors.Format == dedup.ErrorsSimple {
		a.simple = map[dedup.Reason][]byte{}
		for reason, to := range a.replies {
			a.simple[reason] = encode(simpleError{Error: to.line, Code: a.code(reason)})
		}
	}
	return a
}

// code is what callers read for a reason.
func (a *answers) code(reason dedup.Reason) string { return cmp.Or(a.codes[reason], string(reason)) }

// body is the body of an answer and its media type.
func (a *answers) body(to reply, rejection *dedup.Rejection) (body []byte, mediaType string) {
	if a.simple != nil {
		return a.simple[rejection.Reason], "application/json"
	}
	return encode(problem{
		Type:   "urn:idemproxy:problem:" + string(rejection.Reason),
		Title:  to.title,
		Status: to.status,
		Detail: rejection.Detail,
		Code:   a.code(rejection.Reason),
		Error:  to.line,
	}), "application/problem+json"
}

// encode makes a body of strings and numbers, which can't fail.
func encode(v any) []byte {
	b, _ := json.Marshal(v)
	return append(b, '\n')
}

// answer writes a refusal, in the words of the route where there is one. Nothing of it was
// chosen by a caller. It returns the status.
func (p *Proxy) answer(w http.ResponseWriter, rt *route, rejection *dedup.Rejection) int {
	a := p.answers
	if rt != nil {
		a = rt.answers
	}
	p.letGo(w)
	return a.write(w, rejection)
}

func (a *answers) write(w http.ResponseWriter, rejection *dedup.Rejection) int {
	to := a.replies[rejection.Reason]
	h := w.Header()
	if rejection.Reason == dedup.ReasonInvalidToken {
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`) // RFC 6750, 3
	}
	if a.link != "" {
		h.Set("Link", a.link)
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
	body, mediaType := a.body(to, rejection)
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(to.status)
	w.Write(body)
	return to.status
}
