package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// counts are the series of a page of metrics that begin with one of these names and are
// not 0.
func counts(m *metrics.Metrics, names ...string) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var found []string
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		for _, name := range names {
			if strings.HasPrefix(line, "idemproxy_"+name+"{") && !strings.HasSuffix(line, " 0") {
				found = append(found, strings.TrimPrefix(line, "idemproxy_"))
			}
		}
	}
	return strings.Join(found, "; ")
}

// A deafStore does not take completions: those before the first fenced are lost, the rest are somebody
// else's.
type deafStore struct {
	dedup.Store
	asked  atomic.Int64
	fenced int64 // 0: never
}

func (s *deafStore) Complete(context.Context, dedup.ID, dedup.Token, dedup.Completion) (dedup.Verdict, error) {
	if n := s.asked.Add(1); s.fenced > 0 && n >= s.fenced {
		return dedup.Fenced, nil
	}
	return 0, errors.New("lost")
}

// TestEndsThatTheStoreNeverTakes counts each unknown outcome and each lost lease once.
func TestEndsThatTheStoreNeverTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		path   string
		fenced int64
		want   string
	}{
		"an answer":                          {"/x", 0, `unknown_outcomes_total{cause="store",route="/{rest...}"} 1`},
		"an unknown outcome":                 {"/upstream-failed", 0, `unknown_outcomes_total{cause="connection",route="/{rest...}"} 1`},
		"an answer, fenced at once":          {"/x", 1, `lost_leases_total{route="/{rest...}"} 1`},
		"an answer, fenced in the end":       {"/x", 2, `lost_leases_total{route="/{rest...}"} 1`},
		"an answer, fenced after a while":    {"/x", 3, `lost_leases_total{route="/{rest...}"} 1`},
		"an unknown outcome, fenced in time": {"/upstream-failed", 2, `unknown_outcomes_total{cause="connection",route="/{rest...}"} 1; lost_leases_total{route="/{rest...}"} 1`},
	} {
		t.Run(name, func(t *testing.T) {
			url, _, _ := badUpstream(t)
			deaf := &deafStore{fenced: tc.fenced}
			m := metrics.New("test")
			f := newFront(t, url, []dedup.Rule{ruleFor("/{rest...}", func(r *dedup.Rule) { r.Lease = time.Second })}, func(o *Options) {
				deaf.Store, o.Store = o.Store, deaf
				o.Metrics = m
			})
			f.raw("POST " + tc.path + " HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			f.server.Close()
			f.proxy.later.running.wait(t.Context()) // it gives up with the lease
			if got := counts(m, "unknown_outcomes_total", "lost_leases_total"); !sameParts(got, tc.want) {
				t.Errorf("counted %q, want %q", got, tc.want)
			}
		})
	}
}

func sameParts(a, b string) bool {
	for _, part := range strings.Split(a, "; ") {
		if !strings.Contains(b, part) {
			return false
		}
	}
	return len(a) == len(b)
}

// A lingering writer lets its handler end only after the caller, having read all, is gone.
type lingering struct {
	http.ResponseWriter
	gone <-chan struct{}
	left int
}

func (w *lingering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *lingering) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	if w.left -= n; w.left <= 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		<-w.gone
	}
	return n, err
}

// TestCallersThatReadAllAreNotGone: only who leaves before its answer was delivered is.
func TestCallersThatReadAllAreNotGone(t *testing.T) {
	const size = 100_000
	reached, proceed := make(chan struct{}, 10), make(chan struct{}, 10)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-proceed
		io.WriteString(w, strings.Repeat("x", size))
	}))
	defer up.Close()
	m := metrics.New("test")
	f := newFront(t, up.URL, []dedup.Rule{ruleFor("/{rest...}")}, func(o *Options) { o.Metrics = m })
	served := make(chan struct{}, 10)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { served <- struct{}{} }()
		f.proxy.ServeHTTP(&lingering{w, r.Context().Done(), size}, r)
	}))
	defer front.Close()
	send := func(key string) net.Conn {
		c, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST /x HTTP/1.1\r\nHost: a\r\nIdempotency-Key: "+key+"\r\nContent-Length: 0\r\n\r\n")
		return c
	}
	for range 2 { // an execution and a replay
		c := send("k")
		proceed <- struct{}{}
		if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		<-served
	}
	if got := counts(m, "callers_gone_total"); got != "" {
		t.Errorf("callers that read everything: %s", got)
	}
	c := send("other")
	<-reached
	<-reached
	c.Close()
	proceed <- struct{}{}
	<-served
	if got := counts(m, "callers_gone_total"); got != `callers_gone_total{route="/{rest...}"} 1` {
		t.Errorf("a caller that left: %q", got)
	}
}
