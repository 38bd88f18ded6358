package proxy

import (
	"strings"
	"testing"
)

// slowClean is cleanPath as RFC 3986, 5.2.4 tells it, one segment after the other.
func slowClean(p string) string {
	var kept []string
	for _, segment := range strings.Split(p, "/") {
		switch segment {
		case "", ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// FuzzCleanPath: a path that is cleaned is what the reference says, begins with a slash,
// has no empty or dot segment, and cleaning it again changes nothing.
func FuzzCleanPath(f *testing.F) {
	for _, p := range []string{
		"", "/", "//", "/a", "a", "/a/", "/a//b", "/a/./b", "/a/../b", "/../a", "/..", "/.", "/...", "/a/..", "/a/b/../..", "//a//..//b//",
		"/a;x=1/..;/b", "/a\x00b", "/caf\xe9", "/./../.", "/.a/..b", "*", "../..", "a/../../b", "/ /%2e%2e/",
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got := cleanPath(p)
		if want := slowClean(p); got != want {
			t.Fatalf("cleanPath(%q) = %q, want %q", p, got, want)
		}
		if again := cleanPath(got); again != got {
			t.Fatalf("cleanPath(%q) = %q, and cleaned again %q", p, got, again)
		}
		for _, around := range []string{"/." + "/" + p, "//" + p, p + "/", p + "/.", p + "/x/.."} {
			if other := cleanPath(around); other != got {
				t.Fatalf("cleanPath(%q) = %q, but cleanPath(%q) = %q", p, got, around, other)
			}
		}
	})
}
