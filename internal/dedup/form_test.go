package dedup_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// byFields is the fingerprint of a form.
func byFields(contentType, body string) dedup.Fingerprint {
	f := dedup.FingerprintRule{Enabled: true, Parts: []dedup.Part{dedup.PartBody}, Body: dedup.BodyForm}
	var lines []string
	for line := range strings.SplitSeq(contentType, "\n") {
		if line != "" {
			lines = append(lines, "Content-Type: "+line)
		}
	}
	return f.Of(dedup.Request{Method: "POST", Target: "/x", Header: headers(lines...), Body: []byte(body)})
}

const urlencoded = "application/x-www-form-urlencoded"

func TestFingerprintOfURLEncodedForm(t *testing.T) {
	many := strings.Repeat("a&", 10_000)
	for name, tc := range map[string]struct {
		typeA, a, typeB, b string
		same               bool
	}{
		"order of names":     {urlencoded, "a=1&b=2", urlencoded, "b=2&a=1", true},
		"order of values":    {urlencoded, "a=1&a=2", urlencoded, "a=2&a=1", false},
		"other value":        {urlencoded, "a=1&b=2", urlencoded, "a=1&b=3", false},
		"one value less":     {urlencoded, "a=1&a=1", urlencoded, "a=1", false},
		"character set":      {urlencoded, "a=1&b=2", "Application/X-WWW-form-urlencoded; charset=utf-8", "b=2&a=1", true},
		"broken escape":      {urlencoded, "a=%zz&b=2", urlencoded, "b=2&a=%zz", false},
		"semicolon":          {urlencoded, "a=1;c&b=2", urlencoded, "b=2&a=1;c", false},
		"another type":       {"text/plain", "a=1&b=2", "text/plain", "b=2&a=1", false},
		"form or text":       {"text/plain", "a=1", urlencoded, "a=1", false},
		"no type":            {"", "a=1&b=2", "", "b=2&a=1", false},
		"two types":          {urlencoded + "\n" + urlencoded, "a=1&b=2", urlencoded + "\n" + urlencoded, "b=2&a=1", false},
		"a broken type":      {urlencoded + "; x", "a=1&b=2", urlencoded + "; x", "b=2&a=1", false},
		"nothing":            {urlencoded, "", urlencoded, "", true},
		"many":               {urlencoded, "b=1&" + many[4:len(many)-1], urlencoded, many[4:] + "b=1", true},
		"too many":           {urlencoded, "b=1&" + many, urlencoded, many + "b=1", false},
		"too many, the same": {urlencoded, many, urlencoded, many, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := byFields(tc.typeA, tc.a) == byFields(tc.typeB, tc.b); got != tc.same {
				t.Errorf("%.100q and %.100q: same %v, want %v", tc.a, tc.b, got, tc.same)
			}
		})
	}
}

// A field is a part of a form: name, file name ("" for none), content type, content.
type field struct{ name, file, kind, content string }

// form writes fields as mime/multipart does.
func form(t testing.TB, boundary string, fields ...field) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q", f.name)}}
		if f.file != "" {
			h["Content-Disposition"][0] += fmt.Sprintf("; filename=%q", f.file)
		}
		if f.kind != "" {
			h.Set("Content-Type", f.kind)
		}
		p, err := w.CreatePart(h)
		if err == nil {
			_, err = p.Write([]byte(f.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

func TestFingerprintOfMultipartForm(t *testing.T) {
	base := []field{{"a", "", "", "1"}, {"f", "x.png", "image/png", "\x89PNG\r\n\x00\r\n"}, {"b", "", "", ""}}
	for name, tc := range map[string]struct {
		other []field
		same  bool
	}{
		"the same":                 {base, true},
		"order of names":           {[]field{base[2], base[1], base[0]}, true},
		"a field less":             {base[:2], false},
		"a field more":             {append([]field{{"c", "", "", ""}}, base...), false},
		"another name":             {[]field{{"A", "", "", "1"}, base[1], base[2]}, false},
		"another content":          {[]field{{"a", "", "", "2"}, base[1], base[2]}, false},
		"another file name":        {[]field{base[0], {"f", "y.png", "image/png", base[1].content}, base[2]}, false},
		"another type":             {[]field{base[0], {"f", "x.png", "image/gif", base[1].content}, base[2]}, false},
		"another file":             {[]field{base[0], {"f", "x.png", "image/png", "GIF"}, base[2]}, false},
		"a file as a field":        {[]field{base[0], {"f", "", "image/png", base[1].content}, base[2]}, false},
		"one name twice":           {[]field{base[0], base[0], base[1], base[2]}, false},
		"content in another field": {[]field{{"a", "", "", ""}, base[1], {"b", "", "", "1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first := byFields(form(t, "----one", base...))
			if got := first == byFields(form(t, "----another", tc.other...)); got != tc.same {
				t.Errorf("same %v, want %v", got, tc.same)
			}
		})
	}
	ab, ba := []field{{"a", "", "", "1"}, {"a", "", "", "2"}}, []field{{"a", "", "", "2"}, {"a", "", "", "1"}}
	if byFields(form(t, "x", ab...)) == byFields(form(t, "x", ba...)) {
		t.Error("the order of the values of a name does not count")
	}
}

// TestFingerprintOfStrangeMultipart: whatever readers might take for something else is
// compared byte by byte, boundary included.
func TestFingerprintOfStrangeMultipart(t *testing.T) {
	part := "Content-Disposition: form-data; name=\"a\"\r\n\r\n1"
	for name, tc := range map[string]struct {
		body  string // B stands for the boundary
		plain bool
	}{
		"plain":                  {"--B\r\n" + part + "\r\n--B--\r\n", true},
		"no last line end":       {"--B\r\n" + part + "\r\n--B--", true},
		"lower case":             {"--B\r\ncontent-disposition:form-data; name=a\r\n\r\n1\r\n--B--", true},
		"no parts":               {"--B--\r\n", true},
		"further headers":        {"--B\r\nX-Y: z\r\n" + part + "\r\n--B--", true},
		"nothing":                {"", false},
		"text before":            {"hello\r\n--B\r\n" + part + "\r\n--B--", false},
		"a line end before":      {"\r\n--B\r\n" + part + "\r\n--B--", false},
		"text after":             {"--B\r\n" + part + "\r\n--B--\r\nbye", false},
		"cut":                    {"--B\r\n" + part, false},
		"cut in the boundary":    {"--B\r\n" + part + "\r\n--B-", false},
		"no last boundary":       {"--B\r\n" + part + "\r\n--B\r\n", false},
		"line feeds alone":       {"--B\n" + strings.ReplaceAll(part, "\r", "") + "\n--B--", false},
		"line feeds in the head": {"--B\r\nX: 1\n" + part + "\r\n--B--", false},
		"a space at a boundary":  {"--B \r\n" + part + "\r\n--B--", false},
		"a longer boundary":      {"--B\r\n" + part + "\r\n--B1\r\nx\r\n--B--", false},
		"a folded line":          {"--B\r\nX: 1\r\n 2\r\n" + part + "\r\n--B--", false},
		"no disposition":         {"--B\r\nContent-Type: text/plain\r\n\r\n1\r\n--B--", false},
		"two dispositions":       {"--B\r\nContent-Disposition: form-data; name=\"b\"\r\n" + part + "\r\n--B--", false},
		"no name":                {"--B\r\nContent-Disposition: form-data\r\n\r\n1\r\n--B--", false},
		"two names":              {"--B\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n1\r\n--B--", false},
		"another disposition":    {"--B\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--B--", false},
		"no head":                {"--B\r\n\r\n1\r\n--B--", false},
		"a long disposition":     {"--B\r\nContent-Disposition: form-data; name=" + strings.Repeat("a", 8000) + "\r\n\r\n1\r\n--B--", true},
		"one that is too long":   {"--B\r\nContent-Disposition: form-data; name=" + strings.Repeat("a", 8200) + "\r\n\r\n1\r\n--B--", false},
		"a tab in the head":      {"--B\r\nX:\t1\t2\r\n" + part + "\r\n--B--", true},
		"a control character":    {"--B\r\nContent-Disposition: form-data; name=\"\x1d\"\r\n\r\n1\r\n--B--", false},
		"a delete character":     {"--B\r\nX: \x7f\r\n" + part + "\r\n--B--", false},
		"no colon":               {"--B\r\nX\r\n" + part + "\r\n--B--", false},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(boundary string) dedup.Fingerprint {
				return byFields("multipart/form-data; boundary="+boundary, strings.ReplaceAll(tc.body, "B", boundary))
			}
			if tc.body == "" {
				if with("b1") != exactly("") {
					t.Error("it is not compared byte by byte")
				}
			} else if got := with("b1") == with("b2"); got != tc.plain {
				t.Errorf("read as a form: %v, want %v", got, tc.plain)
			}
		})
	}
	body := "--B\r\n" + part + "\r\n--B--\r\n"
	for _, contentType := range []string{"", "multipart/form-data", "multipart/mixed; boundary=B", "multipart/form-data; boundary=C", "multipart/form-data; boundary=B\nmultipart/form-data; boundary=B", `multipart/form-data; boundary=""`} {
		if byFields(contentType, body) != exactly(body) {
			t.Errorf("%q is not compared byte by byte", contentType)
		}
	}
}

// TestFingerprintOfFormsIsGolden keeps the canonical form; see TestFingerprintIsGolden. The
// values were computed by a program of its own in another language.
func TestFingerprintOfFormsIsGolden(t *testing.T) {
	got := byFields(urlencoded, "b=2&a=1&b=1")
	if got := hex.EncodeToString(got[:]); got != "0b3d60c7f8a08dde339026ae040ee06a9ec33ed08ae9a72747dfc3abd33e1c36" {
		t.Errorf("fingerprint %s: every live key would be a reused one after an upgrade", got)
	}
	got = byFields(form(t, "x", field{"b", "", "", "1"}, field{"a", "f.txt", "text/plain", "hello"}))
	if got := hex.EncodeToString(got[:]); got != "7228cd95f60fa913eb89f2ffaac43f8500b934aed686ffa9a456ba920643f6c3" {
		t.Errorf("fingerprint %s: every live key would be a reused one after an upgrade", got)
	}
}
