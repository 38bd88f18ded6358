package dedup

import "strings"

// follow takes one step along JSON pointers (RFC 6901): into the member of this name, or
// the element of this index. It reports whether one of them names just that, and returns
// what is left of those that lead further.
func follow(pointers []string, step []byte) (named bool, below []string) {
	for _, p := range pointers {
		token, _, further := strings.Cut(p[1:], "/")
		switch {
		case unescape(token) != string(step):
		case further:
			below = append(below, p[1+len(token):])
		default:
			named = true
		}
	}
	return named, below
}

// unescape reads the two escapes of a pointer, the slash's first, as RFC 6901, 4 has it.
func unescape(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}
