package dedup

import "strings"

// A Key is what a caller calls one operation: an opaque string of printable ASCII
// without spaces (0x21 to 0x7E).
type Key string

// Header gives the values of a request header, in their order; nil when it is absent.
// net/http's Header.Values is one.
type Header func(name string) []string

// Key reads the key of a request from the rule's headers. It returns "" when none of
// them is there, and a *Rejection (invalid_key) when what is there is no key: empty,
// sent more than once, too long, not printable ASCII, or an unfinished String.
//
// A value in double quotes is a String of RFC 9651, 3.3.3, as
// draft-ietf-httpapi-idempotency-key-header writes it; its key is the string inside.
func (r *Rule) Key(header Header) (Key, *Rejection) {
	var found []string
	for _, name := range r.HeaderName {
		found = append(found, header(name)...)
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return parseKey(found[0], r.MaxKeyLength)
	default:
		return "", reject(ReasonInvalidKey, "The idempotency key was sent %d times; send it once, in one header.", len(found))
	}
}

func parseKey(value string, maxLength int) (Key, *Rejection) {
	if value == "" {
		return "", reject(ReasonInvalidKey, "The idempotency key is empty.")
	}
	raw := value
	if value[0] == '"' {
		inner, at, ok := unquote(value)
		if !ok {
			return "", reject(ReasonInvalidKey, "The idempotency key begins with a double quote but is not a whole quoted string (RFC 9651); the fault is at byte %d.", at)
		}
		if inner == "" {
			return "", reject(ReasonInvalidKey, "The idempotency key is empty.")
		}
		value = inner
	}
	if len(value) > maxLength {
		return "", reject(ReasonInvalidKey, "The idempotency key is longer than %d characters.", maxLength)
	}
	if strings.IndexFunc(value, notPrintable) >= 0 {
		at := strings.IndexFunc(raw, notPrintable) // the byte the caller can find in what it sent
		return "", reject(ReasonInvalidKey, "The idempotency key has a byte outside printable ASCII (0x21 to 0x7E) at index %d.", at)
	}
	return Key(value), nil
}

// unquote reads a String of RFC 9651, 4.2.5, that fills all of s. When it is none, at
// is the index of the first byte that can't be.
func unquote(s string) (inner string, at int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", i, false
			}
			b.WriteByte(s[i])
		case c == '"':
			return b.String(), i + 1, i == len(s)-1
		case c < 0x20 || c > 0x7E:
			return "", i, false
		default:
			b.WriteByte(c)
		}
	}
	return "", len(s), false
}

// notPrintable reports a character outside printable ASCII without the space. In bytes
// that are no UTF-8, which range as U+FFFD, it reports the first such byte.
func notPrintable(c rune) bool { return c < 0x21 || c > 0x7E }
