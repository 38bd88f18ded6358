package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// A claim and its completion with a record of 1 KiB, both on disk, by 64 callers.
func BenchmarkFileClaimComplete(b *testing.B) {
	s := openFile(b, newFile(b), nil)
	var failed atomic.Int64
	b.SetParallelism(32) // on two processors: 64 callers
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req := request(time.Hour)
			_, err := s.Claim(b.Context(), req)
			if err == nil {
				_, err = s.Complete(b.Context(), req.ID, req.Token, dedup.Completion{TTL: time.Hour, Blob: make([]byte, 1024)})
			}
			if err != nil {
				failed.Add(1)
			}
		}
	})
	if n := failed.Load(); n > 0 {
		b.Errorf("%d failed", n)
	}
}
