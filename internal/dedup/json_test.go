package dedup_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// byValue is the fingerprint of a JSON body.
func byValue(body string, ignore ...string) dedup.Fingerprint {
	f := dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{dedup.PartBody}, Body: dedup.BodyJSON, Ignore: ignore}
	return f.Of(dedup.Request{Method: "POST", Target: "/x", Header: headers(), Body: []byte(body)})
}

// exactly is the fingerprint of the same bytes, compared as such.
func exactly(body string) dedup.Fingerprint {
	f := dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{dedup.PartBody}, Body: dedup.BodyExact}
	return f.Of(dedup.Request{Method: "POST", Target: "/x", Header: headers(), Body: []byte(body)})
}

func TestFingerprintOfJSON(t *testing.T) {
	nested := func(n int, inside string) string {
		return strings.Repeat(`{"a":[`, n/2) + inside + strings.Repeat(`]}`, n/2)
	}
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"white space":                     {`{"a":1,"b":[1,2]}`, " {\t\"a\" : 1 ,\r\n\"b\" : [ 1 , 2 ] } \n", true},
		"order of members":                {`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		"order of members within":         {`[{"x":{"a":1,"b":2,"c":3},"y":[]}]`, `[{"y":[],"x":{"c":3,"a":1,"b":2}}]`, true},
		"order of elements":               {`[1,2]`, `[2,1]`, false},
		"one more element":                {`[1]`, `[1,1]`, false},
		"null or nothing":                 {`{"a":null}`, `{}`, false},
		"null or absent element":          {`[null]`, `[]`, false},
		"values swapped":                  {`{"a":1,"b":2}`, `{"a":2,"b":1}`, false},
		"name and value swapped":          {`{"a":"b"}`, `{"b":"a"}`, false},
		"into another object":             {`{"a":{"b":1},"c":{}}`, `{"a":{},"c":{"b":1}}`, false},
		"array or object":                 {`[]`, `{}`, false},
		"nesting":                         {`[[1],2]`, `[[1,2]]`, false},
		"string or number":                {`{"a":"1"}`, `{"a":1}`, false},
		"string or word":                  {`["true"]`, `[true]`, false},
		"true or false":                   {`[true]`, `[false]`, false},
		"big integers":                    {`{"amount":9007199254740993}`, `{"amount":9007199254740992}`, false},
		"very big integers":               {`[100000000000000000000000000000000000001]`, `[100000000000000000000000000000000000002]`, false},
		"spelling of a number":            {`[1]`, `[1.0]`, false},
		"exponent":                        {`[10]`, `[1e1]`, false},
		"minus zero":                      {`[-0]`, `[0]`, false},
		"digits shifted":                  {`[12,3]`, `[1,23]`, false},
		"a number of many digits":         {`[` + strings.Repeat("1", 300) + `]`, `[ ` + strings.Repeat("1", 300) + ` ]`, true},
		"escapes":                         {`{"a\/b\u0041\n":"\u00e9\ud83d\ude00\"\\\b\f\r\t"}`, "{\"a/bA\\u000a\":\"é😀\\u0022\\u005C\\u0008\\u000C\\u000d\\u0009\"}", true},
		"escaped names are sorted":        {`{"\u0062":1,"a":2}`, `{"a":2,"b":1}`, true},
		"text shifted":                    {`["a","b"]`, `["a\",\"b"]`, false},
		"letters by case":                 {`{"a":"x"}`, `{"A":"x"}`, false},
		"composed or not":                 {`["é"]`, "[\"e\u0301\"]", false},
		"zero byte":                       {`["\u0000"]`, `[""]`, false},
		"a name like a length":            {`{"` + strings.Repeat("n", 125) + `":1}`, `{}`, false},
		"empty name":                      {`{"":1,"a":2}`, `{"a":2,"":1}`, true},
		"a scalar":                        {`1`, " 1\n", true},
		"halves of pairs":                 {`["\ud800"]`, `["\ud801"]`, false},
		"half a pair and what replaces":   {`["\ud800"]`, `["\ufffd"]`, false},
		"half a pair, white space":        {`["\ud800"]`, `["\ud800" ]`, false},
		"a half that comes second":        {`["\udc00"]`, `["\ufffd"]`, false},
		"a pair the wrong way round":      {`["\ude00\ud83d"]`, `["\ud83d\ude00"]`, false},
		"broken bytes":                    {"[\"\xff\"]", "[\"\xfe\"]", false},
		"broken bytes and what replaces":  {"[\"\xff\"]", `["\ufffd"]`, false},
		"half a pair as bytes":            {"[\"\xed\xa0\x80\"]", `["\ud800"]`, false},
		"duplicate names":                 {`{"a":1,"a":2}`, `{"a":2,"a":1}`, false},
		"duplicate or the last":           {`{"a":1,"a":2}`, `{"a":2}`, false},
		"duplicate or the first":          {`{"a":1,"a":2}`, `{"a":1}`, false},
		"duplicate, the same":             {`{"a":1,"a":1}`, `{"a":1}`, false},
		"duplicate, escaped":              {`{"a":1,"\u0061":2}`, `{"\u0061":2,"a":1}`, false},
		"duplicate, deep":                 {`[{"b":{"a":1,"a":2},"c":1}]`, `[{"c":1,"b":{"a":1,"a":2}}]`, false},
		"duplicate, white space":          {`{"a":1,"a":2}`, `{"a":1, "a":2}`, false},
		"one name in two objects":         {`{"a":{"x":1},"b":{"x":1}}`, `{"b":{"x":1},"a":{"x":1}}`, true},
		"as deep as can be":               {nested(200, "1"), nested(200, " 1"), true},
		"too deep":                        {nested(202, "1"), nested(202, " 1"), false},
		"too deep, the same":              {nested(202, "1"), nested(202, "1"), true},
		"far too deep":                    {strings.Repeat("[", 1<<20), strings.Repeat("[", 1<<20) + " ", false},
		"a byte order mark":               {"\ufeff{}", "{}", false},
		"nothing":                         {"", " ", false},
		"no JSON":                         {"a=1&b=2", "b=2&a=1", false},
		"two values":                      {`{} {}`, `{}{}`, false},
		"trailing comma":                  {`{"a":1,}`, `{"a":1}`, false},
		"trailing comma, white space":     {`{"a":1,}`, `{"a":1, }`, false},
		"trailing comma in an array":      {`[1,]`, `[1, ]`, false},
		"a comment":                       {`{}//`, `{} //`, false},
		"a leading zero":                  {`[01]`, `[01 ]`, false},
		"a plus":                          {`[+1]`, `[+1 ]`, false},
		"an open string":                  {`["a`, `["a `, false},
		"a bare tab":                      {"[\"\t\"]", "[\"\t\" ]", false},
		"a bare tab after an escape":      {"[\"\\n\t\"]", "[\"\\n\t\" ]", false},
		"an escape that is none":          {`["\x"]`, `["\x" ]`, false},
		"a short escape":                  {`["\u12"]`, `["\u12" ]`, false},
		"an escape with a sign":           {`["\u+123"]`, `["\u+123" ]`, false},
		"a name that is no string":        {`{1:2}`, `{1: 2}`, false},
		"no colon":                        {`{"a" 1}`, `{"a"  1}`, false},
		"no comma":                        {`[1 2]`, `[1  2]`, false},
		"a word too long":                 {`[truex]`, `[truex ]`, false},
		"NaN":                             {`[NaN]`, `[NaN ]`, false},
		"a zero byte after it":            {"{}\x00", "{} \x00", false},
		"no JSON and its canonical form":  {"{\"\x01a0\x011}", `{"a":1}`, false},
		"an exponent without digits":      {`[1e]`, `[1e ]`, false},
		"a fraction without digits":       {`[1.]`, `[1. ]`, false},
		"numbers in all their spellings":  {`[-0.5e+10,1E-2,0,0.0,123.456e7]`, "[\n-0.5e+10, 1E-2, 0, 0.0, 123.456e7]", true},
		"a half pair before another name": {`{"\ud83d":1,"\ud83dx":2}`, `{"\ud83dx":2,"\ud83d":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := byValue(tc.a) == byValue(tc.b); got != tc.same {
				t.Errorf("%.200q and %.200q: same %v, want %v", tc.a, tc.b, got, tc.same)
			}
		})
	}
}

// TestFingerprintOfJSONIsGolden keeps the canonical form; see TestFingerprintIsGolden. The
// value was computed by a program of its own in another language.
func TestFingerprintOfJSONIsGolden(t *testing.T) {
	got := byValue(`{"b": [1, "x\n", null, true, false, {}], "a": {"y": -1.5e3, "x": "é"}, "t": 0}`, "/t")
	if got := hex.EncodeToString(got[:]); got != "bcb6693838455b4fd16c287745033269ac1d5588238df58126beb73d21e13ad1" {
		t.Errorf("fingerprint %s: every live key would be a reused one after an upgrade", got)
	}
}

// TestFingerprintFallsBackToBytes: what is no JSON is compared as body: exact does.
func TestFingerprintFallsBackToBytes(t *testing.T) {
	for body, falls := range map[string]bool{
		"": true, "{": true, "a=1": true, `{"a":1,"a":2}`: true, "\xff": true, `["\ud800"]`: true, strings.Repeat("[", 201) + strings.Repeat("]", 201): true,
		"{}": false, "1": false, `""`: false,
	} {
		if got := byValue(body) == exactly(body); got != falls {
			t.Errorf("%q is compared byte by byte: %v, want %v", body, got, falls)
		}
	}
}

func TestFingerprintIgnores(t *testing.T) {
	for name, tc := range map[string]struct {
		ignore []string
		a, b   string
		same   bool
	}{
		"a member":                  {[]string{"/t"}, `{"a":1,"t":1}`, `{"t":2,"a":1}`, true},
		"a member or none":          {[]string{"/t"}, `{"a":1,"t":1}`, `{"a":1}`, true},
		"the only member":           {[]string{"/t"}, `{"t":1}`, `{}`, true},
		"beside the member":         {[]string{"/t"}, `{"a":1,"t":1}`, `{"a":2,"t":1}`, false},
		"the same name deeper":      {[]string{"/t"}, `{"a":{"t":1}}`, `{"a":{"t":2}}`, false},
		"a deep member":             {[]string{"/a/b/t"}, `{"a":{"b":{"t":1,"u":1}}}`, `{"a":{"b":{"u":1}}}`, true},
		"an element's member":       {[]string{"/items/0/note"}, `{"items":[{"note":1},{"note":2}]}`, `{"items":[{},{"note":2}]}`, true},
		"another element's":         {[]string{"/items/0/note"}, `{"items":[{},{"note":2}]}`, `{"items":[{},{"note":3}]}`, false},
		"an element":                {[]string{"/0"}, `[1,2]`, `[3,2]`, true},
		"an element or none":        {[]string{"/1"}, `[1,2]`, `[1]`, true},
		"elements after it count":   {[]string{"/0"}, `[1,2]`, `[1,3]`, false},
		"an index with a zero":      {[]string{"/00"}, `[1]`, `[2]`, false},
		"after the last":            {[]string{"/-"}, `[1]`, `[2]`, false},
		"a number as a name":        {[]string{"/0"}, `{"0":1}`, `{"0":2}`, true},
		"the eleventh":              {[]string{"/10"}, `[0,1,2,3,4,5,6,7,8,9,10,11]`, `[0,1,2,3,4,5,6,7,8,9,-10,11]`, true},
		"slash and tilde":           {[]string{"/a~1b~0c"}, `{"a/b~c":1}`, `{"a/b~c":2}`, true},
		"a tilde and a one":         {[]string{"/~01"}, `{"~1":1,"/":1}`, `{"~1":2,"/":1}`, true},
		"an escaped name":           {[]string{"/é"}, `{"\u00e9":1}`, `{"é":2}`, true},
		"an empty name":             {[]string{"/"}, `{"":1}`, `{}`, true},
		"a missing target":          {[]string{"/x/y/z", "/a/b"}, `{"a":1}`, ` {"a":1}`, true},
		"a scalar on the way":       {[]string{"/a/b"}, `{"a":1}`, `{"a":2}`, false},
		"two":                       {[]string{"/t", "/u"}, `{"t":1,"u":2,"a":3}`, `{"a":3}`, true},
		"one within the other":      {[]string{"/t/x", "/t"}, `{"t":{"x":1,"y":2}}`, `{}`, true},
		"two in one object":         {[]string{"/a/t", "/a/u"}, `{"a":{"t":1,"u":2}}`, `{"a":{}}`, true},
		"the first of three":        {[]string{"/a"}, `{"a":1,"b":2,"c":3}`, `{"c":3,"b":2}`, true},
		"no JSON":                   {[]string{"/t"}, `{"t":1`, `{"t":2`, false},
		"a duplicate that's left":   {[]string{"/t"}, `{"t":1,"t":2}`, `{"t":1,"t":3}`, false},
		"half a pair that is left":  {[]string{"/t"}, `{"t":"\ud800"}`, `{}`, false},
		"a large value that's left": {[]string{"/t"}, `{"t":[` + strings.Repeat("1,", 10_000) + `1]}`, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := byValue(tc.a, tc.ignore...) == byValue(tc.b, tc.ignore...); got != tc.same {
				t.Errorf("%.200q and %.200q without %q: same %v, want %v", tc.a, tc.b, tc.ignore, got, tc.same)
			}
		})
	}
}

// BenchmarkFingerprintOfJSON measures bodies that are hard to read, at max_request_body's
// default of a mebibyte.
func BenchmarkFingerprintOfJSON(b *testing.B) {
	var objects, members strings.Builder
	for i := objects.Len(); objects.Len() < 1<<20; i++ {
		fmt.Fprintf(&objects, `,{"id":%d,"name":"n\u00e4me %d","tags":["b","a"],"amount":12.50,"done":false}`, i, i)
	}
	for i := 0; members.Len() < 1<<20; i++ {
		fmt.Fprintf(&members, `,"%x":%d`, uint32(i)*2654435761, i%10)
	}
	for name, body := range map[string]string{
		"objects":  "[" + objects.String()[1:] + "]",
		"members":  "{" + members.String()[1:] + "}",
		"numbers":  "[" + strings.Repeat("1,", 1<<19-1) + "1]",
		"deep":     strings.Repeat(`{"b":`, 199) + "[" + strings.Repeat("1,", 1<<19-2000) + "1]" + strings.Repeat(`,"a":1}`, 199),
		"exact":    "x" + strings.Repeat("1,", 1<<19-1),
		"oneSmall": `{"amount":1999,"currency":"eur","customer":"cus_123"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				byValue(body, "/timestamp")
			}
		})
	}
}
