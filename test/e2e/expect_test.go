package e2e

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A problem is the body of the proxy's own answers.
type problem struct {
	Type, Title, Detail, Code, Error string
	Status                           int
}

// titles are those of the IETF draft; the others are ours to choose.
func titles() map[string]string {
	return map[string]string{
		"missing_key": "Idempotency-Key is missing",
		"key_reuse":   "Idempotency-Key is already used",
		"in_progress": "A request is outstanding for this Idempotency-Key",
	}
}

// refused checks that an answer is the proxy's own, with everything that the contract
// says of such an answer, and returns its body.
func (r *response) refused(t *testing.T, status int, code string) problem {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d %s; the answer:\n%s", r.status, status, code, r)
	}
	if got := r.get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q, want application/problem+json", got)
	}
	var p problem
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("the body is no problem: %v\n%s", err, r)
	}
	if p.Code != code || p.Type != "urn:idemproxy:problem:"+code || p.Status != status {
		t.Errorf("code %q, type %q, status %d; want %s and %d", p.Code, p.Type, p.Status, code, status)
	}
	if want, ours := titles()[code]; p.Title == "" || ours && p.Title != want {
		t.Errorf("title %q, want %q", p.Title, want)
	}
	if p.Detail == "" || p.Error == "" || strings.Contains(p.Error, "\n") {
		t.Errorf("detail %q and error %q: want a sentence and a line", p.Detail, p.Error)
	}
	if want := "idempotency-key in-flight; retry shortly"; code == "in_progress" && p.Error != want {
		t.Errorf("error %q, want %q", p.Error, want)
	}
	r.checkRetry(t, code)
	r.checkSilent(t)
	return p
}

// checkRetry checks what SDKs obey.
func (r *response) checkRetry(t *testing.T, code string) {
	t.Helper()
	should := r.get("x-should-retry")
	if code == "key_reuse" && should != "false" {
		t.Errorf("x-should-retry %q, want false", should)
	}
	if code != "in_progress" && r.status != 503 {
		return
	}
	seconds, err := strconv.Atoi(r.get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Errorf("Retry-After %q, want whole seconds, at least 1", r.get("Retry-After"))
	}
	ms, err := strconv.Atoi(r.get("retry-after-ms"))
	if err != nil || ms < 1 || ms >= (seconds+1)*1000 {
		t.Errorf("retry-after-ms %q beside Retry-After %q", r.get("retry-after-ms"), r.get("Retry-After"))
	}
	if should != "true" {
		t.Errorf("x-should-retry %q, want true", should)
	}
}

// checkSilent checks that an answer of the proxy repeats nothing of the request.
func (r *response) checkSilent(t *testing.T) {
	t.Helper()
	for _, s := range r.request.secrets() {
		if strings.Contains(r.String(), s) {
			t.Errorf("the answer repeats %q, which the caller sent:\n%s", s, r)
		}
	}
}

const replayHeader = "X-Idempotent-Replay"

// fresh checks that an answer is the upstream's, and no replay.
func (r *response) fresh(t *testing.T, status int) *response {
	t.Helper()
	if r.status != status || len(r.values(replayHeader)) > 0 {
		t.Fatalf("want a fresh %d; the answer:\n%s", status, r)
	}
	return r
}

// replays checks that an answer is the replay of an earlier one: the same status, fields
// (each value, in order), bytes and trailers, and the mark.
func (r *response) replays(t *testing.T, first *response) *response {
	t.Helper()
	if got := r.values(replayHeader); len(got) != 1 || got[0] != "true" {
		t.Fatalf("%s %q, want true once; the answer:\n%s", replayHeader, got, r)
	}
	r.equals(t, first, replayHeader)
	return r
}

// equals checks that two answers are the same, but for the framing of one connection and
// the fields that are named.
func (r *response) equals(t *testing.T, first *response, but ...string) {
	t.Helper()
	if r.line != first.line {
		t.Errorf("%q, first was %q", r.line, first.line)
	}
	but = append(but, "Connection", "Transfer-Encoding", "Trailer")
	strip := func(fields []field) []field {
		return slices.DeleteFunc(slices.Clone(fields), func(f field) bool {
			return slices.ContainsFunc(but, func(name string) bool { return strings.EqualFold(name, f.name) })
		})
	}
	if got, want := strip(r.fields), strip(first.fields); !slices.Equal(got, want) {
		t.Errorf("the fields differ:\n%q\nfirst were\n%q", got, want)
	}
	if !bytes.Equal(r.body, first.body) {
		t.Errorf("the bodies differ: %d bytes, first %d: %.200q, first %.200q", len(r.body), len(first.body), r.body, first.body)
	}
	if !slices.Equal(r.trailers, first.trailers) {
		t.Errorf("trailers %q, first %q", r.trailers, first.trailers)
	}
}

// problemOf is the body of an answer of the proxy's own; empty if it is none.
func problemOf(r *response) problem {
	var p problem
	_ = json.Unmarshal(r.body, &p)
	return p
}
