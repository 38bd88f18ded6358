package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"idemproxy/internal/dedup"
)

// A panickingStore panics once, at the operation that it is told, with a secret of a caller.
type panickingStore struct {
	dedup.Store
	at atomic.Value // of string
}

func (s *panickingStore) panics(op string) {
	if s.at.CompareAndSwap(op, "") {
		panic("it broke on SEKRIT")
	}
}

func (s *panickingStore) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	s.panics("claim")
	found, err := s.Store.Claim(ctx, req)
	s.panics("claimed")
	return found, err
}

func (s *panickingStore) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	s.panics("complete")
	verdict, err := s.Store.Complete(ctx, id, token, c)
	s.panics("completed")
	return verdict, err
}

// A panickingTransport panics with a runtime error when it is asked to send.
type panickingTransport struct{}

func (panickingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	none := make([]string, 0)
	return nil, fmt.Errorf("no %s", none[len(r.Method)])
}

// TestPanics: a fault of this program, wherever it shows, is logged once with its stack and
// without what it is about, and answered; the key follows the rules for unknown outcomes.
func TestPanics(t *testing.T) {
	served := atomic.Int64{}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Execution", fmt.Sprint(served.Add(1)))
		io.WriteString(w, "ok")
	}))
	t.Cleanup(up.Close)
	for name, tc := range map[string]struct {
		at        string // of the store; "transport" is the way to the upstream
		fault     string // what the log says of it
		retry     int    // status of the second request with the key
		served    int64  // how often the upstream was reached in the end
		unguarded bool   // no rule matches
	}{
		"before the claim":            {at: "claim", fault: "string", retry: 200, served: 1},
		"after the claim":             {at: "claimed", fault: "string", retry: 409, served: 0},
		"on the way to the upstream":  {at: "transport", fault: "runtime error: index out of range [4] with length 0", retry: 409, served: 0},
		"before the answer was kept":  {at: "complete", fault: "string", retry: 409, served: 1},
		"when the answer was kept":    {at: "completed", fault: "string", retry: 200, served: 1},
		"of a request without a rule": {at: "transport", fault: "runtime error: index out of range [4] with length 0", unguarded: true},
	} {
		t.Run(name, func(t *testing.T) {
			served.Store(0)
			broken := &panickingStore{}
			broken.at.Store("")
			core, logs := observer.New(zap.DebugLevel)
			f := newFront(t, up.URL, []dedup.Rule{ruleFor("/pay", func(r *dedup.Rule) { r.Lease = 300 * time.Millisecond })}, func(o *Options) {
				broken.Store, o.Store = o.Store, broken
				o.Log = zap.New(core)
			})
			errorLog, _ := zap.NewStdLogAt(f.proxy.log, zap.DebugLevel)
			f.server.Config.ErrorLog = errorLog // as servers has it
			guarded, plain := f.proxy.upstream.guarded, f.proxy.plain.Transport
			if broken.at.Store(tc.at); tc.at == "transport" {
				f.proxy.upstream.guarded, f.proxy.plain.Transport = panickingTransport{}, panickingTransport{}
			}
			request := "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: SEKRIT\r\nContent-Length: 6\r\n\r\nSEKRIT"
			if tc.unguarded {
				request = strings.Replace(request, "/pay", "/elsewhere", 1)
			}

			res, body := f.raw(request)
			if res.StatusCode != 502 || !strings.Contains(body, `"code":"upstream_failed"`) || strings.Contains(body, "SEKRIT") {
				t.Errorf("status %d, body %s", res.StatusCode, body)
			}
			panics := logs.FilterMessageSnippet("panic")
			if panics.Len() != 1 {
				t.Fatalf("the panic is logged %d times: %v", panics.Len(), logs.All())
			}
			entry := panics.All()[0]
			if entry.Level != zap.ErrorLevel || entry.ContextMap()["fault"] != tc.fault || !strings.Contains(entry.Stack, "rescue_test.go") {
				t.Errorf("logged as %v", entry)
			}
			if text := fmt.Sprint(logs.All()); strings.Contains(text, "SEKRIT") {
				t.Errorf("the log has what the caller sent: %s", text)
			}
			if n := f.proxy.budget.requests.Load(); n != 0 {
				t.Errorf("%d requests still count as served", n)
			}
			if tc.unguarded {
				return
			}
			f.proxy.upstream.guarded, f.proxy.plain.Transport = guarded, plain
			lines := logs.FilterMessage("request").All()
			if len(lines) != 1 || lines[0].ContextMap()["outcome"] != outcomeFailed || lines[0].ContextMap()["status"] != int64(502) {
				t.Errorf("the request is logged as %v", lines)
			}
			// In progress until the lease is over, where the claim was lost on the way.
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if res, body = f.raw(request); !strings.Contains(body, "in_progress") || time.Now().After(deadline) {
					break
				}
			}
			if res.StatusCode != tc.retry || tc.retry == 409 && !strings.Contains(body, "outcome_unknown") {
				t.Errorf("retry: status %d, body %s", res.StatusCode, body)
			}
			if n := served.Load(); n != tc.served {
				t.Errorf("the upstream was reached %d times, want %d", n, tc.served)
			}
		})
	}
}

// TestPanicsOfAnObserver: what a rule that observes does beside the request harms nobody.
func TestPanicsOfAnObserver(t *testing.T) {
	up, _ := seenBy(t)
	broken := &panickingStore{}
	broken.at.Store("claim")
	core, logs := observer.New(zap.DebugLevel)
	f := newFront(t, up, []dedup.Rule{ruleFor("/pay", func(r *dedup.Rule) { r.Mode = dedup.ModeObserve })}, func(o *Options) {
		broken.Store, o.Store = o.Store, broken
		o.Log = zap.New(core)
	})
	for range 2 {
		if res, body := f.raw("POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: SEKRIT\r\nContent-Length: 6\r\n\r\nSEKRIT"); res.StatusCode != 201 {
			t.Errorf("status %d, body %s", res.StatusCode, body)
		}
	}
	f.proxy.later.wait(t.Context())
	f.server.Close()
	if n := logs.FilterMessageSnippet("panic").Len(); n != 1 {
		t.Errorf("the panic is logged %d times", n)
	}
	if n := logs.FilterMessage("request").Len(); n != 2 {
		t.Errorf("%d requests are logged: %v", n, logs.All())
	}
	if text := fmt.Sprint(logs.All()); strings.Contains(text, "SEKRIT") {
		t.Errorf("the log has what the caller sent: %s", text)
	}
}
