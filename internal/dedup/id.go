package dedup

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// An ID names one operation in a store: 43 characters of A-Z a-z 0-9 - _, the
// base64url form of a SHA-256 over the scope and the key, so that nothing a caller
// sent can be read in a store. See Scope.ID.
type ID string

// A ScopeID names a scope in a store: made and looking like an ID, and never one. See
// Scope.Name.
type ScopeID string

// Observed is the operation as a rule in mode observe keeps it: under names of its own, so
// that it never meets the claims, records and quotas of the same rule in mode enforce.
func (op Operation) Observed() Operation {
	op.ID = ID(observed(string(op.ID)))
	if op.Scope != "" {
		op.Scope = ScopeID(observed(string(op.Scope)))
	}
	return op
}

func observed(name string) string {
	sum := sha256.Sum256(appendPart(appendPart(nil, "idemproxy observed 1"), name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// A Token is the fencing token of one attempt to execute an operation: 22 characters
// of A-Z a-z 0-9 - _, 128 random bits in base64url. Whoever holds a claim proves it
// with its token; a late owner's token is no longer the entry's.
type Token string

// TokenLength is the length of every Token, in bytes.
const TokenLength = 22

// NewToken returns a Token that nobody has had before.
func NewToken() Token {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program if the system has no randomness
	return Token(base64.RawURLEncoding.EncodeToString(b[:]))
}
