package dedup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"idemproxy/internal/dedup"
)

// FuzzFingerprintJSON: two bodies share a fingerprint if and only if they are the same by
// the definition below. The second is also compared as the first one written otherwise,
// and as the first one with one value changed.
func FuzzFingerprintJSON(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1,"b":[true,null,"x"]}`, ` {"b":[ true,null,"\u0078"],"a":1}`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`},
		{`["\ud800"]`, `["\ufffd"]`},
		{`["\ud83d\ude00"]`, `["😀"]`},
		{"[\"\xff\"]", "[\"\xfe\"]"},
		{`{"a":{"b":{},"c":[]}}`, `{"a":{"c":[],"b":{}}}`},
		{`[1.0]`, `[1]`},
		{`{"t":1,"a":[{"t":2}]}`, `{"a":[{"t":2}]}`},
		{"\ufeff{}", "{}"},
		{`{"":0}`, `{"\u0000":0}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		valueA, plainA := slowJSON(a)
		valueB, plainB := slowJSON(b)
		want := a == b || plainA && plainB && reflect.DeepEqual(valueA, valueB)
		if got := byValue(a) == byValue(b); got != want {
			t.Errorf("%q and %q: same %v, want %v", a, b, got, want)
		}
		if plainA != (byValue(a) != exactly(a)) {
			t.Errorf("%q is compared by value: %v", a, !plainA)
		}
		if !plainA {
			return
		}
		if other := rewritten(valueA); byValue(a) != byValue(other) {
			t.Errorf("%q and %q differ", a, other)
		}
		if other := rewritten(changed(valueA)); byValue(a) == byValue(other) {
			t.Errorf("%q and %q are the same", a, other)
		}
		if object, ok := valueA.(map[string]any); ok {
			object["t"] = "x"
			with := rewritten(object)
			delete(object, "t")
			if without := rewritten(object); byValue(with, "/t") != byValue(without, "/t") {
				t.Errorf("%q and %q differ although /t is left out", with, without)
			}
		}
	})
}

var pairs, halves = regexp.MustCompile(`(?i)\\ud[89ab]..\\ud[c-f]..`), regexp.MustCompile(`(?i)\\ud[89a-f]`)

// slowJSON reads a JSON text with encoding/json. Not plain is one that readers understand
// differently, or that is too deep.
func slowJSON(text string) (value any, plain bool) {
	escapes := pairs.ReplaceAllString(strings.ReplaceAll(text, `\\`, "  "), "")
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) || halves.MatchString(escapes) || !slowPlain(text) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return value, d.Decode(&value) == nil
}

// slowPlain looks for one name twice in an object, and for more than 200 levels.
func slowPlain(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	type level struct {
		names  map[string]bool // nil in an array
		isName bool
	}
	levels := []*level{{}}
	for {
		token, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		top := levels[len(levels)-1]
		if token == json.Delim('}') || token == json.Delim(']') {
			levels = levels[:len(levels)-1]
			continue
		}
		if top.names != nil && top.isName {
			if top.names[token.(string)] {
				return false
			}
			top.names[token.(string)], top.isName = true, false
			continue
		}
		top.isName = top.names != nil
		switch token {
		case json.Delim('{'):
			levels = append(levels, &level{map[string]bool{}, true})
		case json.Delim('['):
			levels = append(levels, &level{})
		}
		if len(levels) > 201 {
			return false
		}
	}
}

// rewritten writes a value with its members the other way round, white space, and escapes
// where none are needed.
func rewritten(value any) string {
	switch v := value.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		slices.Reverse(names)
		var members []string
		for _, n := range names {
			members = append(members, rewritten(n)+" :\n"+rewritten(v[n]))
		}
		return "{\t" + strings.Join(members, " ,\r\n") + "} "
	case []any:
		var elements []string
		for _, e := range v {
			elements = append(elements, rewritten(e))
		}
		return "[ " + strings.Join(elements, " , ") + "\n]"
	case string:
		var b strings.Builder
		for _, r := range v {
			if r > 0xFFFF {
				b.WriteRune(r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		return `"` + b.String() + `"`
	default:
		text, _ := json.Marshal(v)
		return string(text)
	}
}

// changed is a value with one difference.
func changed(value any) any {
	switch v := value.(type) {
	case map[string]any:
		other := maps.Clone(v)
		for name := range v {
			other[name] = changed(v[name])
			return other
		}
		return map[string]any{"x": nil}
	case []any:
		if len(v) == 0 {
			return []any{nil}
		}
		return append(slices.Clone(v[:len(v)-1]), changed(v[len(v)-1]))
	case string:
		return v + "x"
	case json.Number:
		return json.Number(strings.Replace("1"+v.String(), "1-", "-1", 1))
	case nil:
		return true
	default:
		return nil
	}
}

// FuzzFingerprintForm: a form that we compare by its fields is one that mime/multipart
// reads too, with the same fields whatever the boundary; and two of the same fingerprint
// have the same fields there.
func FuzzFingerprintForm(f *testing.F) {
	_, body := form(f, "B", field{"a", "", "", "1"}, field{"f", "x", "text/plain", "\r\n--C"}, field{"a", "", "", "2"})
	f.Add(body, strings.ReplaceAll(body, "a", "b"))
	f.Add("--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--B--", "--B--\r\n")
	f.Add("--B\r\nContent-Disposition: form-data; name=a; filename*=utf-8''x\r\n\r\n1\r\n--B--\r\n", "--B\r\nContent-Disposition: form-data; name=a; filename=x\r\n\r\n1\r\n--B--\r\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		const contentType = "multipart/form-data; boundary=B"
		same := byFields(contentType, a) == byFields(contentType, b)
		if byFields(contentType, a) == exactly(a) {
			if same != (a == b) {
				t.Errorf("%q is compared byte by byte, and with %q: same %v", a, b, same)
			}
			return
		}
		fieldsA, err := slowForm(a)
		if err != nil {
			t.Fatalf("%q is compared by its fields, and mime/multipart says: %v", a, err)
		}
		if !same {
			return
		}
		if fieldsB, err := slowForm(b); err != nil || !reflect.DeepEqual(fieldsA, fieldsB) {
			t.Errorf("%q and %q are the same, and mime/multipart reads %q and %q, %v", a, b, fieldsA, fieldsB, err)
		}
	})
}

// slowForm has, for each name, its parts as mime/multipart reads them.
func slowForm(body string) (map[string][]string, error) {
	fields := map[string][]string{}
	r := multipart.NewReader(strings.NewReader(body), "B")
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return fields, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return nil, err
		}
		_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil {
			return nil, err
		}
		name := params["name"]
		fields[name] = append(fields[name], fmt.Sprintf("%q %q %q", params["filename"], p.Header["Content-Type"], content))
	}
}

// FuzzDerivedKey: whatever a request holds, it gives one key, or a rejection that doesn't
// repeat it; and the key of a JSON pointer is what encoding/json finds there.
func FuzzDerivedKey(f *testing.F) {
	for _, seed := range []string{
		`{"event":{"id":"abc"}}`, `{"event":{"id":12}}`, `{"event":{"id":""}}`, `{"event":{"id":"a","id":"b"}}`, `{"event":[1]}`,
		"id=1&a=2", "id=%zz", "id=1;a", "a&id", `{"event":{"id":"\ud800"}}`, `{"event":{"id":[]}}`, `{"event":{"id":-1e5}} `,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, source := range []dedup.KeySource{byHeader, byJSON, byQuery, byForm, byWindow} {
			req := posted("/x?"+text, text, "Content-Type: "+urlencoded, "X-Event: "+text)
			r := deriving(t, source)
			op, rejection := r.Operation(dedup.Scope{}, "", req)
			if (op.ID == "") != (rejection != nil) || rejection != nil && rejection.Reason != dedup.ReasonMissingKey && rejection.Reason != dedup.ReasonInvalidKey {
				t.Errorf("%+v of %q: %v and %v", source, text, op.ID, rejection)
			}
			if again, _ := r.Operation(dedup.Scope{}, "", req); again != op {
				t.Errorf("%+v of %q: %v, and then %v", source, text, op, again)
			}
		}
		value, plain := slowJSON(text)
		if !plain {
			return
		}
		event, _ := value.(map[string]any)
		inner, _ := event["event"].(map[string]any)
		var key string
		switch id := inner["id"].(type) {
		case string:
			key = id
		case json.Number:
			key = id.String()
		}
		var want dedup.Reason
		switch {
		case key == "":
			want = dedup.ReasonMissingKey
		case len(key) > 8:
			want = dedup.ReasonInvalidKey
		}
		op, rejection := deriving(t, byJSON).Operation(dedup.Scope{}, "", posted("/x", text))
		wantRejection(t, rejection, want, "")
		if want != "" {
			return
		}
		bare, err := json.Marshal(map[string]any{"event": map[string]any{"id": inner["id"]}})
		if err != nil || !bytes.Contains(bare, []byte("id")) {
			t.Fatal(err)
		}
		if alone, _ := deriving(t, byJSON).Operation(dedup.Scope{}, "", posted("/x", string(bare))); alone.ID != op.ID {
			t.Errorf("the keys of %q and %q differ", text, bare)
		}
	})
}
