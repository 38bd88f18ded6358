package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
	"idemproxy/internal/store"
)

// slow answers every operation after took, with err; Claim's answer repeats its ID.
type slow struct {
	dedup.Store // nil: only what is below is called
	took        time.Duration
	err         error
	closed      bool
}

func (s *slow) Claim(_ context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	time.Sleep(s.took)
	return dedup.Found{State: dedup.StateCompleted, Blob: []byte(req.ID)}, s.err
}

func (s *slow) Renew(_ context.Context, _ dedup.ID, _ dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	time.Sleep(s.took)
	return dedup.Verdict(lease / time.Second), s.err
}

func (s *slow) Complete(_ context.Context, _ dedup.ID, _ dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	time.Sleep(s.took)
	return dedup.Verdict(c.TTL / time.Second), s.err
}

func (s *slow) Release(context.Context, dedup.ID, dedup.Token) (dedup.Verdict, error) {
	time.Sleep(s.took)
	return dedup.Fenced, s.err
}

func (s *slow) Ping(context.Context) error {
	time.Sleep(s.took)
	return s.err
}

func (s *slow) Look(context.Context, dedup.ID) (dedup.Entry, error) {
	time.Sleep(s.took)
	return dedup.Entry{Size: 1}, s.err
}

func (s *slow) List(_ context.Context, req dedup.ListRequest) (dedup.Page, error) {
	time.Sleep(s.took)
	return dedup.Page{Looked: req.Limit}, s.err
}

func (s *slow) Free(_ context.Context, _ dedup.ID, _ dedup.Token, state dedup.State) (dedup.Verdict, error) {
	time.Sleep(s.took)
	return dedup.Verdict(state), s.err
}

func (s *slow) Tell(context.Context, []byte) error {
	time.Sleep(s.took)
	return s.err
}

func (s *slow) Told(_ context.Context, after string) ([][]byte, string, error) {
	time.Sleep(s.took)
	return nil, after, s.err
}

func (s *slow) Close() error {
	s.closed = true
	return s.err
}

// operations calls each operation of a store once.
func operations(ctx context.Context, s dedup.Store) map[string]error {
	_, claim := s.Claim(ctx, dedup.ClaimRequest{})
	_, renew := s.Renew(ctx, "", "", 0)
	_, complete := s.Complete(ctx, "", "", dedup.Completion{})
	_, release := s.Release(ctx, "", "")
	_, look := s.Look(ctx, "")
	_, list := s.List(ctx, dedup.ListRequest{})
	_, free := s.Free(ctx, "", "", 0)
	_, _, told := s.Told(ctx, "")
	return map[string]error{
		"look": look, "list": list, "free": free, "tell": s.Tell(ctx, nil), "told": told,
		"claim": claim, "renew": renew, "complete": complete, "release": release, "ping": s.Ping(ctx),
	}
}

func TestObservedTimesEveryOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("test")
		for op, err := range operations(t.Context(), store.Observed(&slow{took: 3 * time.Second}, m)) {
			if err != nil {
				t.Errorf("%s: %v", op, err)
			}
			expect(t, m, fmt.Sprintf("idemproxy_store_duration_seconds_sum{op=%q} 3\n", op))
			expect(t, m, fmt.Sprintf("idemproxy_store_duration_seconds_count{op=%q} 1\n", op))
			expect(t, m, fmt.Sprintf("idemproxy_store_failures_total{op=%q} 0\n", op))
		}
	})
}

func TestObservedCountsFailures(t *testing.T) {
	for _, test := range []struct {
		err    error
		failed int
	}{
		{nil, 0},
		{errors.New("connection reset"), 1},
		{fmt.Errorf("claim: %w", dedup.ErrStoreFull), 1},
		{fmt.Errorf("claim: %w", dedup.ErrUnreadable), 1},
		{fmt.Errorf("claim: %w", context.DeadlineExceeded), 1},
		{fmt.Errorf("%w: %w", dedup.ErrNotApplied, dedup.ErrStoreClosed), 0},
		{fmt.Errorf("%w: %w", dedup.ErrNotApplied, context.Canceled), 0},
	} {
		m := metrics.New("test")
		for op, err := range operations(t.Context(), store.Observed(&slow{err: test.err}, m)) {
			if !errors.Is(err, test.err) {
				t.Errorf("%s: got error %v, want %v", op, err, test.err)
			}
			expect(t, m, fmt.Sprintf("idemproxy_store_failures_total{op=%q} %d\n", op, test.failed))
		}
	}
}

func TestObservedPassesEverythingThrough(t *testing.T) {
	ctx, inner := t.Context(), &slow{}
	s := store.Observed(inner, metrics.New("test"))
	if found, _ := s.Claim(ctx, dedup.ClaimRequest{ID: "id"}); found.State != dedup.StateCompleted || string(found.Blob) != "id" {
		t.Errorf("claim: %+v", found)
	}
	if v, _ := s.Renew(ctx, "", "", 1*time.Second); v != dedup.Applied {
		t.Errorf("renew: %v", v)
	}
	if v, _ := s.Complete(ctx, "", "", dedup.Completion{TTL: 2 * time.Second}); v != dedup.Gone {
		t.Errorf("complete: %v", v)
	}
	if v, _ := s.Release(ctx, "", ""); v != dedup.Fenced {
		t.Errorf("release: %v", v)
	}
	if e, _ := s.Look(ctx, ""); e.Size != 1 {
		t.Errorf("look: %+v", e)
	}
	if page, _ := s.List(ctx, dedup.ListRequest{Limit: 3}); page.Looked != 3 {
		t.Errorf("list: %+v", page)
	}
	if v, _ := s.Free(ctx, "", "", 2); v != dedup.Gone {
		t.Errorf("free: %v", v)
	}
	if _, at, _ := s.Told(ctx, "x"); at != "x" {
		t.Errorf("told: %v", at)
	}
	if err := s.Close(); err != nil || !inner.closed {
		t.Errorf("close: %v, closed %v", err, inner.closed)
	}
	unwrapper, ok := s.(interface{ Unwrap() dedup.Store })
	if !ok || unwrapper.Unwrap() != dedup.Store(inner) {
		t.Error("the store inside can't be reached by Unwrap")
	}
}

// expect checks that the metrics page has this line.
func expect(t *testing.T, m *metrics.Metrics, line string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(recorder.Body.String(), "\n"+line) {
		t.Errorf("the page has no line %q", line)
	}
}
