package proxy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// readyTimeout bounds the store's part of a readiness probe; Kubernetes' own default for
// a probe is a second.
const readyTimeout = 900 * time.Millisecond

// adminHandler serves probes and metrics. Nothing on it changes anything.
func (p *Proxy) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.options.Metrics.Handler())
	mux.HandleFunc("GET /healthz", alive) // while the process lives, whatever the store does
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /startupz", alive)
	mux.HandleFunc("GET /readyz", p.ready)
	return mux
}

func alive(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") }

// ready says whether this replica should get requests now.
func (p *Proxy) ready(w http.ResponseWriter, r *http.Request) {
	if p.draining.Load() {
		say(w, http.StatusServiceUnavailable, "not ready: draining")
		return
	}
	if p.options.Admin.ReadyRequiresStore {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := p.options.Store.Ping(ctx); err != nil {
			p.log.Warn("not ready: the store can't be used", zap.Error(err))
			say(w, http.StatusServiceUnavailable, "not ready: the store can't be used; the proxy's log says why")
			return
		}
	}
	say(w, http.StatusOK, "ready")
}

func say(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, line)
}
