package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"idemproxy/internal/dedup"

	"idemproxy/internal/metrics"
)

// A pingStore is a store that is only asked whether it works.
type pingStore struct {
	dedup.Store
	ping func(context.Context) error
}

func (s pingStore) Ping(ctx context.Context) error { return s.ping(ctx) }

func pingWorks(context.Context) error { return nil }
func pingFails(context.Context) error { return errors.New("dial tcp 192.0.2.1: SEKRIT") }

// pingHangs answers only when it must.
func pingHangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// administered is a proxy of which only the admin endpoints work.
func administered(ping func(context.Context) error, change func(*Proxy)) http.Handler {
	p := &Proxy{options: Options{Admin: DefaultAdminConfig(), Store: pingStore{ping: ping}, Metrics: metrics.New("1.2.3")}, log: zap.NewNop()}
	if change != nil {
		change(p)
	}
	return p.adminHandler()
}

func TestAdmin(t *testing.T) {
	draining := func(p *Proxy) { p.draining.Store(true) }
	storeless := func(p *Proxy) { p.options.Admin.ReadyRequiresStore = false }
	for name, tc := range map[string]struct {
		method, path string
		ping         func(context.Context) error
		change       func(*Proxy)
		status       int
		body         string
	}{
		"healthz":                      {path: "/healthz", status: 200, body: "ok\n"},
		"healthz, store broken":        {path: "/healthz", ping: pingFails, status: 200, body: "ok\n"},
		"healthz, draining":            {path: "/healthz", change: draining, status: 200, body: "ok\n"},
		"livez":                        {path: "/livez", ping: pingFails, status: 200, body: "ok\n"},
		"startupz":                     {path: "/startupz", ping: pingFails, status: 200, body: "ok\n"},
		"readyz":                       {path: "/readyz", status: 200, body: "ready\n"},
		"readyz, store broken":         {path: "/readyz", ping: pingFails, status: 503, body: "not ready: the store can't be used; the proxy's log says why\n"},
		"readyz, store not required":   {path: "/readyz", ping: pingFails, change: storeless, status: 200, body: "ready\n"},
		"readyz, draining":             {path: "/readyz", change: draining, status: 503, body: "not ready: draining\n"},
		"readyz, draining, no store":   {path: "/readyz", change: func(p *Proxy) { draining(p); storeless(p) }, status: 503, body: "not ready: draining\n"},
		"readyz with a query":          {path: "/readyz?verbose", status: 200, body: "ready\n"},
		"HEAD":                         {method: "HEAD", path: "/readyz", status: 200},
		"HEAD, store broken":           {method: "HEAD", path: "/readyz", ping: pingFails, status: 503},
		"nothing else":                 {path: "/", status: 404, body: "404 page not found\n"},
		"nothing below":                {path: "/healthz/x", status: 404, body: "404 page not found\n"},
		"no pprof":                     {path: "/debug/pprof/", status: 404, body: "404 page not found\n"},
		"nothing that changes by POST": {method: "POST", path: "/readyz", status: 405},
		"nothing that changes by PUT":  {method: "PUT", path: "/metrics", status: 405},
		"nothing that is removed":      {method: "DELETE", path: "/healthz", status: 405},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.ping == nil {
				tc.ping = pingWorks
			}
			if tc.method == "" {
				tc.method = "GET"
			}
			w := httptest.NewRecorder()
			administered(tc.ping, tc.change).ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
			if w.Code != tc.status {
				t.Errorf("status %d, want %d", w.Code, tc.status)
			}
			if body := w.Body.String(); tc.body != "" && body != tc.body || strings.Contains(body, "SEKRIT") {
				t.Errorf("body %q, want %q", body, tc.body)
			}
			if got := w.Header().Get("Content-Type"); w.Code != 405 && got != "text/plain; charset=utf-8" {
				t.Errorf("content type %q", got)
			}
		})
	}
}

func TestAdminMetrics(t *testing.T) {
	w := httptest.NewRecorder()
	administered(pingFails, nil).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, "idemproxy_build_info{") || !strings.Contains(body, `version="1.2.3"`) {
		t.Errorf("status %d, body %q", w.Code, body)
	}
}

// TestAdminReadyIsAnsweredInTime: a probe is given a second, and a store that hangs must
// not make it fail for another reason than the store.
func TestAdminReadyIsAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, w := time.Now(), httptest.NewRecorder()
		administered(pingHangs, nil).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if took := time.Since(start); w.Code != 503 || took >= time.Second || took < 500*time.Millisecond {
			t.Errorf("status %d after %v", w.Code, took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start, w = time.Now(), httptest.NewRecorder()
		administered(pingHangs, nil).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil).WithContext(ctx))
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("a probe whose caller is gone takes %v", took)
		}

		start, w = time.Now(), httptest.NewRecorder()
		administered(pingHangs, nil).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		if took := time.Since(start); w.Code != 200 || took != 0 {
			t.Errorf("healthz asks the store: status %d after %v", w.Code, took)
		}
	})
}
