package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// Every answer of a proxy that drains tells its caller to leave the connection, and no
// interim answer does: that would be malformed over HTTP/2.
func TestDrainingAnswersLetGo(t *testing.T) {
	f := newFront(t, hinting(t), []dedup.Rule{ruleFor("/pay")}, func(o *Options) { o.Server.StatusPath = "/status" })
	both := httptest.NewUnstartedServer(f.proxy)
	both.Config.Protocols = new(http.Protocols)
	both.Config.Protocols.SetHTTP1(true)
	both.Config.Protocols.SetUnencryptedHTTP2(true)
	both.Start()
	t.Cleanup(both.Close)
	for _, draining := range []bool{false, true} {
		f.proxy.draining.Store(draining)
		for name, version := range map[string]func(*http.Protocols, bool){"h1": (*http.Protocols).SetHTTP1, "h2": (*http.Protocols).SetUnencryptedHTTP2} {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			version(transport.Protocols, true)
			t.Cleanup(transport.CloseIdleConnections)
			for _, call := range []struct {
				what, target, key string
				status, hints     int
			}{
				{"executed", "POST /pay", name, 201, 1},
				{"replayed", "POST /pay", name, 201, 0},
				{"refused", "POST /pay", "", 400, 0},
				{"unguarded", "POST /other", "", 201, 1},
				{"status", "GET /status", name, 200, 0},
			} {
				if draining && call.key != "" {
					call.key += "-draining"
				}
				res, hints := hintedBy(t, transport, both.URL, call.target, call.key)
				if res.StatusCode != call.status || len(hints) != call.hints || slices.ContainsFunc(hints, func(h textproto.MIMEHeader) bool { return h["Connection"] != nil }) || name == "h1" && res.Close != draining {
					t.Errorf("%s, %s: status %d, hints %v, close %v while draining is %v", name, call.what, res.StatusCode, hints, res.Close, draining)
				}
			}
		}
	}
}

// hintedBy is an answer, and the heads of the interim ones before it.
func hintedBy(t *testing.T, by http.RoundTripper, url, target, key string) (res *http.Response, hints []textproto.MIMEHeader) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		hints = append(hints, h)
		return nil
	}})
	method, path, _ := strings.Cut(target, " ")
	r, err := http.NewRequestWithContext(ctx, method, url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if res, err = by.RoundTrip(r); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	res.Body.Close()
	return res, hints
}

// hinting is an upstream that sends an interim answer before each answer.
func hinting(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
