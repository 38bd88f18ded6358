package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// These tests go through the checks of contract §3, in their order. Whatever is refused
// reaches the upstream not at all.

func TestRefusedRequestsAreNotSent(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: plain, path: /pay}
  - {name: short, path: /short, max_key_length: 8}
  - {name: optional, path: /optional, missing_header: pass-through}
  - {name: aliases, path: /aliases, header_name: [Idempotency-Key, X-Request-Id]}
  - {name: account, path: /account, identity_header: X-Account, max_scope_length: 20}
  - {name: tenant, path: /tenant, tenant_header: X-Tenant, identity: {headers: [X-Account, X-User]}}
  - {name: small, path: /small, max_request_body: 1KiB, identity_header: X-Account}`})
		for _, tc := range refusals() {
			t.Run(tc.name, func(t *testing.T) {
				detail := p.send(t, tc.request).refused(t, tc.status, tc.code).Detail
				if !strings.Contains(detail, tc.detail) {
					t.Errorf("detail %q doesn't say %q", detail, tc.detail)
				}
			})
		}
		up.saw(t, 0)
	})
}

type refusal struct {
	name string
	request
	status int
	code   string
	detail string // has this
}

func refusals() []refusal {
	all := append(keyRefusals(), headRefusals()...)
	return append(append(all, identityRefusals()...), orderRefusals()...)
}

func keyRefusals() []refusal {
	k := newKey()
	bad := func(name, key, detail string) refusal {
		return refusal{name, request{key: key}, 400, "invalid_key", detail}
	}
	return []refusal{
		{"no key", request{body: "x"}, 400, "missing_key", ""},
		{"empty", request{header: []string{"Idempotency-Key:"}}, 400, "invalid_key", ""},
		{"blank", request{header: []string{"Idempotency-Key:  \t "}}, 400, "invalid_key", ""},
		{"empty, optional", request{target: "/optional", header: []string{"Idempotency-Key:"}}, 400, "invalid_key", ""},
		{"twice", request{key: k, header: []string{"Idempotency-Key: " + k + "2"}}, 400, "invalid_key", ""},
		{"twice the same", request{key: k, header: []string{"idempotency-KEY: " + k}}, 400, "invalid_key", ""},
		{"twice, one empty", request{key: k, header: []string{"Idempotency-Key:"}}, 400, "invalid_key", ""},
		{"twice, optional", request{target: "/optional", key: k, header: []string{"Idempotency-Key: " + k}}, 400, "invalid_key", ""},
		{"two aliases", request{target: "/aliases", key: k, header: []string{"X-Request-Id: " + k}}, 400, "invalid_key", ""},
		bad("256 characters", strings.Repeat("k", 256), "255"),
		bad("256 characters in quotes", `"`+strings.Repeat("k", 256)+`"`, "255"),
		{"nine characters of eight", request{target: "/short", key: "123456789"}, 400, "invalid_key", "8"},
		{"too long, optional", request{target: "/optional", key: strings.Repeat("k", 256)}, 400, "invalid_key", "255"},
		bad("a space", "ab cdefghijkl", "index 2"),
		bad("a tab", "abc\tdefghijkl", "index 3"),
		bad("two keys in one line", "abcdefghijkl, mnopqrstuvwx", "index 13"),
		bad("a byte of Latin 1", "caf\xe9-abcdefghijkl", "index 3"),
		bad("UTF-8", "clé-abcdefghijkl", "index 2"),
		bad("a first byte", "\xffabcdefghijkl", "index 0"),
		bad("a last byte", "abcdefghijkl\x80", "index 12"),
		bad("quoted space", `"abcdefgh ijkl"`, "index 9"),
		bad("quoted byte", "\"abcdefghijkl\xe9\"", "13"),
		bad("unfinished quotes", `"abcdefghijkl`, ""),
		bad("only a quote", `"`, ""),
		bad("quotes around nothing", `""`, ""),
		bad("after the quotes", `"abcdefghijkl"x`, ""),
		bad("parameters", `"abcdefghijkl";a=1`, ""),
		bad("a list of Strings", `"abcdefghijkl", "mnopqrstuvwx"`, ""),
		bad("an escape that is none", `"abcdef\ghijkl"`, ""),
		bad("an unfinished escape", `"abcdefghijkl\"`, ""),
		{"bad, optional", request{target: "/optional", key: "caf\xe9-abcdefghijkl"}, 400, "invalid_key", "index 3"},
	}
}

func headRefusals() []refusal {
	k := newKey()
	return []refusal{
		{"twin of the key", request{key: k, header: []string{"Idempotency_Key: " + newKey()}}, 400, "bad_request", ""},
		{"twin in capitals", request{key: k, header: []string{"IDEMPOTENCY_KEY: " + k}}, 400, "bad_request", ""},
		{"twin alone, optional", request{target: "/optional", header: []string{"Idempotency_Key: " + k}}, 400, "bad_request", ""},
		{"twin of an alias", request{target: "/aliases", key: k, header: []string{"X_Request-Id: " + k}}, 400, "bad_request", ""},
		{"twin of the identity", request{target: "/account", key: k, header: []string{"X-Account: a", "X_Account: b"}}, 400, "bad_request", ""},
		{"twin of the tenant", request{target: "/tenant", key: k, header: []string{"X-Tenant: t", "X-Account: a", "X-User: u", "X_tenant: b"}}, 400, "bad_request", ""},
		{"upgrade", request{key: k, header: []string{"Connection: Upgrade", "Upgrade: websocket"}}, 400, "bad_request", ""},
		{"HTTP/1.0 without a length", request{key: k, proto: "HTTP/1.0", unframed: true}, 400, "bad_request", ""},
	}
}

func identityRefusals() []refusal {
	k := newKey()
	account := func(name, code string, lines ...string) refusal {
		return refusal{name, request{target: "/account", key: k, header: lines}, 400, code, "X-Account"}
	}
	long := strings.Repeat("a", 21)
	return []refusal{
		account("no identity", "missing_identity"),
		account("empty identity", "missing_identity", "X-Account:"),
		account("long identity", "invalid_identity", "X-Account: "+long),
		account("identity with a space", "invalid_identity", "X-Account: alice-and bob"),
		account("identity above ASCII", "invalid_identity", "X-Account: ren\xe9e-the-caller"),
		account("two identities", "invalid_identity", "X-Account: alice", "X-Account: bob"),
		{"no tenant", request{target: "/tenant", key: k, header: []string{"X-Account: a", "X-User: u"}}, 400, "missing_identity", "X-Tenant"},
		{"bad tenant", request{target: "/tenant", key: k, header: []string{"X-Tenant: " + strings.Repeat("t", 256), "X-Account: a", "X-User: u"}}, 400, "invalid_identity", "X-Tenant"},
		{"one identity of two", request{target: "/tenant", key: k, header: []string{"X-Tenant: t", "X-Account: a"}}, 400, "missing_identity", "X-User"},
	}
}

// orderRefusals have more than one fault; the first check decides.
func orderRefusals() []refusal {
	large := strings.Repeat("x", 2000)
	return []refusal{
		{"no key before all", request{target: "/small", body: large, header: []string{"X_Account: a", "Connection: Upgrade", "Upgrade: x"}}, 400, "missing_key", ""},
		{"bad key before twins", request{target: "/small", key: "a bcdefghijklm", body: large, header: []string{"X_Account: a"}}, 400, "invalid_key", ""},
		{"twins before identity", request{target: "/small", key: newKey(), body: large, header: []string{"X_Account: a"}}, 400, "bad_request", ""},
		{"identity before size", request{target: "/small", key: newKey(), body: large}, 400, "missing_identity", ""},
		{"size", request{target: "/small", key: newKey(), body: large, header: []string{"X-Account: a"}}, 413, "request_too_large", "1024"},
	}
}

// What net/http itself refuses must not reach the upstream either.
func TestControlBytesInAKey(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: `  - {name: payments, path: /pay, missing_header: pass-through}`})
	for _, b := range []byte{0x00, 0x01, 0x08, 0x0b, 0x1f, 0x7f} {
		res := p.send(t, request{key: "abc" + string(rune(b)) + "def"})
		if res.status != 400 {
			t.Errorf("byte %#x: status %d, want 400", b, res.status)
		}
	}
	folded := "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: abc\r\n def\r\nContent-Length: 0\r\n\r\n"
	if res := p.send(t, request{raw: folded}); res.status != 400 {
		t.Errorf("a folded line: status %d, want 400", res.status)
	}
	spaced := "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key : abc\r\nContent-Length: 0\r\n\r\n"
	if res := p.send(t, request{raw: spaced}); res.status != 400 {
		t.Errorf("a space before the colon: status %d, want 400", res.status)
	}
	up.saw(t, 0)
}

func TestKeysThatAreFine(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		var printable strings.Builder
		for c := byte(0x21); c <= 0x7e; c++ {
			printable.WriteByte(c)
		}
		seen := 0
		for name, pair := range map[string][2]string{
			"one character":      {"k", `"k"`},
			"255 characters":     {strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
			"all that is so":     {printable.String(), `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable.String()) + `"`},
			"quoted or not":      {"abc", `"abc"`},
			"a quote inside":     {`a"b`, `"a\"b"`},
			"a backslash inside": {`a\b`, `"a\\b"`},
			"a UUID":             {"8e03978e-40d5-43e8-bc93-6894a57f9324", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`},
			"not to be unquoted": {`it's"`, `  "it's\""  `},
			"like a number":      {"0", `"0"`},
			"separators":         {"a:b,c;d=e/f?g#h%20", `"a:b,c;d=e/f?g#h%20"`},
		} {
			t.Run(name, func(t *testing.T) {
				req := request{key: pair[0], body: name}
				first := p.send(t, req).fresh(t, 201)
				p.send(t, req).replays(t, first)
				req.key = pair[1]
				p.send(t, req).replays(t, first)
				seen++
				up.saw(t, seen)
				if got := up.last(t).header.Values("Idempotency-Key"); len(got) != 1 || got[0] != pair[0] {
					t.Errorf("the upstream got the key as %q", got)
				}
			})
		}
	})
}

// Keys differ by case, and by every character.
func TestKeysThatDiffer(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		for i, key := range []string{"abc", "ABC", "abcd", "ab", "'abc'", "a*c", "a?c", "abc%20"} {
			p.send(t, request{key: key}).fresh(t, 201)
			up.saw(t, i+1)
		}
	})
}

func TestABodyThatIsTooLarge(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: /pay, max_request_body: 1KiB}`})
		k := newKey()
		announced := func(more string) string {
			return "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + k + "\r\n" + more + "\r\n"
		}
		// Nothing of these bodies is sent, nor waited for.
		p.send(t, request{raw: announced("Content-Length: 1025\r\n")}).refused(t, 413, "request_too_large")
		p.send(t, request{raw: announced("Content-Length: 10000000000\r\n")}).refused(t, 413, "request_too_large")
		expecting := p.send(t, request{raw: announced("Content-Length: 1025\r\nExpect: 100-continue\r\n")})
		expecting.refused(t, 413, "request_too_large")
		if len(expecting.interim) != 0 {
			t.Errorf("the caller was asked to go on: %v", expecting.interim)
		}
		// This one has no end, and no length.
		p.send(t, request{raw: announced("Transfer-Encoding: chunked\r\n") + "401\r\n" + strings.Repeat("x", 1025) + "\r\n"}).refused(t, 413, "request_too_large")
		up.saw(t, 0)

		// Nothing was claimed: the key is free.
		req := request{key: k, body: strings.Repeat("y", 1024)}
		first := p.send(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		chunked := request{raw: announced("Transfer-Encoding: chunked\r\n") + fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", 1000, req.body[:1000], 24, req.body[:24])}
		p.send(t, chunked).replays(t, first) // the same bytes, framed otherwise
		req.body += "y"
		p.send(t, req).refused(t, 413, "request_too_large") // before the record is looked at
		up.saw(t, 1)
	})
}

func TestABodyThatEndsEarly(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		head := func(k, more string) string {
			return "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + k + "\r\n" + more + "\r\n\r\n"
		}
		for name, raw := range map[string]func(k string) string{
			"short":     func(k string) string { return head(k, "Content-Length: 100") + "only this" },
			"in chunks": func(k string) string { return head(k, "Transfer-Encoding: chunked") + "ff\r\nonly this" },
			"no last chunk": func(k string) string {
				return head(k, "Transfer-Encoding: chunked") + "9\r\nonly this\r\n"
			},
			"bad chunk": func(k string) string { return head(k, "Transfer-Encoding: chunked") + "zz\r\nonly this\r\n0\r\n\r\n" },
		} {
			t.Run(name, func(t *testing.T) {
				k := newKey()
				got := receive(t, "end of the connection", p.begin(request{raw: raw(k), cut: true}))
				if got.err == nil {
					got.res.refused(t, 400, "bad_request")
				}
				up.executed(t, "only this", 0)
				req := request{key: k, body: name}
				p.twice(t, req, 201) // nothing was claimed
			})
		}
		up.saw(t, 4)
	})
}

// A caller that sends half a body and hangs up.
func TestACallerThatLeavesBeforeTheEndOfItsBody(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, routes: payments})
		k := newKey()
		c := p.dial(t)
		fmt.Fprintf(c, "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %s\r\nContent-Length: 100\r\n\r\nonly this", k)
		c.Close()
		req := request{key: k, body: "whole"}
		p.twice(t, req, 201)
		up.saw(t, 1)
	})
}

// Who is refused for its head gets the answer at once, whether its body comes or not.
func TestRefusalsDontWaitForTheBody(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	for _, header := range []string{"X-None: x", "Idempotency-Key: a b", "Idempotency-Key: abc\r\nIdempotency_Key: abc"} {
		for _, framing := range []string{"Content-Length: 100", "Content-Length: 100000000", "Transfer-Encoding: chunked"} {
			began := time.Now()
			res := p.send(t, request{raw: "POST /pay HTTP/1.1\r\nHost: x\r\n" + header + "\r\n" + framing + "\r\n\r\n"})
			if res.status != 400 {
				t.Errorf("%s: status %d, want 400", header, res.status)
			}
			quickly(t, began)
		}
	}
	up.saw(t, 0)
}

// A body that does not come is waited for only so long, and claims nothing.
func TestABodyThatNeverComes(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, server: "body_timeout: 300ms", routes: payments})
	k := newKey()
	got := receive(t, "end of the connection", p.begin(request{raw: "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + k + "\r\nContent-Length: 100\r\n\r\nonly this"}))
	if got.err == nil && got.res.status != 408 {
		t.Errorf("status %d, want 408", got.res.status)
	}
	p.send(t, request{key: k, body: "whole"}).fresh(t, 201)
	up.saw(t, 1)
}
