package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"idemproxy/internal/dedup"
)

const (
	// tokenLeeway forgives clocks that differ, in exp and nbf.
	tokenLeeway = 30 * time.Second
	// maxToken bounds a token, since all of it is decoded before its signature is checked.
	maxToken = 16 << 10
)

// An invalidToken says what is wrong with a token, in words of ours: the libraries' errors
// repeat parts of it.
type invalidToken string

// Error is for the log and the caller.
func (e invalidToken) Error() string { return "the bearer token " + string(e) }

// A verifier reads from the bearer tokens of requests who calls, as one identity.jwt says.
type verifier struct {
	rule   dedup.JWT
	keys   keySource
	parser *jwt.Parser
}

// newVerifier makes a verifier. The algorithms come from the kind of keys and never from
// the token, so that no public key is taken for the secret of an HMAC. A token without exp
// is valid: when a token ends is its issuer's to say.
func newVerifier(rule dedup.JWT, keys keySource) *verifier {
	methods := []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	if rule.SecretFile != "" {
		methods = []string{"HS256", "HS384", "HS512"}
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(methods), jwt.WithLeeway(tokenLeeway), jwt.WithStrictDecoding(),
		jwt.WithJSONNumber(), // or 9007199254740993 and …992 would be one caller
	}
	if rule.Issuer != "" {
		options = append(options, jwt.WithIssuer(rule.Issuer))
	}
	if rule.Audience != "" {
		options = append(options, jwt.WithAudience(rule.Audience))
	}
	return &verifier{rule: rule, keys: keys, parser: jwt.NewParser(options...)}
}

// subject returns whom the verified token of a request names; nil stands for a missing
// one, and for a rule that reads none.
func (rt *route) subject(r *http.Request) (*dedup.Subject, *dedup.Rejection) {
	if rt.rule.Identity.JWT.Claim == "" {
		return nil, nil
	}
	return rt.tokens.subject(r.Context(), r.Header)
}

// subject returns whom the token of a request names; nil stands for a missing one. It
// waits for keys if it has to.
func (v *verifier) subject(ctx context.Context, h http.Header) (*dedup.Subject, *dedup.Rejection) {
	subject, err := v.read(ctx, h)
	if err == nil {
		return subject, nil
	}
	invalid, ok := errors.AsType[invalidToken](err)
	switch {
	case !ok:
		return nil, &dedup.Rejection{Reason: dedup.ReasonIdentityUnavailable, Err: err, RetryAfter: time.Second, Detail: "The keys that verify callers' tokens can't be had; nothing was sent on. Retry with the same key."}
	case v.rule.OnInvalid == dedup.InvalidMissing:
		return nil, nil
	default:
		return nil, &dedup.Rejection{Reason: dedup.ReasonInvalidToken, Err: invalid, Detail: "The bearer token " + string(invalid) + "; nothing was sent on."}
	}
}

// read is subject with errors: an invalidToken, or what kept the keys away.
func (v *verifier) read(ctx context.Context, h http.Header) (*dedup.Subject, error) {
	raw, err := bearer(h["Authorization"])
	if raw == "" || err != nil {
		return nil, err
	}
	claims, err := v.verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	issuer, err := claims.GetIssuer()
	if err != nil {
		return nil, invalidToken("has an iss that is no string")
	}
	subject := &dedup.Subject{Issuer: issuer, Claim: v.rule.Claim}
	switch value := claims[v.rule.Claim].(type) {
	case string:
		subject.Value = value
	case json.Number:
		subject.Value = value.String()
	}
	if subject.Value == "" {
		return nil, invalidToken("has no string or number as its claim " + v.rule.Claim)
	}
	return subject, nil
}

// bearer returns the token (RFC 6750, 2.1) of the Authorization headers; "" if they have
// none, or credentials of another kind.
func bearer(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", invalidToken("stands beside other credentials")
	}
	scheme, raw, _ := strings.Cut(values[0], " ")
	raw = strings.TrimLeft(raw, " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", nil
	case raw == "":
		return "", invalidToken("is empty")
	case len(raw) > maxToken:
		return "", invalidToken("is too long")
	}
	return raw, nil
}

// verify returns the claims of a token that is valid.
func (v *verifier) verify(ctx context.Context, raw string) (jwt.MapClaims, error) {
	keys, err := v.keys.now(ctx)
	if err != nil {
		return nil, err
	}
	claims, foreign, err := v.parse(raw, keys)
	if foreign {
		newer, unknown := v.keys.newer(ctx, keys)
		if unknown != nil {
			return nil, unknown
		}
		if newer != keys {
			claims, _, err = v.parse(raw, newer)
		}
	}
	if err != nil {
		return nil, fault(err)
	}
	return claims, nil
}

// parse verifies a token with these keys. It reports as foreign a token that a key which
// is not among them may have signed.
func (v *verifier) parse(raw string, keys *keySet) (_ jwt.MapClaims, foreign bool, _ error) {
	claims, anonymous := jwt.MapClaims{}, false
	_, err := v.parser.ParseWithClaims(raw, claims, func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok {
			return nil, errors.New("crit names extensions, and we know none (RFC 7515, 4.1.11)")
		}
		_, named := t.Header[jwkset.HeaderKID]
		anonymous = !named
		return keys.find(t)
	})
	return claims, errors.Is(err, jwkset.ErrKeyNotFound) || anonymous && !errors.Is(err, jwt.ErrTokenInvalidClaims) && err != nil, err
}

// fault says what the library found.
func fault(err error) invalidToken {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return "is malformed"
	case errors.Is(err, jwt.ErrTokenExpired):
		return "has expired"
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return "is not valid yet"
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return "comes from another issuer"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return "is for another audience"
	default:
		return "can't be verified"
	}
}
