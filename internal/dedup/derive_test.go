package dedup_test

import (
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// deriving is a rule whose keys come from these places.
func deriving(t testing.TB, sources ...dedup.KeySource) *dedup.Rule {
	t.Helper()
	return rule(t, func(r *dedup.Rule) {
		r.MissingHeader, r.KeyFrom, r.MaxKeyLength = dedup.MissingDerive, sources, 8
	})
}

// posted is a request with these header lines.
func posted(target, body string, lines ...string) dedup.Request {
	return dedup.Request{Method: "POST", Target: target, Header: headers(lines...), Body: []byte(body)}
}

var (
	byHeader = dedup.KeySource{Header: "X-Event"}
	byJSON   = dedup.KeySource{JSON: "/event/id"}
	byQuery  = dedup.KeySource{Query: "id"}
	byForm   = dedup.KeySource{Form: "id"}
	byWindow = dedup.KeySource{Fingerprint: 10 * time.Second}
)

func TestDerive(t *testing.T) {
	multi := func(fields ...field) dedup.Request {
		contentType, body := form(t, "B", fields...)
		return posted("/x", body, "Content-Type: "+contentType)
	}
	encoded := func(body string) dedup.Request { return posted("/x", body, "Content-Type: "+urlencoded) }
	for name, tc := range map[string]struct {
		source dedup.KeySource
		req    dedup.Request
		want   dedup.Reason // "" for a key
	}{
		"header":                        {byHeader, posted("/x", "", "x-event: a b"), ""},
		"header with any bytes":         {byHeader, posted("/x", "", "x-event: \xff\"ä"), ""},
		"header at the bound":           {byHeader, posted("/x", "", "X-Event: 12345678"), ""},
		"header too long":               {byHeader, posted("/x", "", "X-Event: 123456789"), "invalid_key"},
		"header twice":                  {byHeader, posted("/x", "", "X-Event: a", "X-Event: a"), "invalid_key"},
		"header empty":                  {byHeader, posted("/x", "", "X-Event: "), "missing_key"},
		"header absent":                 {byHeader, posted("/x?id=1", `{"event":{"id":1}}`), "missing_key"},
		"JSON string":                   {byJSON, posted("/x", `{"event":{"id":"a b"}}`), ""},
		"JSON number":                   {byJSON, posted("/x", `{"event":{"id":-1.5e3}}`), ""},
		"JSON string at the bound":      {byJSON, posted("/x", `{"event":{"id":"\u00e9345678"}}`), ""},
		"JSON string too long":          {byJSON, posted("/x", `{"event":{"id":"\u00e93456789"}}`), "invalid_key"},
		"JSON number too long":          {byJSON, posted("/x", `{"event":{"id":123456789}}`), "invalid_key"},
		"JSON empty":                    {byJSON, posted("/x", `{"event":{"id":""}}`), "missing_key"},
		"JSON null":                     {byJSON, posted("/x", `{"event":{"id":null}}`), "missing_key"},
		"JSON word":                     {byJSON, posted("/x", `{"event":{"id":true}}`), "missing_key"},
		"JSON object":                   {byJSON, posted("/x", `{"event":{"id":{"a":1}}}`), "missing_key"},
		"JSON array":                    {byJSON, posted("/x", `{"event":{"id":["a"]}}`), "missing_key"},
		"JSON twice":                    {byJSON, posted("/x", `{"event":{"id":"a","id":"a"}}`), "invalid_key"},
		"JSON twice, once as an object": {byJSON, posted("/x", `{"event":{"id":"a","id":{}}}`), "invalid_key"},
		"JSON twice on the way":         {byJSON, posted("/x", `{"event":{"id":"a"},"event":{}}`), "invalid_key"},
		"JSON twice elsewhere":          {byJSON, posted("/x", `{"x":1,"x":1,"event":{"id":"a","y":1,"y":2}}`), ""},
		"JSON half a pair elsewhere":    {byJSON, posted("/x", `{"x":"\ud83d","event":{"id":"a"}}`), ""},
		"JSON in a large object":        {byJSON, posted("/x", `{"event":{"id":"a","x":[`+strings.Repeat("1,", 5000)+`1]}}`), ""},
		"JSON cut":                      {byJSON, posted("/x", `{"event":{"id":"a"}`), "missing_key"},
		"JSON scalar on the way":        {byJSON, posted("/x", `{"event":"id"}`), "missing_key"},
		"JSON in an array":              {dedup.KeySource{JSON: "/1/id"}, posted("/x", `[{"id":1},{"id":2}]`), ""},
		"JSON beyond an array":          {dedup.KeySource{JSON: "/2/id"}, posted("/x", `[{"id":1},{"id":2}]`), "missing_key"},
		"query":                         {byQuery, posted("/x?a=1&i%64=a%20b", ""), ""},
		"query twice":                   {byQuery, posted("/x?id=1&id=1", ""), "invalid_key"},
		"query twice, once escaped":     {byQuery, posted("/x?id=1&%69d=1", ""), "invalid_key"},
		"query twice, once empty":       {byQuery, posted("/x?id=1&id=", ""), "invalid_key"},
		"query empty":                   {byQuery, posted("/x?id=", ""), "missing_key"},
		"query without a value":         {byQuery, posted("/x?id", ""), "missing_key"},
		"query absent":                  {byQuery, posted("/x", "id=1", "Content-Type: "+urlencoded), "missing_key"},
		"query unreadable":              {byQuery, posted("/x?id=%zz", ""), "invalid_key"},
		"query with a semicolon":        {byQuery, posted("/x?id=1;a=2", ""), "invalid_key"},
		"query unreadable elsewhere":    {byQuery, posted("/x?a=%zz&id=1", ""), ""},
		"query too long":                {byQuery, posted("/x?id=123456789", ""), "invalid_key"},
		"form":                          {byForm, encoded("a=1&id=a%20b"), ""},
		"form twice":                    {byForm, encoded("id=1&id=2"), "invalid_key"},
		"form empty":                    {byForm, encoded("id=&a=1"), "missing_key"},
		"form of another type":          {byForm, posted("/x", "id=1", "Content-Type: text/plain"), "missing_key"},
		"form without a type":           {byForm, posted("/x?id=1", "id=1"), "missing_key"},
		"form of two types":             {byForm, posted("/x", "id=1", "Content-Type: "+urlencoded, "Content-Type: text/plain"), "missing_key"},
		"multipart":                     {byForm, multi(field{"a", "", "", "1"}, field{"id", "", "", "\r\n"}), ""},
		"multipart twice":               {byForm, multi(field{"id", "", "", "1"}, field{"id", "", "", "1"}), "invalid_key"},
		"multipart file":                {byForm, multi(field{"id", "f", "", "1"}), "missing_key"},
		"multipart file and field":      {byForm, multi(field{"id", "f", "", "1"}, field{"id", "", "", "1"}), ""},
		"multipart too long":            {byForm, multi(field{"id", "", "", "123456789"}), "invalid_key"},
		"multipart cut":                 {byForm, posted("/x", "--B\r\n", "Content-Type: multipart/form-data; boundary=B"), "missing_key"},
		"fingerprint":                   {byWindow, posted("/x", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			op, rejection := deriving(t, tc.source).Operation(dedup.Scope{}, "", tc.req)
			wantRejection(t, rejection, tc.want, "")
			if (op.ID == "") != (tc.want != "") {
				t.Errorf("ID %q", op.ID)
			}
			if rejection != nil && strings.Contains(rejection.Error(), "123456789") {
				t.Errorf("the rejection repeats the key: %v", rejection)
			}
		})
	}
}

// TestDerivedKeysAreTold: each is another operation.
func TestDerivedKeysAreTold(t *testing.T) {
	scope := dedup.Scope{}
	seen := map[dedup.ID]string{scope.ID("1"): "sent", scope.ID("id"): "sent", scope.ID("header"): "sent"}
	for name, tc := range map[string]struct {
		source dedup.KeySource
		req    dedup.Request
	}{
		"header":              {byHeader, posted("/x", "", "X-Event: 1")},
		"another header":      {dedup.KeySource{Header: "X-Event2"}, posted("/x", "", "X-Event2: 1")},
		"header in quotes":    {byHeader, posted("/x", "", `X-Event: "1"`)},
		"JSON string":         {byJSON, posted("/x", `{"event":{"id":"1"}}`)},
		"JSON number":         {byJSON, posted("/x", `{"event":{"id":1}}`)},
		"another JSON number": {byJSON, posted("/x", `{"event":{"id":1.0}}`)},
		"another pointer":     {dedup.KeySource{JSON: "/id"}, posted("/x", `{"id":1}`)},
		"half a pair":         {byJSON, posted("/x", `{"event":{"id":"\ud800"}}`)},
		"another half":        {byJSON, posted("/x", `{"event":{"id":"\ud801"}}`)},
		"what replaces it":    {byJSON, posted("/x", `{"event":{"id":"\ufffd"}}`)},
		"query":               {byQuery, posted("/x?id=1", "")},
		"form":                {byForm, posted("/x", "id=1", "Content-Type: "+urlencoded)},
		"fingerprint":         {byWindow, posted("/x", "1")},
		"another fingerprint": {byWindow, posted("/x", "2")},
	} {
		op, rejection := deriving(t, tc.source).Operation(scope, "", tc.req)
		if rejection != nil {
			t.Errorf("%s: %v", name, rejection)
		}
		if first, ok := seen[op.ID]; ok {
			t.Errorf("%s and %s are one operation", first, name)
		}
		seen[op.ID] = name
		if again, _ := deriving(t, tc.source).Operation(dedup.Scope{Version: "2"}, "", tc.req); again.ID == op.ID {
			t.Errorf("%s: the scope does not count", name)
		}
	}
}

// TestDerivedKeysHaveNoSpelling: different requests, one operation.
func TestDerivedKeysHaveNoSpelling(t *testing.T) {
	contentType, body := form(t, "B", field{"x", "", "", "y"}, field{"id", "", "", "a b"})
	for name, tc := range map[string]struct {
		source dedup.KeySource
		a, b   dedup.Request
	}{
		"header":           {byHeader, posted("/x", "a", "X-Event: 1"), posted("/y", "b", "x-event: 1")},
		"JSON":             {byJSON, posted("/x", `{"event":{"id":"a b"}}`), posted("/x", ` {"x":1, "\u0065vent":{"id":"\u0061 b"}}`)},
		"query":            {byQuery, posted("/x?id=a+b", ""), posted("/x?x&%69d=a%20b", "")},
		"form, both types": {byForm, posted("/x", "id=a+b", "Content-Type: "+urlencoded), posted("/x", body, "Content-Type: "+contentType)},
	} {
		r := deriving(t, tc.source)
		a, rejectionA := r.Operation(dedup.Scope{}, "", tc.a)
		b, rejectionB := r.Operation(dedup.Scope{}, "", tc.b)
		if rejectionA != nil || rejectionB != nil || a.ID != b.ID {
			t.Errorf("%s: %v %v, %v %v", name, a.ID, rejectionA, b.ID, rejectionB)
		}
	}
}

func TestDeriveInTurn(t *testing.T) {
	all := deriving(t, byHeader, byJSON, byQuery, byForm)
	first := func(source dedup.KeySource, req dedup.Request) {
		t.Helper()
		want, _ := deriving(t, source).Operation(dedup.Scope{}, "", req)
		if got, rejection := all.Operation(dedup.Scope{}, "", req); rejection != nil || got.ID != want.ID || got.TTL != 0 {
			t.Errorf("got %v %v, want %v", got, rejection, want.ID)
		}
	}
	json := `{"event":{"id":"2"}}`
	first(byHeader, posted("/x?id=3", json, "X-Event: 1"))
	first(byJSON, posted("/x?id=3", json, "X-Event: "))
	first(byQuery, posted("/x?id=3", "id=4", "Content-Type: "+urlencoded))
	first(byForm, posted("/x?id=", "id=4", "Content-Type: "+urlencoded))

	_, rejection := all.Operation(dedup.Scope{}, "", posted("/x?id=3", json, "X-Event: 1", "X-Event: 2"))
	wantRejection(t, rejection, dedup.ReasonInvalidKey, "the header X-Event")
	_, rejection = all.Operation(dedup.Scope{}, "", posted("/x", ""))
	wantRejection(t, rejection, dedup.ReasonMissingKey, `Idempotency-Key or in the header X-Event, /event/id of a JSON body, the query parameter "id", the form field "id"`)

	sent, _ := all.Operation(dedup.Scope{}, "1", posted("/x", "", "X-Event: 2"))
	if want := (dedup.Scope{}).ID("1"); sent.ID != want {
		t.Errorf("a key that was sent makes %v, want %v", sent.ID, want)
	}
	last, rejection := deriving(t, byHeader, byWindow).Operation(dedup.Scope{}, "", posted("/x", ""))
	if rejection != nil || last.TTL != 10*time.Second {
		t.Errorf("%v, rejected %v; want a TTL of 10s", last, rejection)
	}
}

// TestDerivedIDIsGolden: another ID for the same key executes every live one again. The
// value was computed by a program of its own in another language.
func TestDerivedIDIsGolden(t *testing.T) {
	op, rejection := deriving(t, dedup.KeySource{Header: "X-GitHub-Delivery"}).Operation(dedup.Scope{}, "", posted("/x", "", "X-GitHub-Delivery: 72d3162e"))
	if want := dedup.ID("d1HGGuxXvvgv0SXXy6OYpdMkEMlwSOUbSZd437p5oBc"); rejection != nil || op.ID != want {
		t.Errorf("ID %v %v, want %v", op.ID, rejection, want)
	}
}
