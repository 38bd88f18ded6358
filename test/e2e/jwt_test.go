package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// These tests ask who a caller is when a token says so.

// An issuer signs tokens, with a key that changes, and serves its keys as an upstream does.
type issuer struct {
	*upstream
	name string
	kid  string
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{upstream: newUpstream(t, nil), name: unique("https://issuer")}
	i.rotate(t)
	return i
}

// rotate replaces the key by another one.
func (i *issuer) rotate(t *testing.T) {
	t.Helper()
	var err error
	if i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	i.kid = unique("kid")
	i.answers(text(200, i.set(t)))
}

// set is the issuer's JWK Set.
func (i *issuer) set(t *testing.T) string {
	t.Helper()
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","use":"sig","alg":"ES256","kid":%q,"x":%q,"y":%q}]}`, i.kid, b64(point[1:33]), b64(point[33:]))
}

// token signs a token for an hour, with these claims besides.
func (i *issuer) token(t *testing.T, subject string, more ...jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": i.name, "sub": subject, "jti": unique("jti"), "exp": time.Now().Add(time.Hour).Unix()}
	for _, m := range more {
		for name, value := range m {
			claims[name] = value
		}
	}
	return signed(t, jwt.SigningMethodES256, i.key, i.kid, claims)
}

func signed(t *testing.T, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// by is a request of whoever has this token.
func by(token, key string, header ...string) request {
	return request{key: key, body: "amount=1", header: append([]string{"Authorization: Bearer " + token}, header...)}
}

// unauthorized checks a 401 of the proxy's own.
func (r *response) unauthorized(t *testing.T) {
	t.Helper()
	r.refused(t, 401, "invalid_token")
	if got := r.get("WWW-Authenticate"); got != `Bearer error="invalid_token"` {
		t.Errorf("WWW-Authenticate %q", got)
	}
}

func TestATokenNamesTheCaller(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, id := newUpstream(t, created), newIssuer(t)
		p := start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`
  - {name: payments, path: /pay, identity: {jwt: {claim: sub, jwks_url: "%s/keys", issuer: %q, audience: pay}}}
  - {name: both, path: /both, identity: {headers: [X-Account], jwt: {claim: sub, jwks_url: "%s/keys"}}}
  - {name: header, path: /header, identity: {headers: [X-Account]}}
  - {name: other, path: /other}`, id.url, id.name, id.url)})
		pay := jwt.MapClaims{"aud": []string{"pay", "ship"}}
		k := newKey()

		// One key of two callers is two operations; a renewed token is the same caller.
		first := p.send(t, by(id.token(t, "alice", pay), k)).fresh(t, 201)
		p.send(t, by(id.token(t, "alice", pay), k)).replays(t, first)
		second := p.send(t, by(id.token(t, "bob", pay), k)).fresh(t, 201)
		p.send(t, by(id.token(t, "bob", pay), k)).replays(t, second)
		p.send(t, by(id.token(t, "alice", pay), k, "Connection: Authorization")).replays(t, first)
		up.saw(t, 2)
		hidden := p.send(t, by(id.token(t, "carol", pay), k, "Connection: Authorization")).fresh(t, 201)
		if up.last(t).header.Get("Authorization") == "" {
			t.Error("Connection hid the token from the service")
		}
		p.send(t, by(id.token(t, "carol", pay), k)).replays(t, hidden)
		up.saw(t, 3)

		// Nothing that isn't verified counts, and none of it reaches the service.
		valid := id.token(t, "alice", pay)
		parts := strings.Split(valid, ".")
		forged := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice","iss":"` + id.name + `","aud":"pay"}`))
		stranger := newIssuer(t)
		stranger.name, stranger.kid = id.name, id.kid
		none := signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", jwt.MapClaims{"sub": "alice", "iss": id.name, "aud": "pay"})
		for name, token := range map[string]string{
			"tampered":         parts[0] + "." + forged + "." + parts[2],
			"alg none":         none,
			"unsigned":         parts[0] + "." + parts[1] + ".",
			"another's key":    stranger.token(t, "alice", pay),
			"expired":          id.token(t, "alice", pay, jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()}),
			"not yet":          id.token(t, "alice", pay, jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
			"another audience": id.token(t, "alice", jwt.MapClaims{"aud": "ship"}),
			"another issuer":   id.token(t, "alice", pay, jwt.MapClaims{"iss": "https://other"}),
			"no subject":       id.token(t, "", pay),
			"a public secret":  signed(t, jwt.SigningMethodHS256, []byte(id.set(t)), id.kid, jwt.MapClaims{"sub": "alice", "iss": id.name, "aud": "pay"}),
			"no token":         "alice",
		} {
			t.Log(name)
			p.send(t, by(token, k)).unauthorized(t)
			p.send(t, by(token, newKey())).unauthorized(t)
		}
		p.send(t, by(valid, k, "Authorization: Bearer "+valid)).unauthorized(t)
		p.send(t, request{key: k, body: "amount=1"}).refused(t, 400, "missing_identity")
		p.send(t, request{key: k, body: "amount=1", header: []string{"Authorization: Basic YWxpY2U6YWxpY2U="}}).refused(t, 400, "missing_identity")
		up.saw(t, 3)

		// Headers and tokens count together, and are never taken for one another.
		both := func(account string) request {
			r := by(id.token(t, "alice"), k, "X-Account: "+account)
			r.target = "/both"
			return r
		}
		p.twice(t, both("a"), 201)
		p.twice(t, both("b"), 201)
		p.twice(t, request{target: "/header", key: k, header: []string{"X-Account: alice"}}, 201)
		r := by("alice", newKey())
		r.target = "/other"
		p.twice(t, r, 201) // here nobody asks for a token

		if got := p.metric(t, `idemproxy_rejects_total{reason="invalid_token",route="payments"}`); got != 23 {
			t.Errorf("%v invalid tokens counted, want 23", got)
		}
	})
}

// A token that is not valid is none, if the rule says so; and then it names nobody.
func TestInvalidTokensAsMissingOnes(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, id := newUpstream(t, created), newIssuer(t)
		p := start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`
  - {name: payments, path: /pay, identity: {on_missing: anonymous, jwt: {claim: sub, jwks_url: %q, on_invalid: missing}}}
  - {name: strict, path: /strict, identity: {jwt: {claim: sub, jwks_url: %q, on_invalid: missing}}}`, id.url, id.url)})
		k := newKey()
		alice := p.send(t, by(id.token(t, "alice"), k)).fresh(t, 201)
		anonymous := p.send(t, request{key: k, body: "amount=1"}).fresh(t, 201)
		// Not alice; and not the other anonymous caller either, whose credentials differ.
		p.send(t, by(id.token(t, "alice", jwt.MapClaims{"exp": 1}), k)).refused(t, 409, "replay_scope")
		p.send(t, by(id.token(t, "alice"), k)).replays(t, alice)
		p.send(t, request{key: k, body: "amount=1"}).replays(t, anonymous)
		r := by(id.token(t, "alice", jwt.MapClaims{"exp": 1}), k)
		r.target = "/strict"
		p.send(t, r).refused(t, 400, "missing_identity")
		up.saw(t, 2)
	})
}

// Two issuers may give one name to two people.
func TestTwoIssuers(t *testing.T) {
	t.Parallel()
	up, id := newUpstream(t, created), newIssuer(t)
	p := start(t, setup{store: memory(), upstream: up.url, routes: fmt.Sprintf(`  - {name: payments, path: /pay, identity: {jwt: {claim: sub, jwks_url: %q}}}`, id.url)})
	k := newKey()
	first := p.send(t, by(id.token(t, "alice"), k)).fresh(t, 201)
	p.send(t, by(id.token(t, "alice", jwt.MapClaims{"iss": "https://other"}), k)).fresh(t, 201)
	p.send(t, by(id.token(t, "alice"), k)).replays(t, first)
	up.saw(t, 2)
}

func TestKeysOfTokensChange(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, id := newUpstream(t, created), newIssuer(t)
		p := start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`  - {name: payments, path: /pay, identity: {jwt: {claim: sub, jwks_url: %q}}}`, id.url)})
		k := newKey()
		first := p.send(t, by(id.token(t, "alice"), k)).fresh(t, 201)
		id.rotate(t)
		p.send(t, by(id.token(t, "alice"), k)).replays(t, first)

		// Made-up keys don't make the proxy ask for ever.
		stranger := newIssuer(t)
		for range 30 {
			p.send(t, by(stranger.token(t, "alice"), k)).unauthorized(t)
		}
		if n := len(id.all()); n > 10 {
			t.Errorf("the issuer was asked %d times", n)
		}
		// The issuer is gone: its keys go on working, and nobody knows of others.
		id.answers(text(500, "no"))
		last := id.token(t, "alice")
		eventually(t, "in doubt", func() bool { return p.send(t, by(stranger.token(t, "alice"), k)).status == 503 })
		p.send(t, by(last, k)).replays(t, first)
		p.send(t, by(stranger.token(t, "alice"), k)).refused(t, 503, "identity_unavailable")
		id.rotate(t)
		eventually(t, "verified by the new key", func() bool { return p.send(t, by(id.token(t, "alice"), k)).status == 201 })
		up.saw(t, 1)
		if p.metric(t, `idemproxy_jwks_fetches_total{result="success"}`) < 2 || p.metric(t, `idemproxy_jwks_fetches_total{result="failure"}`) < 1 {
			t.Error("fetches are not counted")
		}
	})
}

// While there are no keys nobody is taken for invalid, or for anonymous.
func TestNoKeysOfTokensYet(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, id := newUpstream(t, created), newIssuer(t)
		g := newGate(t)
		set := id.set(t)
		id.answers(text(500, "no"))
		p := start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`
  - {name: payments, path: /pay, identity: {on_missing: anonymous, jwt: {claim: sub, jwks_url: %q, on_invalid: missing}}}
  - {name: other, path: /other}`, id.url)})
		k := newKey()
		for range 3 {
			p.send(t, by(id.token(t, "alice"), k)).refused(t, 503, "identity_unavailable")
		}
		p.send(t, request{target: "/other", key: k}).fresh(t, 201)
		up.saw(t, 1)

		// It answers slowly: who needs it waits, others don't.
		id.answers(held(g, text(200, set)))
		var waiting pending
		eventually(t, "asked again", func() bool {
			waiting = p.begin(by(id.token(t, "alice"), k))
			select {
			case <-g.arrivals:
				return true
			case got := <-waiting:
				return got.err != nil
			}
		})
		p.send(t, request{key: newKey()}).fresh(t, 201)
		g.open()
		first := waiting.wait(t).fresh(t, 201)
		p.send(t, by(id.token(t, "alice"), k)).replays(t, first)
		up.saw(t, 3)
	})
}

// Files of keys are read at the start, and again when they change.
func TestKeysOfTokensInFiles(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up, id := newUpstream(t, created), newIssuer(t)
		dir := t.TempDir()
		secret, set := filepath.Join(dir, "secret"), filepath.Join(dir, "keys.json")
		write(t, secret, "first secret of at least thirty-two bytes\n")
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		n := base64.RawURLEncoding.EncodeToString(key.N.Bytes())
		e := base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())
		write(t, set, fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"r1","n":%q,"e":%q}]}`, n, e))
		p := start(t, setup{store: s, upstream: up.url, routes: fmt.Sprintf(`
  - {name: hmac, path: /hmac, identity: {jwt: {claim: account, secret_file: %q}}}
  - {name: rsa, path: /rsa, identity: {jwt: {claim: sub, jwks_file: %q}}}`, secret, set)})
		k := newKey()
		send := func(target, token string) *response {
			r := by(token, k)
			r.target = target
			return p.send(t, r)
		}
		hmac := func(secret string, account int) string {
			return signed(t, jwt.SigningMethodHS256, []byte(secret), "", jwt.MapClaims{"account": json.Number(itoa(account))})
		}
		first := send("/hmac", hmac("first secret of at least thirty-two bytes", 1)).fresh(t, 201)
		send("/hmac", hmac("first secret of at least thirty-two bytes", 2)).fresh(t, 201)
		write(t, secret, "second secret of at least thirty-two bytes\n")
		eventually(t, "taken up", func() bool {
			return send("/hmac", hmac("second secret of at least thirty-two bytes", 1)).status == 201
		})
		send("/hmac", hmac("second secret of at least thirty-two bytes", 1)).replays(t, first)
		send("/hmac", hmac("first secret of at least thirty-two bytes", 1)).unauthorized(t)
		write(t, secret, "short") // a half of a renewal: the last whole one stays
		send("/hmac", hmac("second secret of at least thirty-two bytes", 1)).replays(t, first)
		up.saw(t, 2)

		claims := jwt.MapClaims{"sub": "alice"}
		r := send("/rsa", signed(t, jwt.SigningMethodRS256, key, "r1", claims)).fresh(t, 201)
		send("/rsa", signed(t, jwt.SigningMethodPS256, key, "r1", claims)).replays(t, r)
		send("/rsa", signed(t, jwt.SigningMethodHS256, x509.MarshalPKCS1PublicKey(&key.PublicKey), "r1", claims)).unauthorized(t)
		send("/rsa", hmac("second secret of at least thirty-two bytes", 1)).unauthorized(t)
		up.saw(t, 3)
		write(t, set, id.set(t))
		eventually(t, "taken up", func() bool { return send("/rsa", id.token(t, "alice")).status == 201 })
	})
}

// What is wrong with a file of keys is said at the start.
func TestFilesOfKeysThatAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short := filepath.Join(dir, "secret")
	write(t, short, "too-short-secret")
	for place, want := range map[string]string{
		"secret_file: " + short:                      "identity.jwt.secret_file: " + short + " holds 16 bytes",
		"jwks_file: " + filepath.Join(dir, "absent"): "identity.jwt.jwks_file: open " + filepath.Join(dir, "absent"),
		"jwks_file: " + short:                        "identity.jwt.jwks_file: " + short + " is no JWK Set",
	} {
		file := filepath.Join(t.TempDir(), "idemproxy.yaml")
		s := setup{store: memory(), upstream: "http://127.0.0.1:1", routes: "  - {name: payments, path: /pay, identity: {jwt: {claim: sub, " + place + "}}}"}
		write(t, file, s.yaml(local(freePort()), local(freePort())))
		exit, _, stderr := once(t, "serve", "--config", file)
		if exit != 1 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "payments") || strings.Contains(stderr, "too-short-secret") {
			t.Errorf("exit %d, %s; want %q", exit, stderr, want)
		}
		if exit, _, stderr := once(t, "validate", file); exit != 0 {
			t.Errorf("validate opens it: exit %d, %s", exit, stderr)
		}
	}
}
