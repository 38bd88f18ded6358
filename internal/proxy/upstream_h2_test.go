package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestGuardedH2(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, r.Proto+" "+r.RequestURI+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
		w.Header().Set("X-Sum", "7")
	}))
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	defer up.Close()
	u := upstreamFor(t, strings.Replace(up.URL, "http:", "h2c:", 1))
	for _, opaque := range []string{"", "/p?a=1;b=%zz", `//a\b`, "//a//b?c"} {
		for _, body := range []string{"", "body"} {
			req := outgoingRequest(t, u, "POST", "/p", body)
			req.URL.Opaque = opaque
			req.Header.Set("Idempotency-Key", "k")
			res, err := u.guarded.RoundTrip(req)
			if err != nil {
				t.Fatal(opaque, err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if opaque == "" {
				opaque = "/p"
			}
			if want := "HTTP/2.0 " + opaque + " k " + body; string(got) != want || err != nil || res.Request != req {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if res.Trailer.Get("X-Sum") != "7" {
				t.Errorf("trailer %v", res.Trailer)
			}
		}
	}
}

func TestGuardedH2Deadlines(t *testing.T) {
	up := newH2Upstream(t, func(c net.Conn, stream uint32) bool {
		if stream == 5 {
			writeH2(c, h2Headers, h2EndHeaders, stream, 0x88) // :status 200, and no body
		}
		return true
	})
	u := upstreamFor(t, "h2c://"+up.Addr().String())
	if status, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "")); err != nil || status != 204 {
		t.Fatal(status, err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _, err := roundTrip(t, u.guarded, outgoingRequest(t, u, "POST", "/", "x").WithContext(ctx))
		wantUnknown(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	if n := up.streams.Load(); n != 3 {
		t.Errorf("%d streams", n)
	}
}
