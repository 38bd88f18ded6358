package dedup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// keys are the operator's, of a scene.
func (s *scene) keys() dedup.Keys { return dedup.Keys{Store: s.store, By: "ops@laptop"} }

func (s *scene) show() dedup.Known {
	s.Helper()
	k, err := s.keys().Show(s.Context(), s.op.ID, false)
	s.must(err)
	return k
}

// actions are all that the trail tells since the last time.
func (s *scene) actions(at *string) []dedup.Action {
	s.Helper()
	all, next, err := s.keys().Actions(s.Context(), *at)
	s.must(err)
	*at = next
	return all
}

func TestKeysShowTheLifeOfAKey(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.guard.Replica = "replica-1"
		if k := s.show(); k.State != dedup.KeyFree || k.ID != s.op.ID {
			t.Errorf("free: %+v", k)
		}
		claimed := time.Now().UTC()
		c := s.mustClaim()
		k := s.show()
		if k.State != dedup.KeyInProgress || k.Route != "payments" || k.Replica != "replica-1" || k.Since != claimed || k.LeaseLeft <= 0 || k.TTLLeft <= 0 || k.Size == 0 {
			t.Errorf("in progress: %+v", k)
		}
		s.must(c.Unknown(s.Context()))
		if k := s.show(); k.State != dedup.KeyUnknown || k.Replica != "replica-1" || k.LeaseLeft != 0 || k.Status != 0 {
			t.Errorf("unknown: %+v", k)
		}
		time.Sleep(time.Minute)
		s.must(c.Complete(s.Context(), answer("secret"))) // the answer came after all
		k = s.show()
		if k.State != dedup.KeyCompleted || k.Status != 201 || k.Route != "payments" || time.Since(k.Since) != 0 || k.Response != nil {
			t.Errorf("completed: %+v", k)
		}
		k, err := s.keys().Show(s.Context(), s.op.ID, true)
		s.must(err)
		if k.Response == nil || string(k.Response.Body) != "secret" || len(k.Response.Header["Set-Cookie"]) != 2 {
			t.Errorf("with its response: %+v", k.Response)
		}
	})
}

func TestKeysReleaseAnUnknownOutcome(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		at := ""
		s.actions(&at)
		s.must(s.mustClaim().Unknown(s.Context()))
		s.mustReject(dedup.ReasonOutcomeUnknown)
		k, err := s.keys().Release(s.Context(), s.op.ID, false)
		s.must(err)
		if k.State != dedup.KeyUnknown || k.Route != "payments" {
			t.Errorf("freed %+v", k)
		}
		want := dedup.Action{Action: "release", At: time.Now().UTC(), By: "ops@laptop", Keys: 1, ID: s.op.ID, State: dedup.KeyUnknown, Route: "payments"}
		if got := s.actions(&at); len(got) != 1 || got[0] != want {
			t.Errorf("actions %+v, want %+v", got, want)
		}
		if _, err := s.keys().Release(s.Context(), s.op.ID, true); !errors.Is(err, dedup.ErrKeyFree) {
			t.Errorf("freed again: %v", err)
		}
		s.must(s.mustClaim().Complete(s.Context(), answer("ok")))
		if k, err := s.keys().Release(s.Context(), s.op.ID, true); !errors.Is(err, dedup.ErrKeyCompleted) || k.State != dedup.KeyCompleted {
			t.Errorf("freed a record: %+v, %v", k, err)
		}
		if got := s.actions(&at); len(got) != 0 {
			t.Errorf("actions %+v", got)
		}
		if _, err = s.keys().Remove(s.Context(), s.op.ID); err != nil {
			t.Errorf("remove: %v", err)
		}
		if got := s.actions(&at); len(got) != 1 || got[0].Action != "purge" || got[0].State != dedup.KeyCompleted {
			t.Errorf("actions %+v", got)
		}
		s.must(s.mustClaim().Release(s.Context()))
	})
}

func TestKeysReleaseOfALivingClaimFencesItsOwner(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		owner := s.mustClaim()
		for what, free := range map[string]func() (dedup.Known, error){
			"release": func() (dedup.Known, error) { return s.keys().Release(s.Context(), s.op.ID, false) },
			"remove":  func() (dedup.Known, error) { return s.keys().Remove(s.Context(), s.op.ID) },
		} {
			if k, err := free(); !errors.Is(err, dedup.ErrKeyLive) || k.State != dedup.KeyInProgress {
				t.Errorf("%s: %+v, %v", what, k, err)
			}
		}
		_, err := s.keys().Release(s.Context(), s.op.ID, true)
		s.must(err)
		next := s.mustClaim()
		if err := owner.Complete(s.Context(), answer("late")); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("the old owner completes: %v", err)
		}
		s.must(next.Complete(s.Context(), answer("next")))
		if r := s.mustReplay(); string(r.Body) != "next" {
			t.Errorf("replay %q", r.Body)
		}
	})
}

// What happens between the look and the removal stays.
func TestKeysRemoveNothingThatChanged(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		c := s.mustClaim()
		s.must(c.Unknown(s.Context()))
		meddled := &meddler{double: s.store, before: func() { s.must(c.Complete(s.Context(), answer("after all"))) }}
		k := dedup.Keys{Store: meddled}
		if _, err := k.Release(s.Context(), s.op.ID, true); !errors.Is(err, dedup.ErrKeyChanged) {
			t.Errorf("released: %v", err)
		}
		if done, err := k.Purge(s.Context(), dedup.Filter{}, "", 100); err != nil || done.Looked != 1 || done.Removed != 1 {
			t.Errorf("purged %+v, %v", done, err) // it is a record by now, and seen as one
		}
	})
}

// A meddler lets something happen before the first removal.
type meddler struct {
	*double
	before func()
}

func (m *meddler) Free(ctx context.Context, id dedup.ID, token dedup.Token, state dedup.State) (dedup.Verdict, error) {
	if m.before != nil {
		m.before()
		m.before = nil
	}
	return m.double.Free(ctx, id, token, state)
}

// fill makes a key of each kind that can be purged, on two routes, an hour apart.
func fill(s *scene) map[string]dedup.ID {
	ids := map[string]dedup.ID{}
	for _, route := range []string{"payments", "orders"} {
		r := rule(s.T, func(r *dedup.Rule) { r.Name, r.TTL = route, 240*time.Hour })
		for _, kind := range []string{"unknown", "recorded", "large"} {
			op := dedup.Operation{ID: dedup.Scope{}.ID(dedup.Key(route + kind))}
			ids[route+" "+kind] = op.ID
			c := s.guard.Begin(s.Context(), r, op).Claim
			switch kind {
			case "unknown":
				s.must(c.Unknown(s.Context()))
			case "recorded":
				s.must(c.Complete(s.Context(), answer("ok")))
			case "large":
				s.must(c.Complete(s.Context(), answer(strings.Repeat("x", 100_000))))
			}
		}
		time.Sleep(time.Hour)
	}
	return ids
}

func TestKeysListAndPurgeWhatIsMeant(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		at := ""
		s.actions(&at)
		ids := fill(s)
		list := func(f dedup.Filter) []string {
			var names []string
			cursor := ""
			for {
				page, err := s.keys().List(s.Context(), f, cursor, 2)
				s.must(err)
				for _, k := range page.Keys {
					for name, id := range ids {
						if id == k.ID {
							names = append(names, name)
						}
					}
				}
				if cursor = page.Next; cursor == "" {
					slices.Sort(names)
					return names
				}
			}
		}
		for _, test := range []struct {
			filter dedup.Filter
			want   string
		}{
			{dedup.Filter{State: dedup.KeyUnknown}, "orders unknown, payments unknown"},
			{dedup.Filter{State: dedup.KeyCompleted, Route: "orders"}, "orders large, orders recorded"},
			{dedup.Filter{State: dedup.KeyCompleted, OlderThan: 90 * time.Minute}, "payments large, payments recorded"},
			{dedup.Filter{Route: "nowhere"}, ""},
			{dedup.Filter{State: dedup.KeyUnreadable}, ""},
		} {
			if got := strings.Join(list(test.filter), ", "); got != test.want {
				t.Errorf("%+v lists %q, want %q", test.filter, got, test.want)
			}
		}
		if _, err := s.keys().Purge(s.Context(), dedup.Filter{State: dedup.KeyInProgress}, "", 10); !errors.Is(err, dedup.ErrKeysUnnamed) {
			t.Errorf("running requests are purged: %v", err)
		}
		token := s.other(time.Hour)
		done, err := s.keys().Purge(s.Context(), dedup.Filter{Route: "orders"}, "", 1000)
		if err != nil || done.Removed != 3 || done.Next != "" || done.Looked != 7 {
			t.Errorf("purged %+v, %v", done, err)
		}
		if got := s.actions(&at); len(got) != 1 || got[0].Action != "purge" || got[0].Keys != 3 || got[0].Route != "orders" {
			t.Errorf("actions %+v", got)
		}
		done, err = s.keys().Purge(s.Context(), dedup.Filter{}, "", 1000)
		if err != nil || done.Removed != 3 {
			t.Errorf("purged %+v, %v", done, err)
		}
		if v, err := s.store.Renew(s.Context(), s.op.ID, token, time.Hour); v != dedup.Applied {
			t.Errorf("a running request was purged: %v, %v", v, err)
		}
	})
}

// What is known is the same after JSON, which has no token and, unasked, no answer.
func TestKnownAsJSON(t *testing.T) {
	k := dedup.Known{
		ID: "id", State: dedup.KeyCompleted, Route: "payments", Replica: "r", Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		LeaseLeft: dedup.Seconds(1500 * time.Millisecond), TTLLeft: dedup.Seconds(time.Hour), Status: 201, Size: 9,
	}
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"key_hash":"id","state":"completed","route":"payments","owner":"r","since":"2026-03-01T12:00:00Z","lease_left_seconds":1.5,"ttl_left_seconds":3600,"status":201,"size_bytes":9}`
	if string(b) != want {
		t.Errorf("JSON is\n%s, want\n%s", b, want)
	}
	var again dedup.Known
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&again); err != nil || again != k {
		t.Errorf("again %+v, %v", again, err)
	}
}
