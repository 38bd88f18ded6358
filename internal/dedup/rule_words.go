package dedup

import "time"

// Identity says what names the caller: headers, a verified token, or both.
type Identity struct {
	// Headers name the caller together, in this order.
	Headers []string `yaml:"headers"`
	// OnMissing is what becomes of a request that lacks one of them.
	OnMissing MissingIdentity `yaml:"on_missing"`
	// JWT takes the caller from a token that is verified.
	JWT JWT `yaml:"jwt"`
}

// JWT says how a bearer token (RFC 6750) of the Authorization header, a JSON Web Token of
// RFC 7519, is verified, and which claim of it names the caller. Its keys come from exactly
// one place.
type JWT struct {
	// Claim is the name of the claim that names the caller, such as sub; empty means no
	// tokens are read.
	Claim string `yaml:"claim"`
	// JWKSURL serves the issuer's public keys, a JWK Set of RFC 7517.
	JWKSURL string `yaml:"jwks_url"`
	// JWKSFile is a file with such a set.
	JWKSFile string `yaml:"jwks_file"`
	// SecretFile is a file with the secret of an HMAC, 32 bytes or more.
	SecretFile string `yaml:"secret_file"`
	// Issuer must be the token's iss; empty means any.
	Issuer string `yaml:"issuer"`
	// Audience must be in the token's aud; empty means any.
	Audience string `yaml:"audience"`
	// OnInvalid is what becomes of a request whose token is not valid.
	OnInvalid InvalidToken `yaml:"on_invalid"`
}

// A KeySource is a place of a request that a key is derived from. Exactly one field is set.
type KeySource struct {
	// Header is the name of a request header.
	Header string `yaml:"header"`
	// JSON is a JSON pointer (RFC 6901) into the body.
	JSON string `yaml:"json"`
	// Query is the name of a query parameter.
	Query string `yaml:"query"`
	// Form is the name of a field of a form in the body.
	Form string `yaml:"form"`
	// Fingerprint takes the request's fingerprint as the key, for this long.
	Fingerprint time.Duration `yaml:"fingerprint"`
}

// ReplayAuth is a service that is asked, with the caller's headers, before an answer is
// replayed.
type ReplayAuth struct {
	// URL is the service that is asked; empty means nobody is.
	URL string `yaml:"url"`
	// Timeout bounds the question and its answer.
	Timeout time.Duration `yaml:"timeout"`
}

// Errors says what the proxy's own answers look like.
type Errors struct {
	// Format is the format of their bodies.
	Format ErrorFormat `yaml:"format"`
	// Codes replaces codes of these answers, such as key_reuse by IDEMPOTENCY_CONFLICT.
	Codes map[Reason]string `yaml:"codes"`
}

// FingerprintRule says what a fingerprint covers.
type FingerprintRule struct {
	// Enabled compares fingerprints; without it a key alone names the operation.
	Enabled bool `yaml:"enabled"`
	// Parts are what is covered: method, path, query, body.
	Parts []Part `yaml:"parts"`
	// Body is how bodies are compared.
	Body BodyMode `yaml:"body"`
	// Headers are request headers that are covered besides.
	Headers []string `yaml:"headers"`
	// Ignore are JSON pointers (RFC 6901) to what is left out of a JSON body.
	Ignore []string `yaml:"ignore"`
}

// Mode is what a rule does with the requests it matches.
type Mode string

// The modes of a rule.
const (
	ModeEnforce Mode = "enforce" // guard them
	ModeObserve Mode = "observe" // pass them through, and count what would have been done
	ModeOff     Mode = "off"     // pass them through unguarded, also those of less specific rules
)

// MissingHeader is what becomes of a request that a rule matches and that has no key.
type MissingHeader string

// The policies for a missing key.
const (
	MissingReject      MissingHeader = "reject"       // 400 missing_key
	MissingPassThrough MissingHeader = "pass-through" // forwarded unguarded
	MissingDerive      MissingHeader = "derive"       // a key is made by KeyFrom
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

// The ways to compare bodies.
const (
	BodyExact BodyMode = "exact" // byte by byte
	BodyJSON  BodyMode = "json"  // by the value of the JSON they are
	BodyForm  BodyMode = "form"  // by the fields and files of the form they are
)

// InFlight is what becomes of a request whose key is being executed.
type InFlight string

// The policies for a key that is being executed.
const (
	InFlightReject InFlight = "reject" // 409 in_progress
	InFlightWait   InFlight = "wait"   // it waits for the answer
)

// InvalidToken is what becomes of a request whose token is not valid.
type InvalidToken string

// The policies for an invalid token.
const (
	InvalidReject  InvalidToken = "reject"  // 401 invalid_token
	InvalidMissing InvalidToken = "missing" // as if there were none: see OnMissing
)

// ErrorFormat is what the proxy's own answers look like.
type ErrorFormat string

// The formats of the proxy's own answers.
const (
	ErrorsProblem ErrorFormat = "problem" // application/problem+json, RFC 9457
	ErrorsSimple  ErrorFormat = "simple"  // {"error": …, "code": …} as application/json
)

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
