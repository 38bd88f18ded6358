package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// A keySet finds the key of a token.
type keySet struct{ find jwt.Keyfunc }

// A keySource has the keys that verify tokens.
type keySource interface {
	// now returns the keys. It fails when there are none to be had.
	now(ctx context.Context) (*keySet, error)
	// newer returns the keys when those had don't know a token; had itself if there are
	// no others. It fails when nobody knows whether there are.
	newer(ctx context.Context, had *keySet) (*keySet, error)
}

// verifiers are those of all routes. Routes that verify tokens in the same way share one,
// and all that take their keys from one URL share these.
type verifiers struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	byRule  map[dedup.JWT]*verifier
	remote  map[string]*remoteKeys
	fetched map[string]*remoteKeys // for earlier rules
}

// newVerifiers gives every route that reads tokens its verifier. It reads the files of
// keys, and connects to nothing. Keys that were fetched for the rules before stay.
func newVerifiers(rs *routes, before *rules, m *metrics.Metrics, log *zap.Logger) (*verifiers, error) {
	vs := &verifiers{log: log, metrics: m, byRule: map[dedup.JWT]*verifier{}, remote: map[string]*remoteKeys{}}
	if before != nil {
		vs.fetched = before.tokens.remote
	}
	for _, rt := range rs.byPattern {
		rule := rt.rule.Identity.JWT
		if rule.Claim == "" || rt.rule.Mode == dedup.ModeOff {
			continue
		}
		if vs.byRule[rule] == nil {
			keys, err := vs.source(rule)
			if err != nil {
				return nil, fmt.Errorf("route %s: identity.jwt.%w", rt.rule.Name, err)
			}
			vs.byRule[rule] = newVerifier(rule, keys)
		}
		rt.tokens = vs.byRule[rule]
	}
	return vs, nil
}

// fetch fetches the keys that are elsewhere, without waiting for them.
func (vs *verifiers) fetch() {
	for _, keys := range vs.remote {
		keys.prefetch()
	}
}

// source opens the place of a rule's keys. Its errors begin with the setting.
func (vs *verifiers) source(rule dedup.JWT) (keySource, error) {
	switch {
	case rule.SecretFile != "":
		keys, err := newRenewed(func() (*keySet, error) { return loadSecret(rule.SecretFile) }, rule.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("secret_file: %w", err)
		}
		return fileKeys{keys}, nil
	case rule.JWKSFile != "":
		keys, err := newRenewed(func() (*keySet, error) { return loadJWKS(rule.JWKSFile) }, rule.JWKSFile)
		if err != nil {
			return nil, fmt.Errorf("jwks_file: %w", err)
		}
		return fileKeys{keys}, nil
	}
	if vs.remote[rule.JWKSURL] == nil {
		vs.remote[rule.JWKSURL] = vs.fetched[rule.JWKSURL]
	}
	if vs.remote[rule.JWKSURL] == nil {
		vs.remote[rule.JWKSURL] = newRemoteKeys(rule.JWKSURL, vs.metrics, vs.log)
	}
	return vs.remote[rule.JWKSURL], nil
}

// fileKeys are keys of a file, which are taken up when it changes.
type fileKeys struct{ keys *renewed[*keySet] }

func (f fileKeys) now(context.Context) (*keySet, error) { return f.keys.get(), nil }

func (f fileKeys) newer(context.Context, *keySet) (*keySet, error) { return f.keys.get(), nil }

// minSecret is the least that RFC 7518, 3.2 allows for HS256. Shorter ones can be guessed
// by whoever has seen one token.
const minSecret = 32

func loadSecret(file string) (*keySet, error) {
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	secret = bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
	if len(secret) < minSecret {
		return nil, fmt.Errorf("%s holds %d bytes, and the secret of an HMAC needs %d (RFC 7518, 3.2)", file, len(secret), minSecret)
	}
	return &keySet{func(*jwt.Token) (any, error) { return secret, nil }}, nil
}

func loadJWKS(file string) (*keySet, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	keys, err := parseJWKS(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	return keys, nil
}

// parseJWKS reads a JWK Set. Keys of unknown kinds and broken ones are left out (RFC 7517,
// 5), and so are those that are not for signatures, or are secrets: what is published
// proves nothing. Of private keys only the public half is read.
func parseJWKS(text []byte) (*keySet, error) {
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("is no JWK Set (RFC 7517)") // the decoder's error may repeat a key
	}
	var usable []jwkset.JWK
	for _, key := range set.Keys {
		if key.KTY == jwkset.KtyOct || key.USE != "" && key.USE != jwkset.UseSig {
			continue
		}
		if jwk, err := jwkset.NewJWKFromMarshal(key, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{}); err == nil {
			usable = append(usable, jwk)
		}
	}
	if len(usable) == 0 {
		return nil, errors.New("has no public key to verify signatures with")
	}
	store := jwkset.NewMemoryStorage()
	if err := store.KeyReplaceAll(context.Background(), usable); err != nil {
		return nil, err
	}
	keys, err := keyfunc.New(keyfunc.Options{Storage: store})
	if err != nil {
		return nil, err
	}
	return &keySet{keys.Keyfunc}, nil
}
