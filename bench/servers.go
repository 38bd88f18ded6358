package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// serve tells its address on out and serves until in ends.
func serve(handler http.Handler, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintln(out, l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, in) // the end of it is all that counts
		_ = server.Close()
	}()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// newUpstream is a payments API that answers each POST with a new payment, and on
// GET /executions tells how many it has made.
func newUpstream() http.Handler {
	var executions atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /executions", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, executions.Load())
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"pay_%012d","object":"payment","amount":1999,"currency":"eur","status":"succeeded",`+
			`"customer":"cus_9s6XKzkNRiz8i3","description":"order 4711","livemode":false}`+"\n", executions.Add(1))
	})
	return mux
}

// newBareProxy is httputil.ReverseProxy at its best: enough idle connections, no
// compression of its own, a pool of copy buffers.
func newBareProxy(upstream string) http.Handler {
	target := &url.URL{Scheme: "http", Host: upstream}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		},
		BufferPool: &buffers{},
	}
}

// buffers is a pool of buffers to copy bodies with.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buffer[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }
