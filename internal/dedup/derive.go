package dedup

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// A DerivedKey is what stands for the key of a request whose caller sent none: a value
// that was found in it, and where. Unlike a Key it may hold any bytes.
type DerivedKey struct {
	kind, name string // of the source
	value      string
	// TTL is how long the key counts; 0 means the rule's TTL.
	TTL time.Duration
}

// Operation makes of a request what the Guard decides about. Without a key it takes the
// one that the rule's key_from finds. It returns a *Rejection when that finds none
// (missing_key), or one that is too long, or several in one place (invalid_key).
func (r *Rule) Operation(scope Scope, key Key, req Request) (Operation, *Rejection) {
	op := Operation{Fingerprint: r.Fingerprint.Of(req)}
	if key != "" {
		op.ID = scope.ID(key)
	} else {
		derived, rejection := r.derive(req, op.Fingerprint)
		if rejection != nil {
			return Operation{}, rejection
		}
		op.ID, op.TTL = scope.DerivedID(derived), derived.TTL
	}
	op.ReplayScope = r.ReplayScope(op.ID, req.Header, scope.subject)
	if r.MaxLiveKeysPerScope > 0 {
		op.Scope = scope.Name()
	}
	return op, nil
}

// derive asks the sources in turn.
func (r *Rule) derive(req Request, fingerprint Fingerprint) (DerivedKey, *Rejection) {
	tried := make([]string, 0, len(r.KeyFrom))
	for _, source := range r.KeyFrom {
		if source.Fingerprint != 0 {
			return DerivedKey{kind: "fingerprint", value: string(fingerprint[:]), TTL: source.Fingerprint}, nil
		}
		found := source.find(req)
		switch {
		case found.several:
			return DerivedKey{}, reject(ReasonInvalidKey, "This request takes its key from %s, and has several there, or one that can't be read.", found.place)
		case found.length > r.MaxKeyLength:
			return DerivedKey{}, reject(ReasonInvalidKey, "This request takes its key from %s, and what is there is longer than %d bytes.", found.place, r.MaxKeyLength)
		case found.length > 0:
			return DerivedKey{kind: found.kind, name: found.name, value: found.value}, nil
		}
		tried = append(tried, found.place)
	}
	return DerivedKey{}, reject(ReasonMissingKey, "This request has no idempotency key, in the header %s or in %s.", r.HeaderName[0], strings.Join(tried, ", "))
}

// A finding is what a request has in one place.
type finding struct {
	kind, name string
	place      string // for people
	value      string
	length     int  // of the key, in bytes; 0 if there is none
	several    bool // or one that can't be read
}

// find looks for a key. What is absent, empty, or of a type that names nothing is none.
func (s *KeySource) find(req Request) finding {
	switch {
	case s.Header != "":
		f := finding{kind: "header", name: strings.ToLower(s.Header), place: "the header " + s.Header}
		return f.with(req.Header(s.Header))
	case s.JSON != "":
		f := finding{kind: "json", name: s.JSON, place: s.JSON + " of a JSON body"}
		picked, ambiguous := jsonAt(req.Body, s.JSON)
		if f.several = ambiguous; picked != nil {
			// A string and a number of the same digits are two keys.
			f.value, f.length = string(picked), len(scalar(picked))
		}
		return f
	case s.Query != "":
		f := finding{kind: "query", name: s.Query, place: fmt.Sprintf("the query parameter %q", s.Query)}
		_, query, _ := strings.Cut(req.Target, "?")
		return f.in(query, s.Query)
	default:
		f := finding{kind: "form", name: s.Form, place: fmt.Sprintf("the form field %q", s.Form)}
		switch media, boundary := formType(req.Header); media {
		case typeURLEncoded:
			return f.in(string(req.Body), s.Form)
		case typeMultipart:
			return f.with(fieldsOf(req.Body, boundary, s.Form))
		default:
			return f
		}
	}
}

// with is the finding of these values.
func (f finding) with(values []string) finding {
	f.several = len(values) > 1
	if len(values) == 1 {
		f.value, f.length = values[0], len(values[0])
	}
	return f
}

// in is the finding of the values of a parameter of a query.
func (f finding) in(query, name string) finding {
	var values []string
	for piece := range strings.SplitSeq(query, "&") {
		rawName, rawValue, _ := strings.Cut(piece, "=")
		if plain, err := url.QueryUnescape(rawName); err != nil || plain != name {
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil || strings.Contains(rawValue, ";") {
			f.several = true
			return f
		}
		values = append(values, value)
	}
	return f.with(values)
}

// fieldsOf returns the values of a field of a multipart form; files are no fields.
func fieldsOf(body []byte, boundary, name string) (values []string) {
	parts, _ := multipartForm(body, boundary)
	for _, p := range parts {
		if p.name == name && !p.file {
			values = append(values, string(p.content))
		}
	}
	return values
}
