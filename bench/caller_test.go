package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A benchmark that measures wrong answers is worthless: each fault must end it.
func TestCallerFindsFaults(t *testing.T) {
	const good = `{"id":"pay_1"}`
	for _, test := range []struct {
		name     string
		handler  http.HandlerFunc
		replayed bool   // expected
		body     string // expected of a replay
		want     string // part of the error; empty means none
	}{
		{"executed", answers(201, good, false), false, "", ""},
		{"replayed", answers(201, good, true), true, good, ""},
		{"status", answers(409, good, false), false, "", "status 409"},
		{"executed instead of replayed", answers(201, good, false), true, good, "replayed is false"},
		{"replayed instead of executed", answers(201, good, true), false, "", "replayed is true"},
		{"another body", answers(201, `{"id":"pay_2"}`, true), true, good, "differs"},
		{"not the upstream", answers(201, "hello", false), false, "", "not the upstream's"},
		{"cut body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, good)
		}, false, "", "read body"},
		{"no length", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, good)
			_ = http.NewResponseController(w).Flush()
		}, false, "", "no Content-Length"},
		{"no answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "", "read status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			c := newCaller("/api/payments", "run-00000-")
			if err := c.connect(strings.TrimPrefix(server.URL, "http://"), time.Now().Add(10*time.Second)); err != nil {
				t.Fatal(err)
			}
			defer c.close()
			c.newKey()
			err := c.exchange()
			if err == nil {
				var body []byte
				if test.replayed {
					body = []byte(test.body)
				}
				err = c.check(test.replayed, body)
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestCallerKeysAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if len(key) != keyLength || seen[key] {
			w.WriteHeader(http.StatusConflict)
			return
		}
		seen[key] = true
		answers(201, `{"id":"pay_1"}`, false)(w, r)
	}))
	defer server.Close()
	for _, prefix := range []string{"run-00000-", "run-00001-"} {
		c := newCaller("/api/payments", prefix)
		if err := c.connect(strings.TrimPrefix(server.URL, "http://"), time.Now().Add(10*time.Second)); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			c.newKey()
			if err := c.exchange(); err != nil {
				t.Fatal(err)
			}
			if err := c.check(false, nil); err != nil {
				t.Fatal(err)
			}
		}
		c.close()
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   [3]float64
	}{
		{[]float64{2}, [3]float64{2, 2, 2}},
		{[]float64{3, 1, 2}, [3]float64{1, 2, 3}},
		{[]float64{4, 1, 3, 2}, [3]float64{1, 2.5, 4}},
	} {
		if got := spread(test.values); got != test.want {
			t.Errorf("%v: got %v, want %v", test.values, got, test.want)
		}
	}
}

func answers(status int, body string, replayed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if replayed {
			w.Header().Set("X-Idempotent-Replay", "true")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}
