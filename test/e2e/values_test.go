package e2e

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
)

// These tests ask which bodies are the same by value, contract §3.

const byValues = `
  - {name: json, path: "/json", fingerprint: {body: json}}
  - {name: ignore, path: "/ignore", fingerprint: {body: json, ignore: [/timestamp, /items/0/note, "/a~1b"]}}
  - {name: form, path: "/form", fingerprint: {body: form}}`

func TestBodiesOfTheSameValue(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: byValues})
		for i, tc := range append(sameJSON(), sameForms(t)...) {
			t.Run(tc.name, func(t *testing.T) {
				first, second := tc.first, tc.second
				first.key = newKey()
				second.key = first.key
				answer := p.send(t, first).fresh(t, 201)
				if got := string(up.last(t).body); got != first.body {
					t.Errorf("sent %.200q, the upstream got %.200q", first.body, got)
				}
				again := p.send(t, second)
				if tc.same {
					again.replays(t, answer)
				} else {
					again.refused(t, 422, "key_reuse")
				}
				p.send(t, first).replays(t, answer)
				up.saw(t, i+1)
			})
		}
	})
}

func sameJSON() []pair {
	body := func(target, name, a, b string, same bool) pair {
		return pair{target + " " + name, request{target: target, body: a}, request{target: target, body: b}, same}
	}
	nested := func(depth int, more string) string {
		return strings.Repeat("[", depth) + more + strings.Repeat("]", depth)
	}
	return []pair{
		body("/json", "members in another order", `{"amount":100,"to":{"name":"a","iban":"b"}}`, "{ \"to\": {\"iban\":\"b\", \"name\":\"a\"},\n\"amount\":100 }", true),
		body("/json", "elements in another order", `{"ids":[1,2]}`, `{"ids":[2,1]}`, false),
		body("/json", "another value", `{"amount":100}`, `{"amount":101}`, false),
		body("/json", "big integers", `{"amount":9007199254740993}`, `{"amount":9007199254740992}`, false),
		body("/json", "another spelling of a number", `{"amount":100}`, `{"amount":100.0}`, false),
		body("/json", "another spelling of a string", `{"to":"Ren\u00e9"}`, `{"to":"René"}`, true),
		body("/json", "duplicate members", `{"amount":1,"amount":100}`, `{"amount":100,"amount":1}`, false),
		body("/json", "duplicate members or one", `{"amount":1,"amount":100}`, `{"amount":100}`, false),
		body("/json", "half a surrogate pair", `{"to":"\ud800"}`, `{"to":"\udbff"}`, false),
		body("/json", "broken bytes", "{\"to\":\"\xff\"}", "{\"to\":\"\xfe\"}", false),
		body("/json", "no JSON", `{"amount":100`, `{"amount": 100`, false),
		body("/json", "no JSON, the same", `{"amount":100`, `{"amount":100`, true),
		body("/json", "deep", nested(200, ""), nested(200, " "), true),
		body("/json", "too deep", nested(100_000, ""), nested(100_000, " "), false),
		body("/json", "nothing or null", "", "null", false),
		body("/json", "large", `{"a":[`+strings.Repeat("10,", 200_000)+`1],"b":1}`, `{"b":1,"a":[`+strings.Repeat("10, ", 200_000)+`1]}`, true),
		body("/ignore", "a time", `{"a":1,"timestamp":"10:00"}`, `{"timestamp":"10:01","a":1}`, true),
		body("/ignore", "a time or none", `{"a":1,"timestamp":"10:00"}`, `{"a":1}`, true),
		body("/ignore", "beside the time", `{"a":1,"timestamp":"10:00"}`, `{"a":2,"timestamp":"10:00"}`, false),
		body("/ignore", "in the first element", `{"items":[{"note":"x"},{}]}`, `{"items":[{"note":"y"},{}]}`, true),
		body("/ignore", "in the second element", `{"items":[{},{"note":"x"}]}`, `{"items":[{},{"note":"y"}]}`, false),
		body("/ignore", "an escaped name", `{"a/b":1}`, `{"a/b":2}`, true),
	}
}

// posted is a request with a form as mime/multipart writes it, with a random boundary. A
// field is "name=content", or "name@file=content".
func posted(t *testing.T, target string, fields ...string) request {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		name, content, _ := strings.Cut(f, "=")
		name, file, isFile := strings.Cut(name, "@")
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q", name)}}
		if isFile {
			h.Set("Content-Disposition", fmt.Sprintf("form-data; name=%q; filename=%q", name, file))
			h.Set("Content-Type", "application/octet-stream")
		}
		p, err := w.CreatePart(h)
		if err == nil {
			_, err = p.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return request{target: target, header: []string{"Content-Type: " + w.FormDataContentType()}, body: b.String()}
}

// encoded is a request with an urlencoded form.
func encoded(target, body string) request {
	return request{target: target, header: []string{"Content-Type: application/x-www-form-urlencoded"}, body: body}
}

func sameForms(t *testing.T) []pair {
	binary := "f@scan.pdf=%PDF\x00\r\n--\r\n\xff"
	multi := func(name string, same bool, second ...string) pair {
		return pair{"multipart " + name, posted(t, "/form", "item=chair", binary, "tag=a", "tag=b"), posted(t, "/form", second...), same}
	}
	plain := func(r request) request {
		r.header = []string{"Content-Type: text/plain"}
		return r
	}
	cut := posted(t, "/form", "item=chair")
	cut.body = cut.body[:len(cut.body)-6]
	cutOther := posted(t, "/form", "item=chair")
	cutOther.body = cutOther.body[:len(cutOther.body)-6]
	return []pair{
		multi("another boundary", true, "item=chair", binary, "tag=a", "tag=b"),
		multi("another order", true, "tag=a", binary, "tag=b", "item=chair"),
		multi("another order of one name", false, "item=chair", binary, "tag=b", "tag=a"),
		multi("another value", false, "item=table", binary, "tag=a", "tag=b"),
		multi("another file", false, "item=chair", binary+"\x00", "tag=a", "tag=b"),
		multi("another file name", false, "item=chair", "f@copy.pdf=%PDF\x00\r\n--\r\n\xff", "tag=a", "tag=b"),
		{"multipart that is cut", cut, cutOther, false},
		{"urlencoded, another order", encoded("/form", "a=1&b=2&a=3"), encoded("/form", "b=2&a=1&a=3"), true},
		{"urlencoded, another order of one name", encoded("/form", "a=1&a=3"), encoded("/form", "a=3&a=1"), false},
		{"urlencoded, unreadable", encoded("/form", "a=%zz&b=2"), encoded("/form", "b=2&a=%zz"), false},
		{"a form by another type", plain(encoded("/form", "a=1&b=2")), plain(encoded("/form", "b=2&a=1")), false},
		{"a form or text", encoded("/form", "a=1"), plain(encoded("/form", "a=1")), false},
	}
}

// To read JSON takes several times its memory, and is hardest on a body of nothing but
// short members; yet forty of them at once take little more than their bytes.
func TestBoundedMemoryOfJSON(t *testing.T) {
	up := newUpstream(t, created)
	p := startPlain(t, setup{store: memory(), upstream: up.url, routes: byValues})
	var body strings.Builder
	for i := 0; body.Len() < 1<<20-100; i++ {
		fmt.Fprintf(&body, `,"%x":1`, uint32(i)*2654435761)
	}
	req := request{target: "/json", body: "{" + body.String()[1:] + "}"}
	var all []pending
	for range 40 {
		req.key = newKey()
		all = append(all, p.begin(req))
	}
	for _, answer := range all {
		answer.wait(t).fresh(t, 201)
	}
	peak := p.memory(t, "VmHWM") >> 10
	t.Logf("peak %d MiB", peak)
	if peak > 300 {
		t.Errorf("40 bodies of 1 MiB took %d MiB", peak)
	}
}
