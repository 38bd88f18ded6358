package proxy

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTallyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running tally
		start := time.Now()
		if !running.wait(t.Context()) {
			t.Error("nothing runs, and it waits")
		}
		for i := range 3 {
			running.Add(1)
			time.AfterFunc(time.Duration(i+1)*time.Second, running.Done)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if running.wait(ctx) || time.Since(start) != 2*time.Second {
			t.Errorf("it waited %v, longer than it was to, or not", time.Since(start))
		}
		var wg sync.WaitGroup
		for range 2 { // several may wait, also a second time
			wg.Go(func() {
				if !running.wait(t.Context()) || time.Since(start) != 3*time.Second {
					t.Errorf("it waited %v, want 3s", time.Since(start))
				}
			})
		}
		wg.Wait()
	})
}

// It may grow from zero while somebody waits. (The race detector objects to a WaitGroup
// that does.)
func TestTallyGrowsWhileSomebodyWaits(t *testing.T) {
	var running tally
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				running.Add(1)
				running.Done()
			}
		})
		wg.Go(func() {
			for range 1000 {
				running.wait(t.Context())
			}
		})
	}
	wg.Wait()
	if !running.wait(t.Context()) {
		t.Error("something runs")
	}
}
