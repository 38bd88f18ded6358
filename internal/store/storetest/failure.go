package storetest

import (
	"context"
	"errors"
	"time"

	"idemproxy/internal/dedup"
)

// failureCases say what errors mean.
func failureCases() []testCase {
	return []testCase{
		{"ping", func(s *subject) {
			if err := s.Store.Ping(s.Context()); err != nil {
				s.Fatalf("Ping: %v", err)
			}
		}},
		{"nothing is done for a caller who is gone", callerGone},
		{"closed store", closedStore},
		{"foreign entries are unreadable and stay", foreignEntries},
	}
}

func callerGone(s *subject) {
	cancelled, cancel := context.WithCancel(s.Context())
	cancel()
	late, cancelLate := context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		for op, err := range s.everyOp(ctx, request()) {
			s.fails(op, err, want)
			s.fails(op, err, dedup.ErrNotApplied)
		}
		req := request()
		s.claim(req, dedup.StateAcquired)
		for op, err := range s.everyOp(ctx, req) {
			s.fails(op, err, want)
		}
		s.claim(req, dedup.StateAcquired) // still, and the repeated operation works
		s.complete(req, "answer", dedup.Applied)
		s.recorded(req, "answer")
	}
}

func closedStore(s *subject) {
	req := request()
	s.claim(req, dedup.StateAcquired)
	if err := s.Store.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	if err := s.Store.Close(); err != nil {
		s.Fatalf("second Close: %v", err)
	}
	for op, err := range s.everyOp(s.Context(), req) {
		s.fails(op, err, dedup.ErrStoreClosed)
	}
}

// everyOp tries each operation and returns the errors by name.
func (s *subject) everyOp(ctx context.Context, req dedup.ClaimRequest) map[string]error {
	errs := make(map[string]error)
	_, errs["Claim"] = s.Store.Claim(ctx, req)
	_, errs["Renew"] = s.Store.Renew(ctx, req.ID, req.Token, long)
	_, errs["Complete"] = s.Store.Complete(ctx, req.ID, req.Token, dedup.Completion{TTL: long, Blob: []byte("no")})
	_, errs["Release"] = s.Store.Release(ctx, req.ID, req.Token)
	_, errs["Enroll"] = s.Store.Enroll(ctx, dedup.Enrolment{Scope: newScope(), ID: req.ID, Token: req.Token, TTL: long, Limit: 1})
	errs["Dismiss"] = s.Store.Dismiss(ctx, newScope(), req.ID, req.Token)
	_, errs["Look"] = s.Store.Look(ctx, req.ID)
	_, errs["Free"] = s.Store.Free(ctx, req.ID, req.Token, dedup.StateInProgress)
	errs["Ping"] = s.Store.Ping(ctx)
	return errs
}

func foreignEntries(s *subject) {
	if s.Plant == nil {
		s.Skip("nobody else can write to this store")
	}
	for _, raw := range []string{"x", `{"status":200}`, "\x00\xff", "id2", longForeign} {
		req := request()
		s.Plant(s.T, req.ID, []byte(raw))
		for range 2 { // what is unreadable must not have been repaired or removed
			for op, err := range s.everyOp(s.Context(), req) {
				if op == "Ping" || op == "Enroll" || op == "Dismiss" { // they look at no entry
					continue
				}
				if !errors.Is(err, dedup.ErrUnreadable) {
					s.Errorf("%s of %.20q: error %v, want %v", op, raw, err, dedup.ErrUnreadable)
				}
			}
			if _, err := s.Store.Claim(s.Context(), usurper(req)); !errors.Is(err, dedup.ErrUnreadable) {
				s.Errorf("Claim with Takeover of %.20q: error %v, want %v", raw, err, dedup.ErrUnreadable)
			}
		}
	}
}

// longForeign is longer than any header.
const longForeign = "a string of somebody else's program, which is quite a bit longer than the header of any entry of ours"
