package dedup

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// A Scope is the space in which a key counts: the same key in two scopes is two
// operations.
type Scope struct {
	Version    string    // the rule's version
	Tenant     *string   // nil: the rule knows no tenants, or this one may be missing and is
	Principals []*string // what names the caller, in the rule's order; nil: missing, and may be
	Route      string    // the rule's name if the rule is scoped by route, otherwise ""

	subject *Subject // of the token that was verified; it is among Principals
}

// A Subject is the caller that a verified token names: the value of a claim, which is
// unique within the token's issuer.
type Subject struct {
	Issuer string // the token's iss; "" if it has none
	Claim  string // the name of the claim
	Value  string
}

// principal joins the parts. It begins with a byte that no header has, so that a caller
// can't name another's subject in a header.
func (s *Subject) principal() *string {
	b := []byte("\x00token")
	b = appendPart(b, s.Issuer)
	b = appendPart(b, s.Claim)
	b = appendPart(b, s.Value)
	return new(string(b))
}

// Scope reads the scope of a request from the rule's tenant and identity headers, and
// from the subject of its token, which was verified before; nil stands for none. It
// returns a *Rejection when one is missing and may not be (missing_identity), or is
// sent more than once, too long, or not printable ASCII (invalid_identity).
func (r *Rule) Scope(header Header, subject *Subject) (Scope, *Rejection) {
	s := Scope{Version: r.Version}
	if r.ScopeByRoute {
		s.Route = r.Name
	}
	var rejected *Rejection
	if r.TenantHeader != "" {
		if s.Tenant, rejected = r.principal(header, r.TenantHeader, r.TenantRequired()); rejected != nil {
			return Scope{}, rejected
		}
	}
	for _, name := range r.IdentityHeaders() {
		p, rejected := r.principal(header, name, r.Identity.OnMissing == IdentityReject)
		if rejected != nil {
			return Scope{}, rejected
		}
		s.Principals = append(s.Principals, p)
	}
	if r.Identity.JWT.Claim != "" {
		p, rejected := r.subject(subject)
		if rejected != nil {
			return Scope{}, rejected
		}
		s.Principals, s.subject = append(s.Principals, p), subject
	}
	return s, nil
}

// subject is the principal of a token; nil stands for a missing one.
func (r *Rule) subject(s *Subject) (*string, *Rejection) {
	switch {
	case s == nil && r.Identity.OnMissing == IdentityReject:
		return nil, reject(ReasonMissingIdentity, "This request needs a valid bearer token in the header Authorization, which says who is calling.")
	case s == nil:
		return nil, nil
	case len(s.Value) > r.MaxScopeLength:
		return nil, reject(ReasonInvalidIdentity, "The claim %s of the bearer token is longer than %d bytes.", s.Claim, r.MaxScopeLength)
	}
	return s.principal(), nil
}

// principal reads one identity header; nil stands for a missing one. Its rejections
// name the header, which the configuration chose, never the value.
func (r *Rule) principal(header Header, name string, required bool) (*string, *Rejection) {
	values := header(name)
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		if required {
			return nil, reject(ReasonMissingIdentity, "The header %s, which says who is calling, is missing.", name)
		}
		return nil, nil
	case len(values) > 1:
		return nil, reject(ReasonInvalidIdentity, "The header %s was sent %d times; send it once.", name, len(values))
	case len(values[0]) > r.MaxScopeLength:
		return nil, reject(ReasonInvalidIdentity, "The header %s is longer than %d characters.", name, r.MaxScopeLength)
	}
	bad := notPrintable
	if strings.EqualFold(name, "Authorization") { // a scheme, a space, and credentials (RFC 9110, 11.4)
		bad = func(c rune) bool { return c != ' ' && notPrintable(c) }
	}
	if at := strings.IndexFunc(values[0], bad); at >= 0 {
		return nil, reject(ReasonInvalidIdentity, "The header %s has a byte outside printable ASCII (0x21 to 0x7E) at index %d.", name, at)
	}
	return &values[0], nil
}

// ID names the operation of a key in this scope. Every part is hashed with its length
// before it, so that no two operations share an ID by shifting bytes between parts, and
// nothing of a part can be read from it.
func (s Scope) ID(key Key) ID { return ID(s.hash("idemproxy id 1", string(key))) }

// DerivedID names the operation of a derived key. It equals that of no key that was sent,
// and of no key that another source gave.
func (s Scope) DerivedID(key DerivedKey) ID {
	return ID(s.hash("idemproxy derived id 1", key.kind, key.name, key.value))
}

// Name names the scope itself, by the same rules.
func (s Scope) Name() ScopeID { return ScopeID(s.hash("idemproxy scope 1")) }

// hash is what the scope and more parts have in common with nothing else; what says of
// which kind it is.
func (s Scope) hash(what string, more ...string) string {
	b := make([]byte, 0, 512)
	b = appendPart(b, what)
	b = appendPart(b, s.Version)
	b = appendPart(b, s.Route)
	b = appendOptional(b, s.Tenant)
	b = binary.AppendUvarint(b, uint64(len(s.Principals)))
	for _, p := range s.Principals {
		b = appendOptional(b, p)
	}
	for _, part := range more {
		b = appendPart(b, part)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// appendPart appends a string with its length before it.
func appendPart(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendOptional appends a string that may be missing; a missing one differs from every
// string.
func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, 0)
	}
	return appendPart(append(b, 1), *s)
}
