package dedup_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// FuzzFingerprint: two requests share a fingerprint if and only if they are the same by
// the definition below. The second is also compared after turning the first one's query
// around, since two random requests are hardly ever the same.
func FuzzFingerprint(f *testing.F) {
	all := byte(0xff)
	f.Add(all, "POST", "/x?a=1&b=2", "body", "h", "POST", "/x?b=2&a=1", "body", "h", uint8(1))
	f.Add(all, "POST", "/x?t=a&t=b&u=%74", "", "", "POST", "/x?t=b&t=a", "", "", uint8(1))
	f.Add(all, "POST", "/x?%74=1&t=2&s", "", "", "POST", "/x?t=2&%74=1", "", "", uint8(2))
	f.Add(all, "POST", "/x?b=1", "", "", "POST", "/xb=1", "", "", uint8(0))
	f.Add(all, "POST", "/x?a=%zz&b", "", "", "POST", "/x?b&a=%zz", "", "", uint8(1))
	f.Add(all, "POST", "/x?a;b&c", "", "", "POST", "/x?c&a;b", "", "", uint8(1))
	f.Add(all, "POST", "/x?", "", "", "POST", "/x", "", "", uint8(0))
	f.Add(all, "POST", "/x?&a=1&", "", "", "POST", "/x?a=1&&", "", "", uint8(1))
	f.Add(byte(0x08), "POST", "/x", "a\x00", "", "PUT", "/y", "a", "\x00", uint8(0))
	f.Add(byte(0x14), "A", "?\x01q", "q", "m\nn", "B", "?q", "\x01q", "m", uint8(0))
	f.Add(all, "POST", "/x?a+b=1&a%20b=2", "", "", "POST", "/x?a%2bb=1&a b=2", "", "", uint8(1))
	f.Fuzz(func(t *testing.T, parts byte, m1, t1, b1, h1, m2, t2, b2, h2 string, turn uint8) {
		r := fuzzRule(parts)
		one := dedup.Request{Method: m1, Target: t1, Body: []byte(b1), Header: fuzzHeader(h1)}
		two := dedup.Request{Method: m2, Target: t2, Body: []byte(b2), Header: fuzzHeader(h2)}
		turned := one
		turned.Target = turnQuery(t1, int(turn))
		for _, other := range []dedup.Request{two, turned, one} {
			same := r.Of(one) == r.Of(other)
			if want := sameRequest(r, one, other); same != want {
				t.Errorf("parts %v, headers %v: %q %q %q and %q %q %q: same %v, want %v",
					r.Parts, r.Headers, one.Method, one.Target, one.Body, other.Method, other.Target, other.Body, same, want)
			}
		}
	})
}

func fuzzRule(parts byte) *dedup.FingerprintRule {
	r := &dedup.FingerprintRule{Enabled: true, Body: dedup.BodyExact}
	for i, p := range []dedup.Part{dedup.PartMethod, dedup.PartPath, dedup.PartQuery, dedup.PartBody} {
		if parts&(1<<i) != 0 {
			r.Parts = append(r.Parts, p)
		}
	}
	if parts&0x10 != 0 {
		r.Headers = []string{"X-A", "X-B"}
	}
	return r
}

// fuzzHeader has the lines of the first half as values of X-A, the others of X-B.
func fuzzHeader(text string) dedup.Header {
	a, b, _ := strings.Cut(text, "\f")
	values := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, "\n")
	}
	return func(name string) []string { return map[string][]string{"X-A": values(a), "X-B": values(b)}[name] }
}

// turnQuery moves the first n pieces of a query behind the others.
func turnQuery(target string, n int) string {
	path, query, found := strings.Cut(target, "?")
	if !found {
		return target
	}
	pieces := strings.Split(query, "&")
	n %= len(pieces)
	return path + "?" + strings.Join(slices.Concat(pieces[n:], pieces[:n]), "&")
}

// sameRequest is the definition: every part that the rule names is the same.
func sameRequest(r *dedup.FingerprintRule, a, b dedup.Request) bool {
	pathA, _, _ := strings.Cut(a.Target, "?")
	pathB, _, _ := strings.Cut(b.Target, "?")
	for part, same := range map[dedup.Part]bool{
		dedup.PartMethod: a.Method == b.Method,
		dedup.PartPath:   pathA == pathB,
		dedup.PartQuery:  sameQuery(a.Target, b.Target),
		dedup.PartBody:   bytes.Equal(a.Body, b.Body),
	} {
		if slices.Contains(r.Parts, part) && !same {
			return false
		}
	}
	for _, name := range r.Headers {
		if !slices.Equal(a.Header(name), b.Header(name)) {
			return false
		}
	}
	return true
}

// sameQuery is contract §3: for each name the same pieces in the same order, unless
// somebody might read the query otherwise than we do: then the same bytes.
func sameQuery(a, b string) bool {
	_, a, foundA := strings.Cut(a, "?")
	_, b, foundB := strings.Cut(b, "?")
	if foundA != foundB {
		return false
	}
	namesA, plainA := slowQuery(a)
	namesB, plainB := slowQuery(b)
	if !plainA || !plainB {
		return a == b
	}
	return maps.EqualFunc(namesA, namesB, slices.Equal)
}

// slowQuery gives the pieces of each decoded name. Not plain is a query with a semicolon
// or a broken escape.
func slowQuery(query string) (pieces map[string][]string, plain bool) {
	pieces = map[string][]string{}
	for _, piece := range strings.Split(query, "&") {
		name, value, _ := strings.Cut(piece, "=")
		decoded, ok := slowUnescape(name)
		if _, valueOK := slowUnescape(value); !ok || !valueOK || strings.Contains(piece, ";") {
			return nil, false
		}
		pieces[decoded] = append(pieces[decoded], piece)
	}
	return pieces, true
}

func slowUnescape(s string) (string, bool) {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			b.WriteByte(' ')
		case '%':
			if i+2 >= len(s) {
				return "", false
			}
			high, low := strings.IndexByte(digits, s[i+1]|0x20), strings.IndexByte(digits, s[i+2]|0x20)
			if high < 0 || low < 0 || s[i+1] < '0' || s[i+2] < '0' {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), true
}
