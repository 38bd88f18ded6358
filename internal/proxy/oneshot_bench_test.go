package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkRoundTrip compares the two ways to the same upstream.
func BenchmarkRoundTrip(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":"pay_1","status":"succeeded","amount":1000,"currency":"eur"}`)
	}))
	defer up.Close()
	cfg := DefaultUpstreamConfig()
	cfg.URL = up.URL
	u, err := newUpstream(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer u.close()
	payload := `{"amount":1000,"currency":"eur","reference":"` + strings.Repeat("x", 200) + `"}`
	once := func(rt http.RoundTripper) error {
		req, _ := http.NewRequestWithContext(b.Context(), "POST", up.URL+"/api/payments", strings.NewReader(payload))
		req.Header["User-Agent"] = []string{"bench"}
		req.Header["Content-Type"] = []string{"application/json"}
		req.Header["Idempotency-Key"] = []string{"6f2c1d0a-7f0e-4e6e-9c7b-3f4a1f1f3c11"}
		req.Header["X-Forwarded-For"] = []string{"127.0.0.1"}
		res, err := rt.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return err
	}
	for _, way := range []struct {
		name string
		rt   http.RoundTripper
	}{{"oneShot", u.guarded}, {"transport", u.plain}} {
		b.Run(way.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := once(way.rt); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(way.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := once(way.rt); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
