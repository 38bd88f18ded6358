package dedup_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// allBytes is every byte value once.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// TestFingerprintIsGolden keeps the recipe: another fingerprint for the same request turns
// every live key into a reused one at an upgrade. Whoever changes the recipe on purpose
// changes dedup.Recipe with it. The values were computed by a program of its own in
// another language.
func TestFingerprintIsGolden(t *testing.T) {
	if dedup.Recipe != 1 {
		t.Fatal("a new recipe needs new golden values, and the old ones need a way to be compared")
	}
	with := dedup.DefaultRule().Fingerprint
	with.Headers = []string{"X-Account", "Accept"}
	nothing := dedup.FingerprintRule{Enabled: true, Headers: []string{"X"}}
	for _, tc := range []struct {
		rule dedup.FingerprintRule
		req  dedup.Request
		want string
	}{
		{
			dedup.DefaultRule().Fingerprint,
			dedup.Request{Method: "POST", Target: "/payments"},
			"397921282dcc72e19e3e1eb89f29a8a8ebdd538dfad0137f031a18e9c3d5fce2",
		},
		{
			dedup.DefaultRule().Fingerprint,
			dedup.Request{Method: "POST", Target: "/payments?b=2&a=1", Body: []byte(`{"amount":100}`)},
			"7fd4acb9ddd9ddf53819f3704c477d6ad10cf5a3e60876ee1af44efddbc38a2d",
		},
		{
			with,
			dedup.Request{Method: "PATCH", Target: "/a%2Fb?b=%zz&a=1", Body: allBytes(), Header: headers("X-Account: a", "X-Account: b")},
			"03a679836f97ca2d73f6e1e2404002bc4f45c06d280f6068fea9dd9e588bec9e",
		},
		{
			dedup.DefaultRule().Fingerprint,
			dedup.Request{Method: "DELETE", Target: "/x?"},
			"e9519c5ce84a10b5a9885908bd5826707381a723fb5f3ef43f889dbd79279912",
		},
		{
			nothing,
			dedup.Request{Method: "POST", Target: "/x", Header: headers("x: 1"), Body: []byte("b")},
			"e06ebf6aacb36420c091a6f39e63d77f2b4c473147630d3fef42e80b46db6b64",
		},
	} {
		got := tc.rule.Of(tc.req)
		if hex.EncodeToString(got[:]) != tc.want {
			t.Errorf("fingerprint of %s %s is %x, want %s", tc.req.Method, tc.req.Target, got, tc.want)
		}
	}
}

// TestFingerprintOfQuery compares requests that differ in their query only.
func TestFingerprintOfQuery(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"order of names":                    {"?a=1&b=2", "?b=2&a=1", true},
		"order of values":                   {"?t=a&t=b", "?t=b&t=a", false},
		"order of values among others":      {"?t=a&x=1&t=b", "?x=1&t=a&t=b", true},
		"order of values swapped":           {"?t=a&x=1&t=b", "?x=1&t=b&t=a", false},
		"sorted by the whole name":          {"?a=1&ab=2&b=3", "?b=3&ab=2&a=1", true},
		"name and = are not sorted as text": {"?a-=1&a=2", "?a=2&a-=1", true},
		"one parameter":                     {"?a=1", "?a=1", true},
		"another value":                     {"?a=1", "?a=2", false},
		"another name":                      {"?a=1", "?b=1", false},
		"case of a name":                    {"?a=1&b=2", "?A=1&b=2", false},
		"value and name swapped":            {"?a=b&c=d", "?b=a&c=d", false},
		"values swapped":                    {"?a=1&b=2", "?a=2&b=1", false},
		"shifted":                           {"?a=1&b=2", "?a=1%26b=2", false},
		"escaped name alone":                {"?%74=a", "?t=a", false},
		"escaped name sorts as it reads":    {"?%74=a&s=1&t=b", "?s=1&%74=a&t=b", true},
		"escaped name keeps its place":      {"?%74=a&t=b", "?t=b&%74=a", false},
		"escape in two cases":               {"?%7a=1&b=2", "?%7A=1&b=2", false},
		"plus as a name":                    {"?a+b=1&a%20b=2", "?a%20b=2&a+b=1", false},
		"no value and an empty one":         {"?a&b=1", "?a=&b=1", false},
		"no value, order of names":          {"?a&b", "?b&a", true},
		"no query and an empty one":         {"", "?", false},
		"an empty piece":                    {"?a=1", "?a=1&", false},
		"two empty pieces":                  {"?a=1&", "?a=1&&", false},
		"an empty piece is a name too":      {"?&a=1", "?a=1&", true},
		"only pieces":                       {"?&", "?", false},
		"empty name":                        {"?=1&a=2", "?a=2&=1", true},
		"empty names keep their order":      {"?=1&", "?&=1", false},
		"a second question mark":            {"?a=1?b=2", "?b=2?a=1", false},
		"a second question mark, in names":  {"?a?=1&b=2", "?b=2&a?=1", true},
		"semicolon":                         {"?a=1;b=2", "?b=2;a=1", false},
		"semicolon, order of names":         {"?a=1;x&b=2", "?b=2&a=1;x", false},
		"semicolon, the same":               {"?b=2&a=1;x", "?b=2&a=1;x", true},
		"semicolon that is escaped":         {"?a=1%3Bx&b=2", "?b=2&a=1%3Bx", true},
		"bad escape in a value":             {"?a=%zz&b=2", "?b=2&a=%zz", false},
		"bad escape in a name":              {"?%=1&b=2", "?b=2&%=1", false},
		"bad escape, the same":              {"?b=2&a=%zz", "?b=2&a=%zz", true},
		"cut escape":                        {"?b=2&a=%4", "?a=%4&b=2", false},
		"bad escape alone":                  {"?a=%zz", "?a=%zy", false},
		"raw and sorted":                    {"?a=1&b=%zz", "?a=1&b=2", false},
		"duplicates count":                  {"?a=1&a=1", "?a=1", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := dedup.DefaultRule().Fingerprint
			a, b := f.Of(dedup.Request{Method: "POST", Target: "/x" + tc.a}), f.Of(dedup.Request{Method: "POST", Target: "/x" + tc.b})
			if (a == b) != tc.same {
				t.Errorf("%q and %q: same %v, want %v", tc.a, tc.b, a == b, tc.same)
			}
			if slow := sameQuery("/x"+tc.a, "/x"+tc.b); slow != tc.same {
				t.Errorf("%q and %q: the definition below says %v", tc.a, tc.b, slow)
			}
		})
	}
}

// TestFingerprintOfALongQuery: a sort that is stable for a few parameters only is not.
func TestFingerprintOfALongQuery(t *testing.T) {
	var mixed, sorted, swapped []string
	for i := range 100 {
		mixed = append(mixed, fmt.Sprintf("t=%d", i), fmt.Sprintf("a=%d", i), fmt.Sprintf("%%74=%d", i))
		sorted = append(sorted, fmt.Sprintf("t=%d", i), fmt.Sprintf("%%74=%d", i))
		swapped = append(swapped, fmt.Sprintf("%%74=%d", i), fmt.Sprintf("t=%d", i))
	}
	for i := range 100 {
		sorted, swapped = append(sorted, fmt.Sprintf("a=%d", i)), append(swapped, fmt.Sprintf("a=%d", i))
	}
	of := func(pieces []string) dedup.Fingerprint {
		return new(dedup.DefaultRule().Fingerprint).Of(dedup.Request{Method: "POST", Target: "/x?" + strings.Join(pieces, "&")})
	}
	if of(mixed) != of(sorted) {
		t.Error("the order of names counts")
	}
	if of(mixed) == of(swapped) {
		t.Error("the order of the values of a name does not count")
	}
}

// TestFingerprintIsUnambiguous lists requests that a careless join takes for one another.
func TestFingerprintIsUnambiguous(t *testing.T) {
	f := dedup.DefaultRule().Fingerprint
	f.Headers = []string{"X-A", "X-B"}
	requests := []dedup.Request{
		{Method: "POST", Target: "/x?b=1"},
		{Method: "POST", Target: "/xb=1"},
		{Method: "POST", Target: "/x?", Body: []byte("b=1")},
		{Method: "POST", Target: "/x", Body: []byte("?b=1")},
		{Method: "POST", Target: "/x", Body: []byte("b=1")},
		{Method: "POST", Target: "/x"},
		{Method: "POST", Target: "/x/"},
		{Method: "POST", Target: "/"},
		{Method: "POST/", Target: "x"},
		{Method: "PUT", Target: "/x"},
		{Method: "post", Target: "/x"},
		{Method: "POST", Target: "/x?a=1&b=2"},
		{Method: "POST", Target: "/x?a=1", Body: []byte("&b=2")},
		{Method: "POST", Target: "//x"},
		{Method: "POST", Target: "/%78"},
		{Method: "POST", Target: "/X"},
		{Method: "POST", Target: "/x", Header: headers("X-A: 1")},
		{Method: "POST", Target: "/x", Header: headers("X-B: 1")},
		{Method: "POST", Target: "/x", Header: headers("X-A: ")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 1", "X-A: 2")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 2", "X-A: 1")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 1, 2")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 1", "X-B: 2")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 12")},
		{Method: "POST", Target: "/x", Header: headers("X-A: 1"), Body: []byte("2")},
		{Method: "POST", Target: "/x", Body: []byte{0}},
		{Method: "POST", Target: "/x", Body: []byte{0, 0}},
		{Method: "POST", Target: "/x", Body: []byte(strings.Repeat("a", 1<<20))},
		{Method: "POST", Target: "/x", Body: []byte(strings.Repeat("a", 1<<20) + "b")},
		{Method: "POST", Target: "/x", Body: []byte(`{"a":1}`)},
		{Method: "POST", Target: "/x", Body: []byte(`{"a": 1}`)},
	}
	seen := map[dedup.Fingerprint]int{}
	for i, req := range requests {
		if req.Header == nil {
			req.Header = headers()
		}
		got := f.Of(req)
		if first, ok := seen[got]; ok {
			t.Errorf("requests %d and %d share a fingerprint", first, i)
		}
		if got == (dedup.Fingerprint{}) {
			t.Errorf("request %d has none", i)
		}
		seen[got] = i
	}
}

// TestFingerprintParts: a part that is not named doesn't count, one that is does.
func TestFingerprintParts(t *testing.T) {
	base := dedup.Request{Method: "POST", Target: "/x?a=1", Body: []byte("b"), Header: headers("X-A: 1", "User-Agent: go", "Date: now", "X-Forwarded-For: ::1", "Traceparent: 00")}
	others := map[dedup.Part]dedup.Request{
		dedup.PartMethod: {Method: "PUT", Target: base.Target, Body: base.Body, Header: base.Header},
		dedup.PartPath:   {Method: base.Method, Target: "/y?a=1", Body: base.Body, Header: base.Header},
		dedup.PartQuery:  {Method: base.Method, Target: "/x?a=2", Body: base.Body, Header: base.Header},
		dedup.PartBody:   {Method: base.Method, Target: base.Target, Body: []byte("c"), Header: base.Header},
	}
	noHeader := base
	noHeader.Header = headers()
	for part := range others {
		f := dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{part}, Body: dedup.BodyExact}
		for changed, req := range others {
			if differs := f.Of(req) != f.Of(base); differs != (changed == part) {
				t.Errorf("parts [%s]: a request with another %s differs: %v", part, changed, differs)
			}
		}
		if f.Of(noHeader) != f.Of(base) {
			t.Errorf("parts [%s]: headers count", part)
		}
		f.Headers = []string{"x-a"}
		if f.Of(noHeader) == f.Of(base) {
			t.Errorf("parts [%s], headers [x-a]: it doesn't count", part)
		}
	}
	f := dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{dedup.PartQuery}}
	if f.Of(dedup.Request{Target: "/x"}) == f.Of(dedup.Request{Target: "/x?"}) {
		t.Error("no query and an empty one are the same")
	}
	if reversed := (dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{"body", "query", "path", "method"}}); reversed.Of(base) != new(dedup.DefaultRule().Fingerprint).Of(base) {
		t.Error("the order of parts in the configuration counts")
	}
}

func TestFingerprintOff(t *testing.T) {
	off := dedup.FingerprintRule{Parts: []dedup.Part{dedup.PartBody}, Headers: []string{"X-A"}}
	none := off.Of(dedup.Request{Method: "POST", Target: "/x", Body: []byte("b"), Header: headers("X-A: 1")})
	if none != (dedup.Fingerprint{}) {
		t.Errorf("enabled: false makes %x", none)
	}
	some := new(dedup.DefaultRule().Fingerprint).Of(dedup.Request{Method: "POST", Target: "/x"})
	for _, tc := range []struct {
		recorded, asked dedup.Fingerprint
		want            bool
	}{{some, some, true}, {some, dedup.Fingerprint{1}, false}, {none, some, true}, {some, none, true}, {none, none, true}} {
		if got := (&dedup.Record{Fingerprint: tc.recorded}).Matches(tc.asked); got != tc.want {
			t.Errorf("a record of %x matches %x: %v, want %v", tc.recorded[:4], tc.asked[:4], got, tc.want)
		}
	}
}

func TestReplayScope(t *testing.T) {
	r := rule(t, func(r *dedup.Rule) { r.ReplayScopeHeaders = []string{"Authorization", "Cookie"} })
	golden := rule(t, nil).ReplayScope("id-1", headers("authorization: Bearer x"), nil)
	if got := hex.EncodeToString(golden[:]); got != "82445294a342f6cf4a15ba842fdddcf07b3951e3c9702d75f9f359807d6124a9" {
		t.Errorf("replay scope is %s: every live answer would be refused after an upgrade", got)
	}
	golden = r.ReplayScope("id-1", headers("Cookie: a=1", "Cookie: b=2"), nil)
	if got := hex.EncodeToString(golden[:]); got != "11a51854adc338e5e5cf23de39ff5283fb896f9cce888c0b42081347ee1b0ee9" {
		t.Errorf("replay scope is %s: every live answer would be refused after an upgrade", got)
	}
	seen := map[dedup.ReplayScope]string{}
	for _, lines := range []string{
		"", "Authorization: ", "Authorization: a", "Authorization: b", "Cookie: a", "Authorization: a|Cookie: a",
		"Authorization: a|Authorization: a", "Authorization: a|Authorization: b", "Authorization: b|Authorization: a", "Authorization: a, b",
		"Authorization: aCookie", "Authorization: |Cookie: a",
	} {
		var list []string
		if lines != "" {
			list = strings.Split(lines, "|")
		}
		got := r.ReplayScope("id-1", headers(list...), nil)
		if first, ok := seen[got]; ok {
			t.Errorf("%q and %q share a replay scope", first, lines)
		}
		seen[got] = lines
		if other := r.ReplayScope("id-2", headers(list...), nil); other == got {
			t.Errorf("%q can be recognised across IDs", lines)
		}
	}
	renewed := func(lines ...string) dedup.ReplayScope {
		return r.ReplayScope("id-1", headers(lines...), &dedup.Subject{Claim: "sub", Value: "a"})
	}
	if renewed("Authorization: Bearer x") != renewed("Authorization: Bearer y") {
		t.Error("a renewed token of the same caller is another replay scope")
	}
	if renewed("Cookie: a") == renewed("Cookie: b") {
		t.Error("beside a verified token other headers don't count")
	}
	off := rule(t, func(r *dedup.Rule) { r.ReplayScopeHeaders = nil })
	if got := off.ReplayScope("id-1", headers("Authorization: a"), nil); got != (dedup.ReplayScope{}) {
		t.Errorf("without headers the replay scope is %x", got)
	}
}
