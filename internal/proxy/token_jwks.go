package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"idemproxy/internal/metrics"
)

const (
	jwksTimeout = 5 * time.Second // of one fetch
	jwksAge     = 5 * time.Minute // after it keys are fetched again, so that one that was withdrawn is forgotten
	jwksEvery   = 5 * time.Second // between two fetches, on average
	jwksBurst   = 3               // fetches that may follow each other at once: keys often change soon after a start
	maxJWKS     = 1 << 20
)

// remoteKeys are keys that a URL serves. They are fetched when a token needs them: when
// there are none, when they are old, and when a token's key is unknown. One fetch runs at a
// time, whoever needs it waits for it, and callers with made-up keys can't provoke more
// than the limit. Keys at hand stay in use for as long as there are no new ones.
type remoteKeys struct {
	url     string
	client  *http.Client
	age     time.Duration
	limit   *rate.Limiter
	log     *zap.Logger
	metrics *metrics.Metrics

	mu      sync.Mutex
	keys    *keySet // nil until a fetch succeeded
	fetched time.Time
	failed  error         // of the last fetch
	running chan struct{} // closed at the end of the fetch that runs; nil when none does
}

// newRemoteKeys connects to nothing yet. Redirects are not followed: where the keys are is
// the configuration's to say.
func newRemoteKeys(at string, m *metrics.Metrics, log *zap.Logger) *remoteKeys {
	return &remoteKeys{
		url: at, age: jwksAge, limit: rate.NewLimiter(rate.Every(jwksEvery), jwksBurst), log: log, metrics: m,
		failed: errors.New("identity.jwt.jwks_url was not asked yet"),
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment, // identity providers are often outside
				ForceAttemptHTTP2:      true,
				IdleConnTimeout:        time.Minute,
				MaxResponseHeaderBytes: 64 << 10,
			},
		},
	}
}

func (k *remoteKeys) prefetch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
}

// now implements keySource. Old keys are good enough while the URL is in trouble.
func (k *remoteKeys) now(ctx context.Context) (*keySet, error) {
	k.mu.Lock()
	keys := k.keys
	fresh := keys != nil && time.Since(k.fetched) < k.age
	if !fresh {
		k.start()
	}
	running := k.running
	wait := keys == nil || running != nil && k.failed == nil
	k.mu.Unlock()
	if fresh || !wait {
		return keys, nil
	}
	newest, err := k.after(ctx, running)
	switch {
	case newest != nil:
		return newest, nil
	case keys != nil:
		return keys, nil
	default:
		return nil, err
	}
}

// newer implements keySource. If it is too early for a fetch, what the last one brought is
// all there is.
func (k *remoteKeys) newer(ctx context.Context, had *keySet) (*keySet, error) {
	k.mu.Lock()
	if k.keys != had {
		defer k.mu.Unlock()
		return k.keys, nil
	}
	k.start()
	running := k.running
	k.mu.Unlock()
	keys, err := k.after(ctx, running)
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// after returns what there is after a fetch: the newest keys, and why that fetch failed.
// Without a fetch it is what there is now.
func (k *remoteKeys) after(ctx context.Context, running <-chan struct{}) (*keySet, error) {
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for keys: %w", ctx.Err())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, k.failed
}

// start starts a fetch, unless one runs or it is too early. k.mu is held. The fetch is not
// that of the caller who needs it: others wait for it too.
func (k *remoteKeys) start() {
	if k.running != nil || !k.limit.Allow() {
		return
	}
	running := make(chan struct{})
	k.running = running
	go func() {
		keys, err := k.fetch()
		k.metrics.JWKSFetch(err == nil)
		if err != nil {
			k.log.Warn("can't fetch the keys of callers' tokens", zap.Error(err))
		}
		k.mu.Lock()
		if err == nil {
			k.keys, k.fetched = keys, time.Now()
		}
		k.failed, k.running = err, nil
		k.mu.Unlock()
		close(running)
	}()
}

// fetch asks the URL. Its errors tell no more of it than the host: a path or query may be
// a secret.
func (k *remoteKeys) fetch() (*keySet, error) {
	at, err := url.Parse(k.url)
	if err != nil {
		return nil, errors.New("identity.jwt.jwks_url is no URL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), jwksTimeout)
	defer cancel()
	text, err := k.get(ctx)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	var keys *keySet
	if err == nil {
		keys, err = parseJWKS(text)
	}
	if err != nil {
		return nil, fmt.Errorf("identity.jwt.jwks_url on %s: %w", at.Host, err)
	}
	return keys, nil
}

func (k *remoteKeys) get(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered with status %d", res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxJWKS+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("answered with more than %d bytes", maxJWKS)
	}
	return text, nil
}
