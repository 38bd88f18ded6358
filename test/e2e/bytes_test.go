package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

// These tests compare answers byte by byte: what the upstream wrote, what the first
// caller got, and what is replayed.

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

// answers are what an upstream may say, raw; the rest of the test is the same for all.
func answers() map[string]struct {
	raw    string
	status int
	body   string
} {
	sized := func(head, body string) string {
		return head + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	type answer = struct {
		raw    string
		status int
		body   string
	}
	ok := "HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
	mebibyte := strings.Repeat(allBytes(), 1<<12)[:1<<20-1]
	return map[string]answer{
		"every byte value": {sized(ok+"Content-Type: application/octet-stream\r\n", allBytes()), 200, allBytes()},
		"cookies": {sized(ok+"Set-Cookie: a=1; Expires=Wed, 21 Oct 2065 07:28:00 GMT; Path=/\r\nSet-Cookie: b=\"x,y\", c\r\n"+
			"Set-Cookie: a=2\r\nSet-Cookie: \r\nVary: A, B\r\nVary: C\r\nX-B: 2\r\nX-A: 1\r\nX-B: 1\r\n", "x"), 200, "x"},
		"bytes above ASCII in a header": {sized(ok+"X-Name: caf\xe9 \xf0\x9f\x92\xb3\r\n", "x"), 200, "x"},
		"empty body":                    {sized(ok+"Content-Type: text/plain\r\n", ""), 200, ""},
		"204":                           {"HTTP/1.1 204 No Content\r\nX-Deleted: 7\r\n\r\n", 204, ""},
		"304":                           {"HTTP/1.1 304 Not Modified\r\nETag: \"7\"\r\n\r\n", 304, ""},
		"1 MiB but for one byte":        {sized(ok, mebibyte), 200, mebibyte},
		"1 MiB":                         {sized(ok, mebibyte+"x"), 200, mebibyte + "x"},
		"gzip":                          {sized(ok+"Content-Encoding: gzip\r\nContent-Type: application/json\r\n", zipped(`{"a":1}`)), 200, zipped(`{"a":1}`)},
		"HTML without a Content-Type":   {sized(ok, "<html><body>hello</body></html>"), 200, "<html><body>hello</body></html>"},
		"chunked":                       {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n", 200, "hello world"},
		"until the connection ends":     {ok + "Connection: close\r\n\r\nhello", 200, "hello"},
		"HTTP/1.0":                      {"HTTP/1.0 200 OK\r\nX-Old: yes\r\n\r\nhello", 200, "hello"},
		"redirect":                      {sized("HTTP/1.1 303 See Other\r\nLocation: /pay/7?a=1&b=%2F\r\n", ""), 303, ""},
		"404":                           {sized("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n", `{"error":"no"}`), 404, `{"error":"no"}`},
		"409":                           {sized("HTTP/1.1 409 Conflict\r\n", "taken"), 409, "taken"},
		"500":                           {sized("HTTP/1.1 500 Internal Server Error\r\n", "oops"), 500, "oops"},
		"503":                           {sized("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 120\r\n", ""), 503, ""},
		"an unusual status":             {sized("HTTP/1.1 299 Odd\r\n", "x"), 299, "x"},
		"no date":                       {sized("HTTP/1.1 200 OK\r\n", "x"), 200, "x"},
	}
}

func TestAnswersAreKeptByteForByte(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		for name, tc := range answers() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				up := newUpstream(t, hijacked(tc.raw))
				p := start(t, setup{store: s, upstream: up.url, routes: payments})
				req := request{key: newKey(), body: "x", header: []string{"Accept-Encoding: gzip, br"}}
				first := p.send(t, req).fresh(t, tc.status)
				if string(first.body) != tc.body {
					t.Errorf("%d bytes came through, the upstream sent %d: %.200q", len(first.body), len(tc.body), first.body)
				}
				checkFields(t, first, tc.raw)
				p.send(t, req).replays(t, first)
				p.send(t, req).replays(t, first)
				up.saw(t, 1)
			})
		}
	})
}

// checkFields checks that the fields of an answer are those that the upstream sent: all
// values of each name in their order, none added but for the date and the length, none
// lost but for those of the connection.
func checkFields(t *testing.T, got *response, raw string) {
	t.Helper()
	sent, err := newWire(strings.NewReader(raw)).head(request{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range append(got.fields, sent.fields...) {
		names[http.CanonicalHeaderKey(f.name)] = true
	}
	for name := range names {
		switch name {
		case "Connection", "Transfer-Encoding", "Content-Length":
			continue
		case "Date":
			if len(sent.values(name)) == 0 {
				continue
			}
		}
		if g, w := strings.Join(got.values(name), "|"), strings.Join(sent.values(name), "|"); g != w {
			t.Errorf("%s: %q came through, the upstream sent %q", name, g, w)
		}
	}
}

func TestTrailersAreReplayed(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, _ *received) {
			w.Header().Set("Trailer", "X-Sum, X-Other")
			w.WriteHeader(200)
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "abc")
			w.Header().Add("X-Other", "1")
			w.Header().Add("X-Other", "2")
		})
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x", header: []string{"TE: trailers"}}
		first := p.send(t, req).fresh(t, 200)
		if len(first.trailers) != 3 || string(first.body) != "body" {
			t.Fatalf("three trailers were sent; the answer:\n%s", first)
		}
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

// Trailers that nobody announced come too.
func TestUnannouncedTrailersAreReplayed(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, hijacked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: abc\r\n\r\n"))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x", header: []string{"TE: trailers"}}
		first := p.send(t, req).fresh(t, 200)
		if len(first.trailers) != 1 || first.trailers[0] != (field{"X-Sum", "abc"}) {
			t.Fatalf("one trailer was sent; the answer:\n%s", first)
		}
		p.send(t, req).replays(t, first)
		up.saw(t, 1)
	})
}

// An interim answer is not the answer.
func TestEarlyHintsAreNotTheAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, hijacked("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"))
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		req := request{key: newKey(), body: "x"}
		first := p.send(t, req).fresh(t, 201)
		if len(first.values("Link")) != 0 {
			t.Errorf("the hints became part of the answer:\n%s", first)
		}
		again := p.send(t, req).replays(t, first)
		if len(again.interim) != 0 {
			t.Errorf("a replay has hints: %v", again.interim)
		}
		up.saw(t, 1)
	})
}

// A connection stays usable after each kind of answer.
func TestOneConnectionManyAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		c := p.dial(t)
		next := func(r request) *response {
			t.Helper()
			if _, err := c.Write(r.bytes()); err != nil {
				t.Fatal(err)
			}
			res, err := c.wire.response(r)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		req := request{key: newKey(), body: "x"}
		first := next(req).fresh(t, 201)
		next(req).replays(t, first)
		other := req
		other.body = "y"
		next(other).refused(t, 422, "key_reuse")
		next(request{body: "x"}).refused(t, 400, "missing_key")
		next(request{method: "GET", target: "/pay"}).fresh(t, 201)
		next(req).replays(t, first)
		up.saw(t, 2)
	})
}
