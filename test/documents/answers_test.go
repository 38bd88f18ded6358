//go:build unix

package documents

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// volatile is what differs from one run to the next, and what stands for it.
var volatile = []struct {
	is *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} [\d:]{8} GMT`), "DATE"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]{8}(\.\d+)?(Z|[+-]\d\d:?\d\d)`), "TIME"},
	{regexp.MustCompile(`\bpay_[a-z0-9]{10}\b`), "PAYMENT"},
	{regexp.MustCompile(`\b(Content-Length|Retry-After|Retry-After-Ms): \d+`), "$1: N"},
	{regexp.MustCompile(`"(lease_left_seconds|ttl_left_seconds|size_bytes)": ?[\d.]+`), `"$1":N`},
	{regexp.MustCompile(`"owner": ?"[^"]*"`), `"owner":"REPLICA"`},
	{regexp.MustCompile(`\b\d+h\d+m\d+s\b`), "DURATION"},
	{regexp.MustCompile(`\b[A-Za-z0-9_-]{43}\b`), "HASH"},
	{regexp.MustCompile(`[ \t\r]+(\n|$)`), "$1"},
}

// masked is a text without what is volatile, and, if it is JSON, without its white space.
func masked(text string) string {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) == nil {
		text = compact.String()
	}
	for _, v := range volatile {
		text = v.is.ReplaceAllString(text, v.as)
	}
	return strings.TrimSpace(text)
}

// answers says whether an output is the one that is shown, in which "…" stands for
// anything.
func answers(shown, output string) bool {
	parts := strings.Split(masked(shown), "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, `.*`) + `$`).MatchString(masked(output))
}

var payment = regexp.MustCompile(`\bpay_[a-z0-9]{10}\b`)

// samePayments says whether payments that are shown as one are one in the output, and others
// others, here and in all of the document before: a replay has the payment of its first answer.
func (s *session) samePayments(shown, output string) bool {
	here, there := payment.FindAllString(shown, -1), payment.FindAllString(output, -1)
	if len(here) != len(there) {
		return strings.Contains(shown, "…")
	}
	for i, p := range here {
		for known, is := range s.payments {
			if (known == p) != (is == there[i]) {
				return false
			}
		}
		s.payments[p] = there[i]
	}
	return true
}

// TestAnswers: what is shown is compared, not waved through.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		shown, output string
		same          bool
	}{
		{`{"charges": 2}`, `{"charges":2}`, true},
		{`{"charges":2}`, `{"charges":3}`, false},
		{"201\n…\nDate: Mon, 30 Nov 2026 18:58:19 GMT\n", "201\nServer: x\nDate: Tue, 01 Dec 2026 00:00:00 GMT\n", true},
		{"201\n", "201\nmore\n", false},
		{"", "an answer", false},
		{"{…}", "{}", true},
	} {
		if answers(test.shown, test.output) != test.same {
			t.Errorf("%q for %q: want %t", test.shown, test.output, test.same)
		}
	}
	s := &session{payments: map[string]string{}}
	if !s.samePayments("pay_aaaaaaaaaa", "pay_bbbbbbbbbb") || s.samePayments("pay_aaaaaaaaaa", "pay_cccccccccc") {
		t.Error("a replay may have another payment than its first answer")
	}
	if s.samePayments("pay_zzzzzzzzzz", "pay_bbbbbbbbbb") {
		t.Error("two payments may be one")
	}
}
