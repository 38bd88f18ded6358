package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

const controlToken = "token-of-the-control-listener"

// controlAPI serves docs/control-api.md over keys, as far as commands use it.
func controlAPI(keys dedup.Keys) http.Handler {
	statuses := map[string]int{
		"key_free": 404, "key_live": 409, "key_completed": 409, "key_changed": 409, "keys_unnamed": 400, "audit_failed": 500,
	}
	answer := func(w http.ResponseWriter, result any, err error) {
		for code, known := range controlCodes() {
			if errors.Is(err, known) {
				w.WriteHeader(statuses[code])
				_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "result": result})
				return
			}
		}
		_ = json.NewEncoder(w).Encode(result)
	}
	filter := func(r *http.Request) (f dedup.Filter, cursor string) {
		older, _ := time.ParseDuration(r.FormValue("older_than"))
		return dedup.Filter{State: dedup.KeyState(r.FormValue("state")), Route: r.FormValue("route"), OlderThan: older}, r.FormValue("cursor")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/keys", func(w http.ResponseWriter, r *http.Request) {
		f, cursor := filter(r)
		page, err := keys.List(r.Context(), f, cursor, 2)
		answer(w, page, err)
	})
	mux.HandleFunc("DELETE /api/keys", func(w http.ResponseWriter, r *http.Request) {
		f, cursor := filter(r)
		done, err := keys.Purge(r.Context(), f, cursor, 2)
		answer(w, done, err)
	})
	mux.HandleFunc("GET /api/keys/{hash}", func(w http.ResponseWriter, r *http.Request) {
		k, err := keys.Show(r.Context(), dedup.ID(r.PathValue("hash")), r.FormValue("body") == "1")
		answer(w, k, err)
	})
	mux.HandleFunc("DELETE /api/keys/{hash}", func(w http.ResponseWriter, r *http.Request) {
		k, err := keys.Remove(r.Context(), dedup.ID(r.PathValue("hash")))
		answer(w, k, err)
	})
	mux.HandleFunc("POST /api/keys/{hash}/release", func(w http.ResponseWriter, r *http.Request) {
		k, err := keys.Release(r.Context(), dedup.ID(r.PathValue("hash")), r.FormValue("force") == "1")
		answer(w, k, err)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+controlToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Through the control listener a desk is the same as at the store.
func TestControlClient(t *testing.T) {
	m := store.NewMemory(store.DefaultConfig().Memory)
	defer m.Close()
	server := httptest.NewServer(controlAPI(dedup.Keys{Store: m}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(controlToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := newControlClient(server.URL, ""); err != nil {
		t.Fatal(err)
	} else if _, err = c.List(t.Context(), dedup.Filter{}, "", 10); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("without a token: %v", err)
	}
	c, err := newControlClient(strings.TrimPrefix(server.URL, "http://"), file)
	if err != nil {
		t.Fatal(err)
	}
	id := func(key string) dedup.ID { return dedup.Scope{}.ID(dedup.Key(key)) }
	begin := func(key string) *dedup.Claim {
		t.Helper()
		r := dedup.DefaultRule()
		r.Name, r.Path = "payments", "/"
		d := dedup.NewGuard(m).Begin(t.Context(), &r, dedup.Operation{ID: id(key)})
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
	begin("live")
	must(begin("unknown").Unknown(t.Context()))
	must(begin("done").Complete(t.Context(), &dedup.Record{Status: 201, Completed: time.Now(), Body: []byte("body\xff")}))

	for key, want := range map[string]dedup.KeyState{"live": dedup.KeyInProgress, "unknown": dedup.KeyUnknown, "done": dedup.KeyCompleted, "none": dedup.KeyFree} {
		if k, err := c.Show(t.Context(), id(key), false); err != nil || k.State != want || k.ID != id(key) || k.Response != nil {
			t.Errorf("%s: %+v, %v", key, k, err)
		}
	}
	if k, err := c.Show(t.Context(), id("done"), true); err != nil || k.Response == nil || string(k.Response.Body) != "body\xff" {
		t.Errorf("with its body: %+v, %v", k, err)
	}
	seen := 0
	for cursor := ""; ; {
		page, err := c.List(t.Context(), dedup.Filter{Route: "payments"}, cursor, 2)
		must(err)
		seen += len(page.Keys)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d listed, want 3", seen)
	}
	if k, err := c.Release(t.Context(), id("live"), false); !errors.Is(err, dedup.ErrKeyLive) || k.State != dedup.KeyInProgress {
		t.Errorf("release of a live one: %+v, %v", k, err)
	}
	if _, err := c.Release(t.Context(), id("live"), true); err != nil {
		t.Errorf("forced: %v", err)
	}
	if _, err := c.Release(t.Context(), id("live"), true); !errors.Is(err, dedup.ErrKeyFree) {
		t.Errorf("again: %v", err)
	}
	if _, err := c.Release(t.Context(), id("done"), true); !errors.Is(err, dedup.ErrKeyCompleted) {
		t.Errorf("release of a record: %v", err)
	}
	if k, err := c.Remove(t.Context(), id("done")); err != nil || k.Status != 201 {
		t.Errorf("removed %+v, %v", k, err)
	}
	removed := 0
	for cursor := ""; ; {
		done, err := c.Purge(t.Context(), dedup.Filter{State: dedup.KeyUnknown}, cursor, 2)
		must(err)
		removed += done.Removed
		if cursor = done.Next; cursor == "" {
			break
		}
	}
	if removed != 1 {
		t.Errorf("%d purged", removed)
	}
}

// Whatever else is at the address is told apart.
func TestControlClientMeetsSomebodyElse(t *testing.T) {
	for answer, want := range map[string]string{
		"200 <html>": "is 127.0.0.1", "404 not here": "answers 404", "403 no": "control.token_file", "302 moved": "answers 302",
		`503 {"code":"store_unavailable","detail":"down\u001b[2J"}`: "store_unavailable: down?[2J",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(map[string]int{"200": 200, "404": 404, "403": 403, "302": 302, "503": 503}[answer[:3]])
			_, _ = w.Write([]byte(answer[4:]))
		}))
		c, err := newControlClient(server.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Show(t.Context(), "id", false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", answer, err, want)
		}
		server.Close()
	}
}

// On a terminal there is one line of progress, which goes; elsewhere nothing.
func TestProgress(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	p.say("%d", 1)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal: %q", out.String())
	}
	p = &progress{w: &out}
	p.say("%d keys", 1)
	p.say("%d keys", 2)
	p.clear()
	p.clear()
	if want := "\r\x1b[K1 keys\r\x1b[K2 keys\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
