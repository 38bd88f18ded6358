package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"net/url"
	"slices"
	"strings"
)

// A Fingerprint tells whether two requests with one key are the same request. The zero
// Fingerprint stands for a rule that compares none.
type Fingerprint [sha256.Size]byte

// Recipe is how this version makes fingerprints. Records carry it, so that a later
// recipe doesn't take every live key for reused.
const Recipe = 1

// A Request is what a fingerprint is made of.
type Request struct {
	Method string
	Target string // path and query as they are forwarded, byte for byte
	Header Header
	Body   []byte
}

// The tags of the parts, so that no part is taken for another.
const (
	tagMethod = 'm'
	tagPath   = 'p'
	tagQuery  = 'q'
	tagRaw    = 'r' // a query that is compared as it stands
	tagHeader = 'h'
	tagBody   = 'b'
	tagJSON   = 'j' // a body that is compared by the value of its JSON
	tagForm   = 'f' // one that is compared by the fields of its form
	tagParts  = 'd' // one that is compared by the fields and files of its multipart form
)

// Of returns the fingerprint of a request: SHA-256 over the parts that the rule names,
// each with its tag and its length before it.
func (f *FingerprintRule) Of(req Request) Fingerprint {
	if !f.Enabled {
		return Fingerprint{}
	}
	path, query, hasQuery := strings.Cut(req.Target, "?")
	b := make([]byte, 0, 1024)
	b = append(b, Recipe)
	if slices.Contains(f.Parts, PartMethod) {
		b = appendPart(append(b, tagMethod), req.Method)
	}
	if slices.Contains(f.Parts, PartPath) {
		b = appendPart(append(b, tagPath), path)
	}
	if slices.Contains(f.Parts, PartQuery) && hasQuery {
		b = appendQuery(b, query)
	}
	for _, name := range f.Headers {
		b = appendHeader(append(b, tagHeader), name, req.Header(name))
	}
	h := sha256.New()
	h.Write(b)
	if slices.Contains(f.Parts, PartBody) {
		f.writeBody(h, req)
	}
	return Fingerprint(h.Sum(nil))
}

// writeBody writes what is compared of a body. One that isn't what the rule takes it for
// is compared byte by byte, and equals none that is.
func (f *FingerprintRule) writeBody(h hash.Hash, req Request) {
	switch f.Body {
	case BodyJSON:
		if value, ok := jsonValue(req.Body, f.Ignore); ok {
			writeBytes(h, tagJSON, value)
			return
		}
	case BodyForm:
		if writeForm(h, req) {
			return
		}
	default:
	}
	writeBytes(h, tagBody, req.Body)
}

// writeBytes writes bytes with a tag and their length before them.
func writeBytes(h hash.Hash, tag byte, b []byte) {
	h.Write(binary.AppendUvarint([]byte{tag}, uint64(len(b))))
	h.Write(b)
}

// appendHeader appends a header's name and all its values in order. Names have no case.
func appendHeader(b []byte, name string, values []string) []byte {
	b = appendPart(b, strings.ToLower(name))
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = appendPart(b, v)
	}
	return b
}

// appendQuery appends the canonical query: parameters sorted by name, those of one name
// in the order they were sent, each byte for byte. A query that net/url can't parse
// whole (a semicolon, a broken escape) is appended as it stands: nobody knows in which
// order, or how, the upstream reads it.
func appendQuery(b []byte, query string) []byte {
	if strings.IndexByte(query, '&') < 0 { // one parameter has only one order
		return appendPart(append(b, tagQuery, 1), query)
	}
	parameters, ok := sortedQuery(query)
	if !ok {
		return appendPart(append(b, tagRaw), query)
	}
	b = binary.AppendUvarint(append(b, tagQuery), uint64(len(parameters)))
	for _, p := range parameters {
		b = appendPart(b, p.raw)
	}
	return b
}

// A parameter is a piece of a query.
type parameter struct{ name, raw string }

// sortedQuery returns the parameters of a query, sorted by name, and reports whether
// net/url can parse all of them.
func sortedQuery(query string) ([]parameter, bool) {
	var parameters []parameter
	for raw := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(raw, "=")
		plain, err := url.QueryUnescape(name)
		if _, bad := url.QueryUnescape(value); err != nil || bad != nil || strings.Contains(raw, ";") {
			return nil, false
		}
		parameters = append(parameters, parameter{plain, raw})
	}
	slices.SortStableFunc(parameters, func(x, y parameter) int { return strings.Compare(x.name, y.name) })
	return parameters, true
}

// A ReplayScope is the digest of the request headers that must be the same for an answer
// to be replayed. The zero ReplayScope stands for a rule that binds answers to none.
type ReplayScope [sha256.Size]byte

// ReplayScope returns the digest of the rule's replay_scope_headers. It is bound to the
// operation's ID, so that equal credentials can't be recognised across records. Of a
// verified token only the subject counts, which is part of the ID: a token that was
// renewed between two tries is another one of the same caller.
func (r *Rule) ReplayScope(id ID, header Header, subject *Subject) ReplayScope {
	if len(r.ReplayScopeHeaders) == 0 {
		return ReplayScope{}
	}
	b := make([]byte, 0, 512)
	b = appendPart(b, "idemproxy replay scope 1")
	b = appendPart(b, string(id))
	for _, name := range r.ReplayScopeHeaders {
		if subject != nil && strings.EqualFold(name, "Authorization") {
			continue
		}
		b = appendHeader(b, name, header(name))
	}
	return sha256.Sum256(b)
}
