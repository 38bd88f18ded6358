package dedup_test

import (
	"errors"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

// A caller learns of its own keys what a retry would tell, and of others nothing.
func TestAsk(t *testing.T) {
	m := store.NewMemory(store.DefaultConfig().Memory)
	t.Cleanup(func() { m.Close() })
	g := dedup.NewGuard(m)
	payments := rule(t, func(r *dedup.Rule) { r.IdentityHeader = "X-Account" })
	begin := func(key string, header dedup.Header) *dedup.Claim {
		t.Helper()
		scope, rejection := payments.Scope(header, nil)
		wantRejection(t, rejection, "", "")
		op, rejection := payments.Operation(scope, dedup.Key(key), dedup.Request{Method: "POST", Target: "/payments", Header: header})
		wantRejection(t, rejection, "", "")
		d := g.Begin(t.Context(), payments, op)
		if d.Claim == nil {
			t.Fatalf("%s: %v", key, d.Rejection)
		}
		return d.Claim
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mine := headers("X-Account: a", "Authorization: Bearer mine")
	completed := time.UnixMilli(1_700_000_000_000).UTC()
	begin("live", mine)
	must(begin("lost", mine).Unknown(t.Context()))
	must(begin("done", mine).Complete(t.Context(), &dedup.Record{Status: 201, Completed: completed, Body: []byte("body")}))
	must(begin("large", mine).Complete(t.Context(), &dedup.Record{Status: 200, Completed: completed, NotStored: true}))

	done := dedup.Standing{State: dedup.KeyCompleted, Status: 201, Completed: completed}
	free := dedup.Standing{State: dedup.KeyFree}
	for name, tc := range map[string]struct {
		key    string
		header dedup.Header
		change func(*dedup.Rule)
		want   dedup.Standing
	}{
		"nobody's":                 {key: "none", want: free},
		"running":                  {key: "live", want: dedup.Standing{State: dedup.KeyInProgress}},
		"unknown":                  {key: "lost", want: dedup.Standing{State: dedup.KeyUnknown}},
		"completed":                {key: "done", want: done},
		"too large":                {key: "large", want: dedup.Standing{State: dedup.KeyCompleted, Status: 200, Completed: completed, NotStored: true}},
		"another caller":           {key: "done", header: headers("X-Account: b", "Authorization: Bearer mine"), want: free},
		"another caller, running":  {key: "live", header: headers("X-Account: b", "Authorization: Bearer mine"), want: free},
		"other credentials":        {key: "done", header: headers("X-Account: a", "Authorization: Bearer other"), want: free},
		"no credentials":           {key: "done", header: headers("X-Account: a"), want: free},
		"another route":            {key: "done", change: func(r *dedup.Rule) { r.Name = "orders" }, want: free},
		"another route, running":   {key: "live", change: func(r *dedup.Rule) { r.Name = "orders" }, want: free},
		"a route that binds less":  {key: "done", header: headers("X-Account: a"), change: func(r *dedup.Rule) { r.Name, r.ReplayScopeHeaders = "orders", nil }, want: free},
		"bound no more":            {key: "done", header: headers("X-Account: a"), change: func(r *dedup.Rule) { r.ReplayScopeHeaders = nil }, want: done},
		"bound by more":            {key: "done", change: func(r *dedup.Rule) { r.ReplayScopeHeaders = []string{"Authorization", "X-User"} }, want: free},
		"forgotten":                {key: "done", change: func(r *dedup.Rule) { r.Version = "2" }, want: free},
		"who may not be asked now": {key: "done", change: func(r *dedup.Rule) { r.ReplayAuth.URL = "http://auth:9000/" }, want: dedup.Standing{State: dedup.KeyCompleted}},
	} {
		r := *payments
		if tc.change != nil {
			tc.change(&r)
		}
		header := tc.header
		if header == nil {
			header = mine
		}
		scope, rejection := r.Scope(header, nil)
		wantRejection(t, rejection, "", "")
		id, got, rejection := g.Ask(t.Context(), &r, scope, dedup.Key(tc.key), header)
		wantRejection(t, rejection, "", "")
		if got != tc.want || id != scope.ID(dedup.Key(tc.key)) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestAskOfAStoreThatFails(t *testing.T) {
	m := store.NewMemory(store.DefaultConfig().Memory)
	m.Close()
	_, _, rejection := dedup.NewGuard(m).Ask(t.Context(), rule(t, nil), dedup.Scope{}, "key", headers())
	wantRejection(t, rejection, dedup.ReasonStoreUnavailable, "")
	if !errors.Is(rejection, dedup.ErrStoreClosed) {
		t.Errorf("%v, want the store's own error for the log", rejection)
	}
}
