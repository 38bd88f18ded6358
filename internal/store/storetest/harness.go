package storetest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"idemproxy/internal/dedup"
)

// A Harness is one store, empty, made for one test.
type Harness struct {
	// Store is under test. The maker closes it when the test ends; a test may close it too.
	Store dedup.Store
	// Peer is the same store as another process has it open. Nil means Store.
	Peer dedup.Store
	// Deaf says that nothing is heard of other processes, so that no watch comes into force.
	Deaf bool
	// Advance returns when the store's clock is at least d later. Nil means time.Sleep.
	Advance func(d time.Duration)
	// Plant writes raw bytes where the store keeps the ID's entry, for damaged and foreign
	// entries. Nil skips those tests: a store nobody else can write to has no such entries.
	Plant func(t *testing.T, id dedup.ID, raw []byte)
}

// Run runs the conformance suite in real time, its cases side by side. It calls open once
// for each case.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newSubject(t, open(t)))
		})
	}
}

// RunInBubble runs the conformance suite with each case in a testing/synctest bubble, in
// which time costs nothing: for stores inside the process.
func RunInBubble(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newSubject(t, open(t))) })
		})
	}
}

// A testCase is one thing that a correct store does.
type testCase struct {
	name string
	run  func(s *subject)
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{claimCases(), leaseCases(), completeCases(), ttlCases(), dataCases(), quotaCases(), watchCases(), failureCases(), inspectCases(), trailCases()} {
		all = append(all, group...)
	}
	return all
}

// Durations of the suite: what must not end within a test is long, what must end short.
const (
	long  = time.Hour
	short = 40 * time.Millisecond
	past  = 60 * time.Millisecond // more than short
)

// subject is a store under test, with the words the cases are written in.
type subject struct {
	*testing.T
	Harness
}

func newSubject(t *testing.T, h Harness) *subject {
	if h.Advance == nil {
		h.Advance = time.Sleep
	}
	if h.Peer == nil {
		h.Peer = h.Store
	}
	return &subject{T: t, Harness: h}
}

// newID returns an ID as dedup makes them, that nobody has had before.
func newID() dedup.ID {
	return dedup.ID(dedup.NewToken()) + dedup.ID(dedup.NewToken()[:dedup.TokenLength-1])
}

// request is a claim of an entry nobody has had before, with long durations.
func request() dedup.ClaimRequest {
	return dedup.ClaimRequest{ID: newID(), Token: dedup.NewToken(), Lease: long, TTL: long}
}

// rival is the same claim by somebody else, who knows no better durations.
func rival(req dedup.ClaimRequest) dedup.ClaimRequest {
	req.Token, req.Note, req.Takeover = dedup.NewToken(), nil, false
	return req
}

// usurper is a rival who also takes over.
func usurper(req dedup.ClaimRequest) dedup.ClaimRequest {
	req = rival(req)
	req.Takeover = true
	return req
}

// claim claims and expects a state.
func (s *subject) claim(req dedup.ClaimRequest, want dedup.State) dedup.Found {
	s.Helper()
	found, err := s.Store.Claim(s.Context(), req)
	if err != nil {
		s.Fatalf("Claim: %v", err)
	}
	if found.State != want {
		s.Fatalf("Claim found %s, want %s", stateName(found.State), stateName(want))
	}
	return found
}

func (s *subject) renew(req dedup.ClaimRequest, lease time.Duration, want dedup.Verdict) {
	s.Helper()
	got, err := s.Store.Renew(s.Context(), req.ID, req.Token, lease)
	s.verdict("Renew", got, err, want)
}

// complete records blob for an hour.
func (s *subject) complete(req dedup.ClaimRequest, blob string, want dedup.Verdict) {
	s.Helper()
	s.completeWith(req, dedup.Completion{TTL: long, Blob: []byte(blob)}, want)
}

// abandon marks the outcome unknown.
func (s *subject) abandon(req dedup.ClaimRequest, want dedup.Verdict) {
	s.Helper()
	s.completeWith(req, dedup.Completion{Unknown: true}, want)
}

func (s *subject) completeWith(req dedup.ClaimRequest, c dedup.Completion, want dedup.Verdict) {
	s.Helper()
	got, err := s.Store.Complete(s.Context(), req.ID, req.Token, c)
	s.verdict("Complete", got, err, want)
}

func (s *subject) release(req dedup.ClaimRequest, want dedup.Verdict) {
	s.Helper()
	got, err := s.Store.Release(s.Context(), req.ID, req.Token)
	s.verdict("Release", got, err, want)
}

func (s *subject) verdict(op string, got dedup.Verdict, err error, want dedup.Verdict) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", op, err)
	}
	if got != want {
		s.Fatalf("%s: %s, want %s", op, verdictName(got), verdictName(want))
	}
}

// recorded expects the record blob, as anybody finds it.
func (s *subject) recorded(req dedup.ClaimRequest, blob string) dedup.Found {
	s.Helper()
	found := s.claim(rival(req), dedup.StateCompleted)
	if string(found.Blob) != blob {
		s.Fatalf("record is %.60q (%d bytes), want %.60q (%d bytes)", found.Blob, len(found.Blob), blob, len(blob))
	}
	return found
}

// within expects 0 < d <= limit.
func (s *subject) within(what string, d, limit time.Duration) {
	s.Helper()
	if d <= 0 || d > limit {
		s.Fatalf("%s is %v, want more than 0 and at most %v", what, d, limit)
	}
}

// fails expects an error of a kind.
func (s *subject) fails(op string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: error %v, want %v", op, err, want)
	}
}

func stateName(st dedup.State) string {
	names := map[dedup.State]string{
		dedup.StateAcquired: "acquired", dedup.StateTakenOver: "taken over", dedup.StateInProgress: "in progress",
		dedup.StateUnknown: "unknown", dedup.StateCompleted: "completed",
	}
	return names[st]
}

func verdictName(v dedup.Verdict) string {
	return map[dedup.Verdict]string{dedup.Applied: "applied", dedup.Gone: "gone", dedup.Fenced: "fenced"}[v]
}
