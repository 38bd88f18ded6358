package store

import (
	"fmt"
	"io"
)

// A Secret is a string of the configuration that is never printed: whatever formats,
// logs or marshals it gets [hidden], or nothing if it is empty. Reveal gives it away.
type Secret string

// hiddenSecret stands for a Secret that is not empty.
const hiddenSecret = "[hidden]"

// Reveal returns the secret itself, for the one who has to present it.
func (s Secret) Reveal() string { return string(s) }

// String is [hidden], or empty if the Secret is.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hiddenSecret
}

// GoString is String in quotes, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format prints String for every verb, %x and %d included, and GoString for %#v.
func (s Secret) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'q' || verb == 'v' && f.Flag('#'):
		_, _ = io.WriteString(f, s.GoString())
	default:
		_, _ = io.WriteString(f, s.String())
	}
}

// MarshalText is String, for encoders. It never fails.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is String as a JSON string. It never fails.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(s.GoString()), nil }

// MarshalYAML is String. It never fails.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
