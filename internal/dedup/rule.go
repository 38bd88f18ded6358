package dedup

import "time"

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
	// MaxKeyLength bounds a key, in bytes.
	MaxKeyLength int `yaml:"max_key_length"`
	// MaxScopeLength bounds each identity and tenant value, in bytes.
	MaxScopeLength int `yaml:"max_scope_length"`

	// Version is part of the store key: changing it forgets all earlier records.
	Version string `yaml:"version"`
	// TenantHeader names the header with the caller's tenant; empty means no tenants.
	TenantHeader string `yaml:"tenant_header"`
	// RequireTenant refuses a request without TenantHeader; nil means yes.
	RequireTenant *bool `yaml:"require_tenant"`
	// IdentityHeader is short for an Identity of this one header.
	IdentityHeader string `yaml:"identity_header"`
	// Identity says who a caller is: one key of two callers is two operations.
	Identity Identity `yaml:"identity"`
	// ScopeByRoute makes one key on two routes two operations.
	ScopeByRoute bool `yaml:"scope_by_route"`

	// Fingerprint says what makes two requests with one key the same request.
	Fingerprint FingerprintRule `yaml:"fingerprint"`
	// MismatchStatus answers a key that was used with another fingerprint.
	MismatchStatus int `yaml:"mismatch_status"`
	// ReplayScopeHeaders are request headers whose values must be those of the first
	// request for its answer to be replayed.
	ReplayScopeHeaders []string `yaml:"replay_scope_headers"`
	// OnUnknownOutcome is what becomes of a key whose request may have been executed.
	OnUnknownOutcome UnknownOutcome `yaml:"on_unknown_outcome"`
	// ReleaseStatuses are the answers that mean "not processed": the key is freed.
	ReleaseStatuses []StatusSet `yaml:"release_statuses"`
	// OnStoreFailure is what becomes of a request while the store can't be used.
	OnStoreFailure StoreFailure `yaml:"on_store_failure"`

	// DocsURL is linked from the proxy's own answers.
	DocsURL string `yaml:"docs_url"`
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

// Identity says which headers name the caller.
type Identity struct {
	// Headers are joined in this order.
	Headers []string `yaml:"headers"`
	// OnMissing is what becomes of a request that lacks one of them.
	OnMissing MissingIdentity `yaml:"on_missing"`
}

// FingerprintRule says what a fingerprint covers.
type FingerprintRule struct {
	// Enabled compares fingerprints; without it a key alone names the operation.
	Enabled bool `yaml:"enabled"`
	// Parts are what is covered: method, path, query, body.
	Parts []Part `yaml:"parts"`
	// Body is how bodies are compared.
	Body BodyMode `yaml:"body"`
	// Headers are covered besides.
	Headers []string `yaml:"headers"`
}

// Mode is what a rule does with the requests it matches.
type Mode string

// The modes of a rule.
const (
	ModeEnforce Mode = "enforce" // guard them
	ModeOff     Mode = "off"     // pass them through, as if the rule were not there
)

// MissingHeader is what becomes of a request that a rule matches and that has no key.
type MissingHeader string

// The policies for a missing key.
const (
	MissingReject      MissingHeader = "reject"       // 400 missing_key
	MissingPassThrough MissingHeader = "pass-through" // forwarded unguarded
)

// MissingIdentity is what becomes of a request without an identity.
type MissingIdentity string

// The policies for a missing identity.
const (
	IdentityReject    MissingIdentity = "reject"    // 400 missing_identity
	IdentityAnonymous MissingIdentity = "anonymous" // all such callers are one
)

// UnknownOutcome is what becomes of a key whose request may or may not have been
// executed.
type UnknownOutcome string

// The policies for an unknown outcome.
const (
	UnknownHold    UnknownOutcome = "hold"    // at most once: refused until its TTL or an operator
	UnknownRelease UnknownOutcome = "release" // at least once: the next caller executes again
)

// StoreFailure is what becomes of a request while the store can't be used.
type StoreFailure string

// The policies for a failing store.
const (
	StoreReject      StoreFailure = "reject"       // 503 store_unavailable
	StorePassThrough StoreFailure = "pass-through" // forwarded unguarded
)

// A Part of a request that a fingerprint can cover.
type Part string

// The parts of a fingerprint.
const (
	PartMethod Part = "method"
	PartPath   Part = "path"
	PartQuery  Part = "query"
	PartBody   Part = "body"
)

// BodyMode is how the bodies of two requests are compared.
type BodyMode string

// BodyExact compares bodies byte by byte.
const BodyExact BodyMode = "exact"

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
		Identity:           Identity{OnMissing: IdentityReject},
		Fingerprint:        FingerprintRule{Enabled: true, Parts: []Part{PartMethod, PartPath, PartQuery, PartBody}, Body: BodyExact},
		MismatchStatus:     422,
		ReplayScopeHeaders: []string{"Authorization"},
		OnUnknownOutcome:   UnknownHold,
		ReleaseStatuses:    []StatusSet{"401", "429"},
		OnStoreFailure:     StoreReject,
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

// Names is one name or a list of names.
type Names []string

// A StatusSet is one status code ("429") or a class of them ("5xx").
type StatusSet string

// Has reports whether a status belongs to the set. Both are three digits.
func (s StatusSet) Has(status int) bool {
	if len(s) != 3 || status < 100 || status > 999 || int(s[0]-'0') != status/100 {
		return false
	}
	return s[1:] == "xx" || int(s[1]-'0')*10+int(s[2]-'0') == status%100
}

// valid reports whether the set is a final status code or a class of them.
func (s StatusSet) valid() bool {
	if len(s) != 3 || s[0] < '2' || s[0] > '5' {
		return false
	}
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	return s[1:] == "xx" || digit(s[1]) && digit(s[2])
}
