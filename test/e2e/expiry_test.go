package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// These tests are about expose_expiry.

const (
	expires  = "Idempotency-Expires"
	original = "X-Idempotent-Original-Date"
)

// date is the only value of a header, which must be an HTTP date.
func (r *response) date(t *testing.T, name string) time.Time {
	t.Helper()
	if len(r.values(name)) != 1 {
		t.Fatalf("%s is there %d times:\n%s", name, len(r.values(name)), r)
	}
	at, err := time.Parse(http.TimeFormat, r.get(name))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// within checks that a date is between two instants, to its second.
func within(t *testing.T, what string, at, from, to time.Time) {
	t.Helper()
	if at.Before(from.Add(-2*time.Second)) || at.After(to.Add(time.Second)) {
		t.Errorf("%s is %v, want it between %v and %v", what, at, from, to)
	}
}

func (r *response) tellsNothing(t *testing.T) {
	t.Helper()
	if len(r.values(expires))+len(r.values(original)) > 0 {
		t.Errorf("the answer tells of a record:\n%s", r)
	}
}

func TestCallersSeeUntilWhenAnAnswerIsKept(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		forged := func(status int, body string) handler {
			return func(w http.ResponseWriter, r *received) {
				w.Header().Set(expires, "Thu, 01 Jan 1970 00:00:00 GMT")
				w.Header().Add(original, "long ago")
				w.Header().Add(original, "longer ago")
				text(status, body)(w, r)
			}
		}
		up := newUpstream(t, forged(201, "ok"))
		p := start(t, setup{store: s, upstream: up.url, routes: `
  - {name: told, path: /pay, ttl: 2h, expose_expiry: true, max_response_body: 1KiB}
  - {name: optional, path: /optional, missing_header: pass-through, expose_expiry: true}
  - {name: untold, path: /untold}`})
		req := request{key: newKey(), body: "x"}
		before := time.Now()
		first := p.send(t, req)
		after := time.Now()
		if first.status != 201 || len(first.values(original)) > 0 {
			t.Fatalf("the first answer is\n%s", first)
		}
		until := first.date(t, expires)
		within(t, "the end", until, before.Add(2*time.Hour), after.Add(2*time.Hour))

		time.Sleep(1100 * time.Millisecond) // so that the times of first and replay would differ
		again := p.send(t, req)
		again.equals(t, first, replayHeader, expires, original)
		within(t, "the end, on a replay", again.date(t, expires), until, until)
		within(t, "the original date", again.date(t, original), before, after)
		if again.date(t, original).After(after) {
			t.Errorf("%s is %s, and the answer came at %v", original, again.get(original), after)
		}

		// What is not kept, or not an answer of the upstream, carries none, whoever says so.
		up.answers(forged(429, "later"))
		p.send(t, request{key: newKey()}).tellsNothing(t)
		up.answers(forged(200, strings.Repeat("x", 2000)))
		req = request{key: newKey()}
		p.send(t, req).tellsNothing(t)
		p.send(t, req).tellsNothing(t)
		p.send(t, request{target: "/optional"}).tellsNothing(t)
		p.send(t, request{}).tellsNothing(t)

		// Without the switch the headers are the upstream's.
		req = request{target: "/untold", key: newKey()}
		untold := p.send(t, req)
		if untold.get(expires) != "Thu, 01 Jan 1970 00:00:00 GMT" || len(untold.values(original)) != 2 {
			t.Errorf("the upstream's headers came as\n%s", untold)
		}
		p.send(t, req).replays(t, untold)
	})
}

// A record that could not be kept whole promises no replay.
func TestAnAnswerThatDidNotFitTellsNothing(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, text(200, strings.Repeat("x", 20_000)))
	p := start(t, setup{store: storage{yaml: "type: memory, memory: {max_bytes: 10KiB}"}, upstream: up.url, routes: `  - {name: told, path: /pay, expose_expiry: true}`})
	req := request{key: newKey()}
	p.send(t, req).tellsNothing(t)
	p.send(t, req).refused(t, 409, "response_not_stored")
}
