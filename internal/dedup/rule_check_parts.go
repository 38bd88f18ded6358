package dedup

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// checkKeyFrom checks where derived keys come from.
func (r *Rule) checkKeyFrom(c *checks) {
	derives := r.MissingHeader == MissingDerive
	c.that(derives || len(r.KeyFrom) == 0, "key_from", "has no effect unless missing_header is derive")
	c.that(!derives || len(r.KeyFrom) > 0, "key_from", "say where keys come from, such as [{header: X-GitHub-Delivery}]")
	for i, s := range r.KeyFrom {
		at := fmt.Sprintf("key_from[%d]", i)
		given := 0
		for _, field := range []string{s.Header, s.JSON, s.Query, s.Form} {
			if field != "" {
				given++
			}
		}
		if s.Fingerprint != 0 {
			given++
		}
		c.that(given == 1, at, "set exactly one of header, json, query, form and fingerprint")
		c.that(s.Header == "" || isToken(s.Header), at+".header", notAHeader)
		c.that(!strings.EqualFold(s.Header, "Host"), at+".header", hostIsNone)
		c.that(s.Header == "" || !hasName(r.HeaderName, s.Header), at+".header", "is the key header, and this is for requests without it")
		c.that(s.JSON == "" || isPointer(s.JSON), at+".json", notAPointer)
		c.that(s.Fingerprint == 0 || s.Fingerprint >= time.Millisecond, at+".fingerprint", "must be at least 1ms, such as 10s")
		c.that(s.Fingerprint == 0 || r.Fingerprint.Enabled, at+".fingerprint", "needs a fingerprint, and fingerprint.enabled is false")
		c.that(s.Fingerprint == 0 || i == len(r.KeyFrom)-1, at+".fingerprint", "every request has one: what comes after it is never tried, so put it last")
	}
}

// checkToken checks how callers' tokens are verified.
func (r *Rule) checkToken(c *checks) {
	t := r.Identity.JWT
	oneOf(c, "identity.jwt.on_invalid", t.OnInvalid, InvalidReject, InvalidMissing)
	given := 0
	for _, place := range []string{t.JWKSURL, t.JWKSFile, t.SecretFile} {
		if place != "" {
			given++
		}
	}
	if t.Claim == "" {
		c.that(given == 0 && t.Issuer == "" && t.Audience == "", "identity.jwt", "has no effect without claim, such as claim: sub")
		return
	}
	c.that(given == 1, "identity.jwt", "set exactly one of jwks_url, jwks_file and secret_file: a token that nobody verifies names nobody")
	c.that(t.JWKSURL == "" || isHTTP(t.JWKSURL), "identity.jwt.jwks_url", "must be an http:// or https:// URL without a user, such as https://id.example.com/.well-known/jwks.json")
	c.that(r.IdentityHeader == "", "identity_header", "is short for identity.headers: with identity.jwt, name it there")
	c.that(!hasName(r.Identity.Headers, "Authorization"), "identity.headers", "has Authorization, where identity.jwt finds the token: a renewed token would be another caller")
	c.that(!hasName(r.HeaderName, "Authorization"), "header_name", "is where identity.jwt finds the token: a caller is not its key")
}

// checkErrors checks what the proxy's own answers look like.
func (r *Rule) checkErrors(c *checks) {
	oneOf(c, "errors.format", r.Errors.Format, ErrorsProblem, ErrorsSimple)
	for _, reason := range slices.Sorted(maps.Keys(r.Errors.Codes)) {
		at := "errors.codes." + string(reason)
		c.that(slices.Contains(Reasons(), reason), at, "is no code of this program; the README's table of answers has them")
		code := r.Errors.Codes[reason]
		c.that(code != "" && strings.IndexFunc(code, notPrintable) < 0, at, "must be a word of printable ASCII without spaces, such as IDEMPOTENCY_CONFLICT")
	}
}

const notAPointer = "not a JSON pointer (RFC 6901): begin each member with a slash, such as /id or /event/id"

// isPointer reports whether s is a JSON pointer to less than the whole document.
func isPointer(s string) bool {
	if !strings.HasPrefix(s, "/") {
		return false
	}
	plain := strings.NewReplacer("~0", "", "~1", "").Replace(s)
	return !strings.Contains(plain, "~")
}

// isURL reports whether s is an absolute URL that can stand in a Link header.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && !strings.ContainsAny(s, "<> \"")
}

// isHTTP reports whether s is a URL that can be asked, without a password in it.
func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
}
