package config

import (
	"errors"
	"strings"
	"testing"
)

// FuzzLoadPlaces: every fault of a file has a place in it, and says what is wrong in one
// line; what loads is valid and loads again.
func FuzzLoadPlaces(f *testing.F) {
	for _, text := range []string{
		"", "routes: []", "routes:\n  - {name: a, path: /a}\n", "server: {listen: 8080}", "upstream: {url: \"http://user:pass@x\"}", "a: b", "- 1", "\t", "{",
		"routes:\n  - {name: a, path: /a}\n  - {name: a, path: /a}\n", "defaults: {ttl: -1s, name: x}", "limits: {max_buffered_bytes: 99999999999999GiB}",
		"server: {tls: {cert_file: x}, trusted_proxies: [x, 10.0.0.0/8]}", "x: &a [*a]", "a: ${A", "store: {type: redis, redis: {url: \"redis://:p@h:x\"}}", "routes: {a: b}", "log: null",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Load(Sources{Text: text})
		if err == nil {
			if _, again := Load(Sources{Text: text}); again != nil {
				t.Fatalf("it loads only once: %v", again)
			}
			return
		}
		bad, ok := errors.AsType[*Error](err)
		if !ok || len(bad.Faults) == 0 {
			t.Fatalf("an error without faults: %v", err)
		}
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
		for _, fault := range bad.Faults {
			at := fault.Origin
			if at.Source == "" || at.Line < 1 || at.Column < 1 || at.Line > lines+1 || fault.Message == "" || strings.ContainsAny(fault.Message, "\n\r") {
				t.Errorf("a fault without a place or a line of text: %+v", fault)
			}
		}
	})
}
