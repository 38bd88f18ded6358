package proxy

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

const testSecret = "a secret of at least thirty-two bytes"

// testKeys are made once; an RSA key takes its time.
var testKeys = sync.OnceValue(func() (k struct {
	rsa   *rsa.PrivateKey
	ec    *ecdsa.PrivateKey
	ed    ed25519.PrivateKey
	other *ecdsa.PrivateKey
},
) {
	var err [4]error
	k.rsa, err[0] = rsa.GenerateKey(rand.Reader, 2048)
	k.ec, err[1] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, k.ed, err[2] = ed25519.GenerateKey(rand.Reader)
	k.other, err[3] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, e := range err {
		if e != nil {
			panic(e)
		}
	}
	return k
})

func secretFile(t testing.TB, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tokenOf signs a token with further members of its head.
func tokenOf(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, head ...map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for _, more := range head {
		for name, value := range more {
			token.Header[name] = value
		}
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// jwks is a JWK Set of public keys by their kid.
func jwks(t testing.TB, keys map[string]crypto.Signer) string {
	t.Helper()
	var set jwkset.JWKSMarshal
	for kid, key := range keys {
		jwk, err := jwkset.NewJWKFromKey(key.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}})
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, jwk.Marshal())
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testVerifiers(t testing.TB, rules ...dedup.Rule) (*routes, *verifiers, error) {
	t.Helper()
	m := metrics.New("test")
	rs, faults := newRoutes(rules, m)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	vs, err := newVerifiers(rs, nil, m, zap.NewNop())
	return rs, vs, err
}

// testVerifier is the verifier of one identity.jwt.
func testVerifier(t testing.TB, rule dedup.JWT) *verifier {
	t.Helper()
	if rule.Claim == "" {
		rule.Claim = "sub"
	}
	_, vs, err := testVerifiers(t, ruleFor("/", func(r *dedup.Rule) { r.Identity.JWT = rule }))
	if err != nil {
		t.Fatal(err)
	}
	return vs.byRule[rule]
}

// verdict is who a verifier finds: "iss|value", "" for nobody, or the reason.
func verdict(v *verifier, authorization ...string) string {
	h := http.Header{}
	for _, line := range authorization {
		h.Add("Authorization", line)
	}
	subject, rejection := v.subject(context.Background(), h)
	switch {
	case rejection != nil:
		return string(rejection.Reason)
	case subject == nil:
		return ""
	default:
		return subject.Issuer + "|" + subject.Value
	}
}

func TestTokens(t *testing.T) {
	k := testKeys()
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	file := secretFile(t, jwks(t, map[string]crypto.Signer{"rsa": k.rsa, "ec": k.ec, "ed": k.ed}))
	asymmetric := testVerifier(t, dedup.JWT{JWKSFile: file})
	strict := testVerifier(t, dedup.JWT{JWKSFile: file, Issuer: "https://id", Audience: "pay"})
	number := testVerifier(t, dedup.JWT{JWKSFile: file, Claim: "account"})
	symmetric := testVerifier(t, dedup.JWT{SecretFile: secretFile(t, testSecret+"\r\n")})
	good := jwt.MapClaims{"iss": "https://id", "aud": []string{"x", "pay"}, "sub": "alice", "exp": in(time.Hour)}
	with := func(name string, value any) jwt.MapClaims {
		c := jwt.MapClaims{}
		for n, v := range good {
			c[n] = v
		}
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	ec := func(c jwt.MapClaims, head ...map[string]any) string {
		return tokenOf(t, jwt.SigningMethodES256, k.ec, c, append([]map[string]any{{"kid": "ec"}}, head...)...)
	}
	hs := func(c jwt.MapClaims) string { return tokenOf(t, jwt.SigningMethodHS256, []byte(testSecret), c) }
	der, err := x509.MarshalPKIXPublicKey(k.rsa.Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	valid := ec(good)
	head, rest, _ := strings.Cut(valid, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	const alice, invalid = "https://id|alice", "invalid_token"
	for name, tc := range map[string]struct {
		v     *verifier
		token string
		want  string
	}{
		"ES256":                         {asymmetric, valid, alice},
		"RS256":                         {asymmetric, tokenOf(t, jwt.SigningMethodRS256, k.rsa, good, map[string]any{"kid": "rsa"}), alice},
		"PS512":                         {asymmetric, tokenOf(t, jwt.SigningMethodPS512, k.rsa, good, map[string]any{"kid": "rsa"}), alice},
		"EdDSA":                         {asymmetric, tokenOf(t, jwt.SigningMethodEdDSA, k.ed, good, map[string]any{"kid": "ed"}), alice},
		"HS256":                         {symmetric, hs(good), alice},
		"HS512":                         {symmetric, tokenOf(t, jwt.SigningMethodHS512, []byte(testSecret), good), alice},
		"no kid":                        {asymmetric, tokenOf(t, jwt.SigningMethodES256, k.ec, good), alice},
		"no iss":                        {asymmetric, ec(with("iss", nil)), "|alice"},
		"no exp":                        {asymmetric, ec(with("exp", nil)), alice},
		"issuer and audience":           {strict, valid, alice},
		"expired within the leeway":     {asymmetric, ec(with("exp", in(-5*time.Second))), alice},
		"not yet, within the leeway":    {asymmetric, ec(with("nbf", in(5*time.Second))), alice},
		"a number":                      {number, ec(with("account", json.Number("9007199254740993"))), "https://id|9007199254740993"},
		"expired":                       {asymmetric, ec(with("exp", in(-time.Minute))), invalid},
		"exp of another type":           {asymmetric, ec(with("exp", "tomorrow")), invalid},
		"not yet":                       {asymmetric, ec(with("nbf", in(time.Minute))), invalid},
		"another issuer":                {strict, ec(with("iss", "https://other")), invalid},
		"no issuer where one is wanted": {strict, ec(with("iss", nil)), invalid},
		"iss is no string":              {asymmetric, ec(with("iss", []string{"https://id"})), invalid},
		"another audience":              {strict, ec(with("aud", "payments")), invalid},
		"no audience":                   {strict, ec(with("aud", nil)), invalid},
		"no claim":                      {asymmetric, ec(with("sub", nil)), invalid},
		"an empty claim":                {asymmetric, ec(with("sub", "")), invalid},
		"a claim that is a list":        {asymmetric, ec(with("sub", []string{"alice"})), invalid},
		"a claim that is an object":     {number, ec(with("account", map[string]string{"id": "a"})), invalid},
		"a claim that is true":          {number, ec(with("account", true)), invalid},
		"a claim of another case":       {asymmetric, ec(jwt.MapClaims{"Sub": "alice"}), invalid},
		"claims that are null":          {asymmetric, head + "." + part("null") + "." + signature, invalid},
		"alg none":                      {asymmetric, tokenOf(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good), invalid},
		"alg none for a secret":         {symmetric, tokenOf(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good), invalid},
		"alg None":                      {asymmetric, part(`{"alg":"None","kid":"ec"}`) + "." + claims + ".", invalid},
		"alg missing":                   {asymmetric, part(`{"kid":"ec"}`) + "." + claims + "." + signature, invalid},
		"alg is a number":               {asymmetric, part(`{"alg":256}`) + "." + claims + "." + signature, invalid},
		"HMAC with the public key":      {asymmetric, tokenOf(t, jwt.SigningMethodHS256, publicPEM, good, map[string]any{"kid": "rsa"}), invalid},
		"HMAC with the DER":             {asymmetric, tokenOf(t, jwt.SigningMethodHS256, der, good), invalid},
		"a signature for a secret":      {symmetric, valid, invalid},
		"another secret":                {symmetric, tokenOf(t, jwt.SigningMethodHS256, []byte(testSecret+"!"), good), invalid},
		"another key":                   {asymmetric, tokenOf(t, jwt.SigningMethodES256, k.other, good, map[string]any{"kid": "ec"}), invalid},
		"another key without kid":       {asymmetric, tokenOf(t, jwt.SigningMethodES256, k.other, good), invalid},
		"another's kid":                 {asymmetric, ec(good, map[string]any{"kid": "rsa"}), invalid},
		"an unknown kid":                {asymmetric, ec(good, map[string]any{"kid": "nobody"}), invalid},
		"a kid that is a path":          {asymmetric, ec(good, map[string]any{"kid": "../../../../dev/null"}), invalid},
		"a kid that is SQL":             {asymmetric, ec(good, map[string]any{"kid": "x' UNION SELECT 'x"}), invalid},
		"a kid that is no string":       {asymmetric, ec(good, map[string]any{"kid": []string{"ec"}}), invalid},
		"its own key":                   {asymmetric, tokenOf(t, jwt.SigningMethodES256, k.other, good, map[string]any{"jwk": json.RawMessage(jwks(t, map[string]crypto.Signer{"a": k.other})), "jku": "http://127.0.0.1:1/"}), invalid},
		"crit":                          {asymmetric, ec(good, map[string]any{"crit": []string{"exp"}}), invalid},
		"crit, empty":                   {asymmetric, ec(good, map[string]any{"crit": []string{}}), invalid},
		"crit for a secret":             {symmetric, tokenOf(t, jwt.SigningMethodHS256, []byte(testSecret), good, map[string]any{"crit": []string{"b64"}, "b64": false}), invalid},
		"no signature":                  {asymmetric, head + "." + claims + ".", invalid},
		"two parts":                     {asymmetric, head + "." + claims, invalid},
		"four parts":                    {asymmetric, valid + ".", invalid},
		"an encrypted token":            {asymmetric, valid + "." + head + "." + claims, invalid},
		"changed claims":                {asymmetric, head + "." + part(`{"iss":"https://id","sub":"bob"}`) + "." + signature, invalid},
		"changed head":                  {asymmetric, part(`{"alg":"ES256","kid":"ec"}`) + "." + claims + "." + signature, invalid},
		"padded":                        {asymmetric, valid + "==", invalid},
		"another spelling of its bits":  {asymmetric, valid[:len(valid)-1] + string(valid[len(valid)-1]+1), invalid},
		"white space":                   {asymmetric, valid + " x", invalid},
		"a list of tokens":              {asymmetric, valid + ", Bearer " + valid, invalid},
		"no token":                      {asymmetric, "x", invalid},
		"empty":                         {asymmetric, "", invalid},
		"dots":                          {asymmetric, "..", invalid},
		"too long":                      {asymmetric, ec(with("more", strings.Repeat("x", maxToken))), invalid},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict(tc.v, "Bearer "+tc.token); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			lenient := *tc.v
			lenient.rule.OnInvalid = dedup.InvalidMissing
			if tc.want == invalid && verdict(&lenient, "Bearer "+tc.token) != "" {
				t.Error("with on_invalid: missing it names somebody")
			}
		})
	}
}

func TestAuthorizationHeaders(t *testing.T) {
	v := testVerifier(t, dedup.JWT{SecretFile: secretFile(t, testSecret)})
	token := tokenOf(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"sub": "alice"})
	for want, cases := range map[string][][]string{
		"":              {nil, {""}, {"Basic YTpi"}, {token}, {"Bearer" + token}},
		"|alice":        {{"Bearer " + token}, {"bearer " + token}, {"BEARER   " + token}},
		"invalid_token": {{"Bearer"}, {"Bearer " + token, "Bearer " + token}, {"Bearer " + token, "Basic YTpi"}, {"", "Bearer " + token}},
	} {
		for _, lines := range cases {
			if got := verdict(v, lines...); got != want {
				t.Errorf("%.40q: %q, want %q", lines, got, want)
			}
		}
	}
}

// TestKeyFiles: what is wrong with a file is said at the start, with the setting.
func TestKeyFiles(t *testing.T) {
	k := testKeys()
	secret := func(r *dedup.JWT, file string) { r.SecretFile = file }
	set := func(r *dedup.JWT, file string) { r.JWKSFile = file }
	oct := `{"keys":[{"kty":"oct","kid":"a","k":"` + base64.RawURLEncoding.EncodeToString([]byte(testSecret)) + `"}]}`
	for name, tc := range map[string]struct {
		place   func(*dedup.JWT, string)
		content string
		want    string // "" when nothing is wrong
	}{
		"secret":               {secret, testSecret, ""},
		"secret, short":        {secret, "changeme\n", "identity.jwt.secret_file: "},
		"secret, empty":        {secret, "", "identity.jwt.secret_file: "},
		"set":                  {set, jwks(t, map[string]crypto.Signer{"a": k.ec}), ""},
		"set, a key we ignore": {set, strings.Replace(jwks(t, map[string]crypto.Signer{"a": k.ec}), "[", `[{"kty":"new"},{"kty":"EC","crv":"P-256"},`, 1), ""},
		"set, no JSON":         {set, "-----BEGIN", "is no JWK Set"},
		"set, empty":           {set, `{"keys":[]}`, "no public key"},
		"set, secrets":         {set, oct, "no public key"},
		"set, for encryption":  {set, strings.Replace(jwks(t, map[string]crypto.Signer{"a": k.ec}), `"kty"`, `"use":"enc","kty"`, 1), "no public key"},
	} {
		t.Run(name, func(t *testing.T) {
			rule := dedup.JWT{Claim: "sub"}
			tc.place(&rule, secretFile(t, tc.content))
			_, _, err := testVerifiers(t, ruleFor("/", func(r *dedup.Rule) { r.Identity.JWT = rule }))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "route /: identity.jwt.")):
				t.Errorf("error %v, want %q", err, tc.want)
			case tc.want != "" && strings.Contains(err.Error(), "changeme"):
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
	if _, _, err := testVerifiers(t, ruleFor("/", func(r *dedup.Rule) { r.Identity.JWT = dedup.JWT{Claim: "sub", JWKSFile: "/nowhere/keys"} })); err == nil || !strings.Contains(err.Error(), "identity.jwt.jwks_file: open /nowhere/keys") {
		t.Errorf("error %v", err)
	}
	if _, _, err := testVerifiers(t, ruleFor("/", func(r *dedup.Rule) {
		r.Mode, r.Identity.JWT = dedup.ModeOff, dedup.JWT{Claim: "sub", JWKSFile: "/nowhere/keys"}
	})); err != nil {
		t.Errorf("a route that is off: %v", err)
	}
}

// A keyServer serves a JWK Set, and counts who asks.
type keyServer struct {
	*httptest.Server
	asked  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func newKeyServer(t *testing.T, set string) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.serves(set)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) answers(h http.HandlerFunc) { s.answer.Store(&h) }

func (s *keyServer) serves(set string) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(set)) })
}

func TestRemoteKeys(t *testing.T) {
	k := testKeys()
	old := tokenOf(t, jwt.SigningMethodES256, k.ec, jwt.MapClaims{"sub": "old"}, map[string]any{"kid": "old"})
	renewed := tokenOf(t, jwt.SigningMethodES256, k.other, jwt.MapClaims{"sub": "new"}, map[string]any{"kid": "new"})
	nameless := tokenOf(t, jwt.SigningMethodES256, k.other, jwt.MapClaims{"sub": "new"})
	oldSet, newSet := jwks(t, map[string]crypto.Signer{"old": k.ec}), jwks(t, map[string]crypto.Signer{"new": k.other})
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	start := func(t *testing.T, set string) (*keyServer, *remoteKeys, func(token, want string)) {
		t.Helper()
		s := newKeyServer(t, set)
		v := testVerifier(t, dedup.JWT{JWKSURL: s.URL, OnInvalid: dedup.InvalidMissing})
		return s, v.keys.(*remoteKeys), func(token, want string) {
			t.Helper()
			if got := verdict(v, "Bearer "+token); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	none := rate.NewLimiter(0, 0)
	const unavailable = "identity_unavailable"

	t.Run("rotation", func(t *testing.T) {
		for _, token := range []string{renewed, nameless} {
			s, _, want := start(t, oldSet)
			want(old, "|old")
			s.serves(newSet)
			want(old, "|old")
			want(token, "|new")
			want(old, "") // withdrawn
			if n := s.asked.Load(); n != 3 {
				t.Errorf("asked %d times", n)
			}
		}
	})
	t.Run("made-up keys", func(t *testing.T) {
		s, _, want := start(t, oldSet)
		for range 50 {
			want(renewed, "")
			want(nameless, "")
			want(old, "|old")
		}
		if n := s.asked.Load(); n > jwksBurst {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("down at first", func(t *testing.T) {
		s, keys, want := start(t, oldSet)
		s.answers(fails)
		want(old, unavailable)
		keys.limit = none
		want(old, unavailable)
		keys.limit = rate.NewLimiter(rate.Inf, 0)
		s.serves(oldSet)
		want(old, "|old")
	})
	t.Run("down later", func(t *testing.T) {
		s, keys, want := start(t, oldSet)
		want(old, "|old")
		s.answers(fails)
		want(renewed, unavailable) // it may be there: nobody knows
		want(old, "|old")
		keys.mu.Lock()
		keys.age = 0
		keys.mu.Unlock()
		for range 10 {
			want(old, "|old")
		}
		keys.limit = none
		want(renewed, unavailable)
	})
	t.Run("old keys are forgotten", func(t *testing.T) {
		s, keys, want := start(t, oldSet)
		want(old, "|old")
		s.serves(newSet)
		keys.age = 0
		want(old, "")
	})
	t.Run("answers that are no keys", func(t *testing.T) {
		for name, answer := range map[string]http.HandlerFunc{
			"redirect": func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					_, _ = w.Write([]byte(oldSet))
					return
				}
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			},
			"too large": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"more":"` + strings.Repeat("x", maxJWKS) + `",` + oldSet[1:]))
			},
			"cut": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10000")
				_, _ = w.Write([]byte(oldSet))
			},
			"empty": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
			"text":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("maintenance")) },
		} {
			s, _, want := start(t, oldSet)
			s.answers(answer)
			want(old, unavailable)
			s.serves(oldSet)
			want(old, "|old")
			s.answers(answer)
			want(old, "|old")
			_ = name
		}
	})
	t.Run("one fetch at a time", func(t *testing.T) {
		s, _, want := start(t, oldSet)
		proceed := make(chan struct{})
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			<-proceed
			_, _ = w.Write([]byte(oldSet))
		})
		var all, begun sync.WaitGroup
		for range 50 {
			begun.Add(1)
			all.Go(func() {
				begun.Done()
				want(old, "|old")
			})
		}
		begun.Wait()
		close(proceed)
		all.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("a caller that leaves", func(t *testing.T) {
		s, keys, _ := start(t, oldSet)
		proceed, arrived := make(chan struct{}), make(chan struct{}, 1)
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-proceed
			_, _ = w.Write([]byte(oldSet))
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if _, err := keys.now(ctx); err == nil {
			t.Error("there are keys")
		}
		close(proceed)
		if set, err := keys.now(t.Context()); set == nil || err != nil {
			t.Errorf("its fetch was cut: %v", err)
		}
	})
}

// TestRoutesShareKeys: one URL is asked once, whatever the routes want of the tokens.
func TestRoutesShareKeys(t *testing.T) {
	s := newKeyServer(t, jwks(t, map[string]crypto.Signer{"a": testKeys().ec}))
	rule := func(path, audience string) dedup.Rule {
		return ruleFor(path, func(r *dedup.Rule) { r.Identity.JWT = dedup.JWT{Claim: "sub", JWKSURL: s.URL, Audience: audience} })
	}
	rs, vs, err := testVerifiers(t, rule("/a", ""), rule("/b", ""), rule("/c", "c"), ruleFor("/plain"))
	if err != nil {
		t.Fatal(err)
	}
	if len(vs.byRule) != 2 || len(vs.remote) != 1 {
		t.Errorf("%d verifiers, %d sources", len(vs.byRule), len(vs.remote))
	}
	for pattern, rt := range rs.byPattern {
		if (rt.tokens != nil) != (rt.rule.Path != "/plain") {
			t.Errorf("%s has a verifier: %v", pattern, rt.tokens != nil)
		}
	}
	vs.fetch()
	token := tokenOf(t, jwt.SigningMethodES256, testKeys().ec, jwt.MapClaims{"sub": "a", "aud": "c"}, map[string]any{"kid": "a"})
	for _, v := range vs.byRule {
		if got := verdict(v, "Bearer "+token); got != "|a" {
			t.Errorf("%q", got)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func BenchmarkToken(b *testing.B) {
	k := testKeys()
	file := secretFile(b, jwks(b, map[string]crypto.Signer{"rsa": k.rsa, "ec": k.ec, "ed": k.ed}))
	claims := jwt.MapClaims{"iss": "https://id.example.com", "aud": "pay", "sub": "0123456789", "exp": time.Now().Add(time.Hour).Unix(), "scope": "openid profile payments"}
	for name, tc := range map[string]struct {
		rule   dedup.JWT
		method jwt.SigningMethod
		key    any
	}{
		"HS256": {dedup.JWT{SecretFile: secretFile(b, testSecret)}, jwt.SigningMethodHS256, []byte(testSecret)},
		"RS256": {dedup.JWT{JWKSFile: file}, jwt.SigningMethodRS256, k.rsa},
		"ES256": {dedup.JWT{JWKSFile: file}, jwt.SigningMethodES256, k.ec},
		"EdDSA": {dedup.JWT{JWKSFile: file}, jwt.SigningMethodEdDSA, k.ed},
	} {
		b.Run(name, func(b *testing.B) {
			v := testVerifier(b, tc.rule)
			kid := map[string]any{"kid": map[string]string{"RS256": "rsa", "ES256": "ec", "EdDSA": "ed"}[name]}
			h := http.Header{"Authorization": {"Bearer " + tokenOf(b, tc.method, tc.key, claims, kid)}}
			b.ReportAllocs()
			for b.Loop() {
				if _, rejection := v.subject(b.Context(), h); rejection != nil {
					b.Fatal(rejection)
				}
			}
		})
	}
}
