package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"idemproxy/internal/dedup"
)

// figures are one measurement.
type figures struct {
	claim, complete, replay timing
}

// A timing is how long the operations of one kind took.
type timing struct {
	n        int
	rate     float64 // a second
	p50, p99 time.Duration
}

// String is three cells of a table.
func (t timing) String() string {
	return fmt.Sprintf("%.0f\t%s\t%s\t", t.rate, short(t.p50), short(t.p99))
}

func short(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}

// lifetime is that of claims and records: longer than any run.
const lifetime = 24 * time.Hour

// newRequest is a claim of an entry that nobody has had before.
func newRequest() dedup.ClaimRequest {
	id := dedup.ID(dedup.NewToken()) + dedup.ID(dedup.NewToken()[:dedup.TokenLength-1])
	return dedup.ClaimRequest{ID: id, Token: dedup.NewToken(), Lease: lifetime, TTL: lifetime}
}

// measure has callers claim for some time, complete what they have claimed, and replay
// that for the same time again.
func measure(ctx context.Context, s dedup.Store, callers int, d time.Duration, size int) (f figures, err error) {
	claims := make([][]dedup.ClaimRequest, callers)
	blob := make([]byte, size)
	for i := range blob {
		blob[i] = byte(i * 7)
	}
	f.claim, err = together(callers, d, func(caller, _ int) (func() error, bool) {
		req := newRequest()
		return func() error {
			found, err := s.Claim(ctx, req)
			claims[caller] = append(claims[caller], req)
			return expect(err, found.State == dedup.StateAcquired)
		}, true
	})
	if err != nil {
		return f, fmt.Errorf("claim: %w", err)
	}
	f.complete, err = together(callers, time.Hour, func(caller, turn int) (func() error, bool) {
		if turn == len(claims[caller]) {
			return nil, false
		}
		req := claims[caller][turn]
		return func() error {
			verdict, err := s.Complete(ctx, req.ID, req.Token, dedup.Completion{TTL: lifetime, Blob: blob})
			return expect(err, verdict == dedup.Applied)
		}, true
	})
	if err != nil {
		return f, fmt.Errorf("complete: %w", err)
	}
	f.replay, err = together(callers, d, func(caller, turn int) (func() error, bool) {
		if len(claims[caller]) == 0 {
			return nil, false
		}
		req := claims[caller][turn%len(claims[caller])]
		req.Token = dedup.NewToken()
		return func() error {
			found, err := s.Claim(ctx, req)
			return expect(err, found.State == dedup.StateCompleted && len(found.Blob) == size)
		}, true
	})
	if err != nil {
		return f, fmt.Errorf("replay: %w", err)
	}
	return f, nil
}

func expect(err error, right bool) error {
	if err == nil && !right {
		return errors.New("the store says something else")
	}
	return err
}

// together has callers take turns of their own for some time, or until there are none left,
// and times the operations that next returns.
func together(callers int, d time.Duration, next func(caller, turn int) (func() error, bool)) (timing, error) {
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	start := time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for turn := 0; time.Since(start) < d; turn++ {
				op, more := next(c, turn)
				if !more {
					return
				}
				began := time.Now()
				if errs[c] = op(); errs[c] != nil {
					return
				}
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	all := slices.Concat(took...)
	for _, err := range errs {
		if err != nil {
			return timing{}, err
		}
	}
	if len(all) == 0 {
		return timing{}, errors.New("nothing was done in time")
	}
	slices.Sort(all)
	return timing{
		n: len(all), rate: float64(len(all)) / elapsed.Seconds(),
		p50: all[len(all)/2], p99: all[len(all)*99/100],
	}, nil
}

// fill keeps so many more records, without measuring: a completion without a claim is kept
// too.
func fill(ctx context.Context, s dedup.Store, n, size int) error {
	if n <= 0 {
		return nil
	}
	blob := make([]byte, size)
	const fillers = 256
	_, err := together(fillers, time.Hour, func(caller, turn int) (func() error, bool) {
		req := newRequest()
		return func() error {
			_, err := s.Complete(ctx, req.ID, req.Token, dedup.Completion{TTL: lifetime, Blob: blob})
			return err
		}, caller+turn*fillers < n
	})
	return err
}
