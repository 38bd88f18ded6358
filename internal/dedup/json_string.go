package dedup

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string. What it returns is overwritten by the next one.
func (t *jsonText) text() ([]byte, bool) {
	t.at++
	start := t.at
	for ; t.at < len(t.in); t.at++ {
		switch c := t.in[t.at]; {
		case c == '"':
			t.at++
			return t.in[start : t.at-1], true
		case c == '\\':
			return t.escaped(start)
		case c < 0x20:
			return nil, false
		}
	}
	return nil, false
}

// escaped goes on with a string that began at start, and has an escape here.
func (t *jsonText) escaped(start int) ([]byte, bool) {
	t.spare = append(t.spare[:0], t.in[start:t.at]...)
	for t.at < len(t.in) {
		switch c := t.in[t.at]; {
		case c == '"':
			t.at++
			return t.spare, true
		case c == '\\':
			if !t.escape() {
				return nil, false
			}
		case c < 0x20:
			return nil, false
		default:
			t.spare = append(t.spare, c)
			t.at++
		}
	}
	return nil, false
}

// escape reads one escape. Half a surrogate pair becomes the three bytes that it would
// have in UTF-8 if it had any: no other string has them.
func (t *jsonText) escape() bool {
	if t.at+1 < len(t.in) {
		if i := strings.IndexByte(`"\/bfnrt`, t.in[t.at+1]); i >= 0 {
			t.spare = append(t.spare, "\"\\/\b\f\n\r\t"[i])
			t.at += 2
			return true
		}
	}
	unit, ok := t.unit()
	if !ok || !utf16.IsSurrogate(unit) {
		t.spare = utf8.AppendRune(t.spare, unit)
		return ok
	}
	before := t.at
	if low, ok := t.unit(); ok {
		if pair := utf16.DecodeRune(unit, low); pair != utf8.RuneError {
			t.spare = utf8.AppendRune(t.spare, pair)
			return true
		}
	}
	t.at, t.doubtful = before, true
	t.spare = append(t.spare, 0xE0|byte(unit>>12), 0x80|byte(unit>>6)&0x3F, 0x80|byte(unit)&0x3F)
	return true
}

// unit reads \u and four digits.
func (t *jsonText) unit() (rune, bool) {
	digits, ok := bytes.CutPrefix(t.in[t.at:], []byte(`\u`))
	if !ok || len(digits) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	t.at += 6
	return rune(n), err == nil
}
