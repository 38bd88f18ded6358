package dedup

import (
	"fmt"
	"time"
)

// A Reason is why a request is not answered by the upstream: the code of the proxy's
// own answer. Scripts rely on these words.
type Reason string

// The closed list of reasons.
const (
	ReasonMissingKey          Reason = "missing_key"
	ReasonInvalidKey          Reason = "invalid_key"
	ReasonBadRequest          Reason = "bad_request"
	ReasonMissingIdentity     Reason = "missing_identity"
	ReasonInvalidIdentity     Reason = "invalid_identity"
	ReasonInvalidToken        Reason = "invalid_token"
	ReasonIdentityUnavailable Reason = "identity_unavailable"
	ReasonRequestTooLarge     Reason = "request_too_large"
	ReasonRequestTimeout      Reason = "request_timeout"
	ReasonInProgress          Reason = "in_progress"
	ReasonOutcomeUnknown      Reason = "outcome_unknown"
	ReasonKeyReuse            Reason = "key_reuse"
	ReasonReplayScope         Reason = "replay_scope"
	ReasonResponseNotStored   Reason = "response_not_stored"
	ReasonTooManyKeys         Reason = "too_many_keys"
	ReasonReplayAuth          Reason = "replay_auth_unavailable"
	ReasonOverloaded          Reason = "overloaded"
	ReasonRecordUnreadable    Reason = "record_unreadable"
	ReasonStoreUnavailable    Reason = "store_unavailable"
	ReasonUpstreamUnreachable Reason = "upstream_unreachable"
	ReasonUpstreamTimeout     Reason = "upstream_timeout"
	ReasonUpstreamFailed      Reason = "upstream_failed"
)

// Reasons returns the whole list, in the order in which the checks are made.
func Reasons() []Reason {
	return []Reason{
		ReasonMissingKey, ReasonInvalidKey, ReasonBadRequest, ReasonInvalidToken, ReasonIdentityUnavailable,
		ReasonMissingIdentity, ReasonInvalidIdentity,
		ReasonRequestTooLarge, ReasonRequestTimeout, ReasonOverloaded, ReasonInProgress, ReasonOutcomeUnknown, ReasonKeyReuse,
		ReasonReplayScope, ReasonResponseNotStored, ReasonReplayAuth, ReasonTooManyKeys, ReasonRecordUnreadable, ReasonStoreUnavailable,
		ReasonUpstreamUnreachable, ReasonUpstreamTimeout, ReasonUpstreamFailed,
	}
}

// A Rejection is the proxy's own answer to a request: the only error whose text a
// caller may see. It repeats nothing that a caller sent.
type Rejection struct {
	Reason     Reason
	Detail     string        // one sentence for the caller, about this very request
	RetryAfter time.Duration // when trying again makes sense; 0 where it does not
	Err        error         // the cause, for the log only; may be nil
}

// Error is for the log.
func (r *Rejection) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", r.Reason, r.Err)
	}
	return fmt.Sprintf("%s: %s", r.Reason, r.Detail)
}

// Unwrap returns the cause.
func (r *Rejection) Unwrap() error { return r.Err }

// reject makes a Rejection that retrying does not cure.
func reject(reason Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
