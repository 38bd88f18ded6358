package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// TestGuardDecides is the table of contract §2.
func TestGuardDecides(t *testing.T) {
	completed := func(change func(*dedup.Record)) func(*scene) {
		return func(s *scene) {
			r := &dedup.Record{Status: 201, Fingerprint: s.op.Fingerprint, ReplayScope: s.op.ReplayScope, Body: []byte("ok")}
			change(r)
			_, err := s.store.Store.Complete(s.Context(), s.op.ID, s.other(time.Minute), dedup.Completion{TTL: s.rule.TTL, Blob: r.Encode()})
			s.must(err)
		}
	}
	blob := func(b string) func(*scene) {
		return func(s *scene) {
			_, err := s.store.Store.Complete(s.Context(), s.op.ID, s.other(time.Minute), dedup.Completion{TTL: s.rule.TTL, Blob: []byte(b)})
			s.must(err)
		}
	}
	unknown := func(s *scene) {
		_, err := s.store.Store.Complete(s.Context(), s.op.ID, s.other(time.Minute), dedup.Completion{Unknown: true})
		s.must(err)
	}
	leaseOver := func(s *scene) { s.other(time.Minute); time.Sleep(time.Minute) }
	leaseAlive := func(s *scene) { s.other(time.Minute); time.Sleep(time.Minute - time.Millisecond) }
	otherFingerprint := func(r *dedup.Record) { r.Fingerprint[31]++ }
	otherScope := func(r *dedup.Record) { r.ReplayScope[31]++ }
	notStored := func(r *dedup.Record) { r.NotStored, r.Status = true, 507 }

	for name, tc := range map[string]struct {
		found  func(*scene)
		rule   func(*dedup.Rule)
		want   dedup.Reason // or one of the two words below
		detail string
	}{
		"free":                         {found: func(*scene) {}, want: "claim"},
		"in progress":                  {found: func(s *scene) { s.other(time.Minute) }, want: "in_progress", detail: "retry shortly"},
		"in progress, payload differs": {found: func(s *scene) { s.other(time.Minute); s.op.Fingerprint[0]++; s.op.ReplayScope[0]++ }, want: "in_progress"},
		"in progress, release":         {found: func(s *scene) { s.other(time.Minute) }, rule: releaseUnknown, want: "in_progress"},
		"lease almost over":            {found: leaseAlive, want: "in_progress"},
		"lease almost over, release":   {found: leaseAlive, rule: releaseUnknown, want: "in_progress"},
		"lease over, hold":             {found: leaseOver, want: "outcome_unknown", detail: "not executed again"},
		"lease over, release":          {found: leaseOver, rule: releaseUnknown, want: "claim"},
		"unknown, hold":                {found: unknown, want: "outcome_unknown"},
		"unknown, release":             {found: unknown, rule: releaseUnknown, want: "claim"},
		"completed":                    {found: completed(func(*dedup.Record) {}), want: "replay"},
		"completed, release":           {found: completed(func(*dedup.Record) {}), rule: releaseUnknown, want: "replay"},
		"fingerprint differs":          {found: completed(otherFingerprint), want: "key_reuse", detail: "use a new key"},
		"none was recorded":            {found: completed(func(r *dedup.Record) { r.Fingerprint = dedup.Fingerprint{} }), want: "replay"},
		"replay scope differs":         {found: completed(otherScope), want: "replay_scope", detail: "other credentials"},
		"no replay scope was recorded": {found: completed(func(r *dedup.Record) { r.ReplayScope = dedup.ReplayScope{} }), want: "replay_scope"},
		"no replay scope is asked":     {found: completed(otherScope), rule: func(r *dedup.Rule) { r.ReplayScopeHeaders = nil }, want: "replay"},
		"not stored":                   {found: completed(notStored), want: "response_not_stored", detail: "status 507"},
		"both differ":                  {found: completed(func(r *dedup.Record) { otherScope(r); otherFingerprint(r) }), want: "key_reuse"},
		"not stored, fingerprint":      {found: completed(func(r *dedup.Record) { notStored(r); otherFingerprint(r) }), want: "key_reuse"},
		"not stored, replay scope":     {found: completed(func(r *dedup.Record) { notStored(r); otherScope(r) }), want: "replay_scope"},
		"unreadable":                   {found: blob("not a record"), want: "record_unreadable", detail: "nothing was sent on"},
		"unreadable, release":          {found: blob("not a record"), rule: releaseUnknown, want: "record_unreadable"},
		"empty":                        {found: blob(""), want: "record_unreadable"},
		"of the next version":          {found: blob("IDR\x02" + strings.Repeat("\x00", 100)), want: "record_unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.rule, func(s *scene) {
				tc.found(s)
				switch tc.want {
				case "claim":
					s.must(s.mustClaim().Release(s.Context()))
				case "replay":
					if r := s.mustReplay(); r.Status != 201 || string(r.Body) != "ok" {
						t.Errorf("replay %+v", r)
					}
				default:
					rejection := s.mustReject(tc.want)
					wantRejection(t, rejection, tc.want, tc.detail)
					if retry := rejection.RetryAfter; (retry > 0) != (tc.want == "in_progress" || tc.want == "record_unreadable") || retry > time.Second {
						t.Errorf("retry after %v", retry)
					}
				}
				if calls := s.store.at("claim"); len(calls) != 1 {
					t.Errorf("%d round trips, want one", len(calls))
				}
			})
		})
	}
}

// TestGuardRetryAfterIsWithinTheLease: nobody is sent away for longer than the owner has.
func TestGuardRetryAfterIsWithinTheLease(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.other(10 * time.Second)
		for _, tc := range []struct{ after, want time.Duration }{
			{0, time.Second},
			{9 * time.Second, time.Second},
			{700 * time.Millisecond, 300 * time.Millisecond},
			{299 * time.Millisecond, time.Millisecond},
		} {
			time.Sleep(tc.after)
			if got := s.mustReject(dedup.ReasonInProgress).RetryAfter; got != tc.want {
				t.Errorf("retry after %v, want %v", got, tc.want)
			}
		}
	})
}

// TestGuardAsksForWhatTheRuleSays checks each claim request.
func TestGuardAsksForWhatTheRuleSays(t *testing.T) {
	for _, policy := range []dedup.UnknownOutcome{dedup.UnknownHold, dedup.UnknownRelease} {
		inBubble(t, func(r *dedup.Rule) { r.OnUnknownOutcome, r.Lease, r.TTL = policy, time.Minute, time.Hour }, func(s *scene) {
			tokens := map[dedup.Token]bool{}
			s.store.claim = func(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
				if req.ID != s.op.ID || req.Lease != time.Minute || req.TTL != time.Hour || req.Takeover != (policy == dedup.UnknownRelease) {
					t.Errorf("policy %s: claim request %+v", policy, req)
				}
				if len(req.Token) != dedup.TokenLength || tokens[req.Token] {
					t.Errorf("token %q was used already, or is none", req.Token)
				}
				tokens[req.Token] = true
				return s.store.Store.Claim(ctx, req)
			}
			c := s.mustClaim()
			s.mustReject(dedup.ReasonInProgress)
			s.must(c.Release(s.Context()))
		})
	}
}

// TestGuardStoreFails: what the store's failure says about the claim.
func TestGuardStoreFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		reason  dedup.Reason
		inDoubt bool
	}{
		"lost":                     {errLost, "store_unavailable", true},
		"timed out":                {fmt.Errorf("claim entry: %w", context.DeadlineExceeded), "store_unavailable", true},
		"full, who knows":          {dedup.ErrStoreFull, "store_unavailable", true},
		"full":                     {fmt.Errorf("claim entry: %w: %w", dedup.ErrNotApplied, dedup.ErrStoreFull), "store_unavailable", false},
		"closed":                   {fmt.Errorf("%w: %w", dedup.ErrNotApplied, dedup.ErrStoreClosed), "store_unavailable", false},
		"unreadable":               {fmt.Errorf("claim entry: %w", dedup.ErrUnreadable), "record_unreadable", false},
		"an answer that is none":   {nil, "store_unavailable", true},
		"unreadable, not applied":  {fmt.Errorf("%w: %w", dedup.ErrNotApplied, dedup.ErrUnreadable), "record_unreadable", false},
		"not applied, never asked": {dedup.ErrNotApplied, "store_unavailable", false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *scene) {
				s.store.claim = func(context.Context, dedup.ClaimRequest) (dedup.Found, error) { return dedup.Found{}, tc.err }
				d := s.begin()
				wantRejection(t, d.Rejection, tc.reason, "nothing was sent on")
				if d.Claim != nil || d.Replay != nil || (d.InDoubt != nil) != tc.inDoubt {
					t.Errorf("decision %+v, want in doubt: %v", d, tc.inDoubt)
				}
				if d.Rejection.RetryAfter != time.Second {
					t.Errorf("retry after %v", d.Rejection.RetryAfter)
				}
				if tc.err != nil && !errors.Is(d.Rejection, tc.err) {
					t.Errorf("the cause is not for the log: %v", d.Rejection)
				}
				if d.Rejection.Err == nil || strings.Contains(d.Rejection.Detail, d.Rejection.Err.Error()) {
					t.Errorf("the caller sees the cause %v: %q", d.Rejection.Err, d.Rejection.Detail)
				}
				time.Sleep(time.Hour)
				if n := len(s.store.at("renew")); n != 0 {
					t.Errorf("%d renewals of a claim that nobody has", n)
				}
			})
		})
	}
}

// TestGuardOneOfManyExecutes: of requests that come at once, one is executed, those while
// it runs are refused, those after it get its answer.
func TestGuardOneOfManyExecutes(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		const many = 64
		decisions := make(chan dedup.Decision)
		for range many {
			go func() { decisions <- s.begin() }()
		}
		var claim *dedup.Claim
		for range many {
			switch d := <-decisions; {
			case d.Claim != nil && claim == nil:
				claim = d.Claim
			case d.Claim != nil:
				t.Error("a second one is executed")
			case d.Rejection == nil || d.Rejection.Reason != dedup.ReasonInProgress:
				t.Errorf("decision %+v", d)
			}
		}
		if claim == nil {
			t.Fatal("nobody is executed")
		}
		s.must(claim.Complete(s.Context(), answer("ok")))
		for range many {
			go func() { decisions <- s.begin() }()
		}
		for range many {
			if d := <-decisions; d.Replay == nil || string(d.Replay.Body) != "ok" {
				t.Errorf("decision %+v, want a replay", d)
			}
		}
	})
}
