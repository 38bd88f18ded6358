package dedup

import (
	"slices"
	"time"
)

// A Rule is the idempotency policy of a route: which requests it guards, what makes
// two of them the same operation, and what is done with their answers. The yaml tags
// are the names of the configuration; DefaultRule has the defaults, Validate the checks.
type Rule struct {
	// Name labels the rule in metrics, logs and `explain`.
	Name string `yaml:"name"`
	// Methods are the request methods the rule applies to.
	Methods []string `yaml:"methods"`
	// Host limits the rule to requests for this host; empty means every host.
	Host string `yaml:"host"`
	// Path is a pattern of net/http (ServeMux), matched on the cleaned path.
	Path string `yaml:"path"`
	// Mode is what the rule does.
	Mode Mode `yaml:"mode"`

	// HeaderName are the request headers that carry the key, each an alias of the others.
	HeaderName Names `yaml:"header_name"`
	// TTL is how long a record lives from its completion, and an unknown outcome from
	// its claim.
	TTL time.Duration `yaml:"ttl"`
	// Lease is how long a claim lives without renewal. It is renewed at a third of it
	// while the request runs; once it is over the outcome is unknown.
	Lease time.Duration `yaml:"lease"`
	// MissingHeader is what becomes of a request without a key.
	MissingHeader MissingHeader `yaml:"missing_header"`
	// KeyFrom says where the keys of callers that send none come from, tried in order.
	KeyFrom []KeySource `yaml:"key_from"`
	// MaxKeyLength bounds a key, in bytes.
	MaxKeyLength int `yaml:"max_key_length"`
	// MaxScopeLength bounds each identity and tenant value, in bytes.
	MaxScopeLength int `yaml:"max_scope_length"`

	// Version is part of the store key: changing it forgets all earlier records.
	Version string `yaml:"version"`
	// TenantHeader names the header with the caller's tenant; empty means no tenants.
	TenantHeader string `yaml:"tenant_header"`
	// RequireTenant refuses a request without its tenant; not set means yes.
	RequireTenant *bool `yaml:"require_tenant"`
	// IdentityHeader is short for identity.headers with this one.
	IdentityHeader string `yaml:"identity_header"`
	// Identity says who a caller is: one key of two callers is two operations.
	Identity Identity `yaml:"identity"`
	// ScopeByRoute makes one key on two routes two operations.
	ScopeByRoute bool `yaml:"scope_by_route"`
	// MaxLiveKeysPerScope bounds the claims and records that one scope has at a time;
	// 0 means no bound.
	MaxLiveKeysPerScope int `yaml:"max_live_keys_per_scope"`

	// Fingerprint says what makes two requests with one key the same request.
	Fingerprint FingerprintRule `yaml:"fingerprint"`
	// MismatchStatus answers a key that was used with another fingerprint.
	MismatchStatus int `yaml:"mismatch_status"`
	// ReplayScopeHeaders are request headers whose values must be those of the first
	// request for its answer to be replayed.
	ReplayScopeHeaders []string `yaml:"replay_scope_headers"`
	// ReplayAuth asks a service whether a caller may still have an answer.
	ReplayAuth ReplayAuth `yaml:"replay_auth"`
	// InFlight is what becomes of a request whose key is being executed.
	InFlight InFlight `yaml:"in_flight"`
	// WaitTimeout is how long a request waits for the answer of the one that is being
	// executed, with in_flight: wait.
	WaitTimeout time.Duration `yaml:"wait_timeout"`
	// OnUnknownOutcome is what becomes of a key whose request may have been executed.
	OnUnknownOutcome UnknownOutcome `yaml:"on_unknown_outcome"`
	// ReleaseStatuses are the answers that mean "not processed": the key is freed.
	ReleaseStatuses []StatusSet `yaml:"release_statuses"`
	// OnStoreFailure is what becomes of a request while the store can't be used.
	OnStoreFailure StoreFailure `yaml:"on_store_failure"`

	// DocsURL is linked from the proxy's own answers.
	DocsURL string `yaml:"docs_url"`
	// Errors says what the proxy's own answers look like.
	Errors Errors `yaml:"errors"`
	// ExposeExpiry tells callers until when an answer is kept, and a replay's first time.
	ExposeExpiry bool `yaml:"expose_expiry"`
	// ReplayHeader marks replays with the value "true"; empty means no mark.
	ReplayHeader string `yaml:"replay_header"`
	// ForwardKey lets the upstream see the key.
	ForwardKey bool `yaml:"forward_key"`
	// MaxRequestBody bounds the body of a guarded request.
	MaxRequestBody Size `yaml:"max_request_body"`
	// MaxResponseBody bounds a recorded answer; larger ones pass and are not kept.
	MaxResponseBody Size `yaml:"max_response_body"`
	// DropResponseHeaders are delivered, but left out of the record.
	DropResponseHeaders []string `yaml:"drop_response_headers"`
}

// DefaultRule is the rule that a configuration starts from.
func DefaultRule() Rule {
	return Rule{
		Methods:            []string{"POST", "PUT", "PATCH", "DELETE"},
		Mode:               ModeEnforce,
		HeaderName:         Names{"Idempotency-Key"},
		TTL:                24 * time.Hour,
		Lease:              30 * time.Second,
		MissingHeader:      MissingReject,
		MaxKeyLength:       255,
		MaxScopeLength:     255,
		Identity:           Identity{OnMissing: IdentityReject, JWT: JWT{OnInvalid: InvalidReject}},
		Fingerprint:        FingerprintRule{Enabled: true, Parts: []Part{PartMethod, PartPath, PartQuery, PartBody}, Body: BodyExact},
		MismatchStatus:     422,
		ReplayScopeHeaders: []string{"Authorization"},
		ReplayAuth:         ReplayAuth{Timeout: 5 * time.Second},
		InFlight:           InFlightReject,
		WaitTimeout:        10 * time.Second,
		OnUnknownOutcome:   UnknownHold,
		ReleaseStatuses:    []StatusSet{"401", "429"},
		OnStoreFailure:     StoreReject,
		Errors:             Errors{Format: ErrorsProblem},
		ReplayHeader:       "X-Idempotent-Replay",
		ForwardKey:         true,
		MaxRequestBody:     MiB,
		MaxResponseBody:    MiB,
	}
}

// IdentityHeaders are the headers that name the caller, whichever way they were given.
func (r *Rule) IdentityHeaders() []string {
	if r.IdentityHeader != "" {
		return []string{r.IdentityHeader}
	}
	return r.Identity.Headers
}

// TenantRequired reports whether a request without a tenant is refused.
func (r *Rule) TenantRequired() bool {
	return r.TenantHeader != "" && (r.RequireTenant == nil || *r.RequireTenant)
}

// ReadsBody reports whether bodies are read for more than their bytes.
func (r *Rule) ReadsBody() bool {
	return r.Fingerprint.Body != BodyExact || slices.ContainsFunc(r.KeyFrom, func(s KeySource) bool { return s.JSON != "" || s.Form != "" })
}

// Releases reports whether an answer of this status means that the request was not
// processed.
func (r *Rule) Releases(status int) bool {
	for _, set := range r.ReleaseStatuses {
		if set.Has(status) {
			return true
		}
	}
	return false
}
