package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Replicas are restarted one after the other while callers go on. Nobody may notice: no
// request fails, each key is executed once. docs/deploying.md tells what that takes: an
// entry that asks /readyz, and a drain_delay longer than it needs to believe the answer.

// A load is fifty callers, each of which sends one request after the other, and each
// request twice. Half of them keep their connection.
type load struct {
	t       *testing.T
	addr    string
	request func(key string) request
	stop    chan struct{}
	callers sync.WaitGroup
	keys    atomic.Int64 // that were sent, and got what they should

	mu     sync.Mutex
	failed []string
}

const loadCallers = 50

func startLoad(t *testing.T, addr string, of func(key string) request) *load {
	t.Helper()
	l := &load{t: t, addr: addr, request: of, stop: make(chan struct{})}
	for i := range loadCallers {
		l.callers.Go(func() { l.call(i%2 == 0) })
	}
	t.Cleanup(func() { l.end() })
	return l
}

// call is the life of one caller: at most ten keys a second, so that fifty of them load
// a machine and don't drown it.
func (l *load) call(keep bool) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	send := exchange
	if keep {
		send = new(kept).exchange
	}
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-pace.C:
		}
		req := l.request(newKey())
		if n%10 == 9 {
			req.target += "?slow=1s" // runs while its proxy is asked to stop
		}
		if err := twiceBy(send, l.addr, req); err != nil {
			l.mu.Lock()
			l.failed = append(l.failed, err.Error())
			l.mu.Unlock()
			continue
		}
		l.keys.Add(1)
	}
}

// twiceBy sends a request that is executed, and its retry, which is replayed.
func twiceBy(send func(string, request) (*response, error), addr string, req request) error {
	first, err := send(addr, req)
	if err != nil {
		return err
	}
	if first.status != 201 || first.get(replayHeader) != "" {
		return fmt.Errorf("want a fresh 201: %s", first)
	}
	again, err := send(addr, req)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if again.status != 201 || again.get(replayHeader) != "true" || !bytes.Equal(again.body, first.body) {
		return fmt.Errorf("want the replay of %s: %s", first.body, again)
	}
	return nil
}

// A kept is a connection that is used as long as it lasts, as the answer's header says.
type kept struct{ c *caller }

func (k *kept) exchange(addr string, req request) (*response, error) {
	if k.c == nil {
		c, err := dial(addr)
		if err != nil {
			return nil, err
		}
		k.c = c
	}
	_ = k.c.SetDeadline(time.Now().Add(patience))
	_, err := k.c.Write(req.bytes())
	var res *response
	if err == nil {
		res, err = k.c.wire.response(req)
	}
	if err != nil || strings.EqualFold(res.get("Connection"), "close") {
		k.c.Close()
		k.c = nil
	}
	return res, err
}

// more waits until some more keys were executed and replayed.
func (l *load) more(n int64) {
	l.t.Helper()
	want := l.keys.Load() + n
	eventually(l.t, fmt.Sprintf("%d more keys", n), func() bool { return l.keys.Load() >= want || l.failures() > 0 })
}

func (l *load) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.failed)
}

// end stops the callers, and returns how many keys they sent.
func (l *load) end() int {
	l.t.Helper()
	select {
	case <-l.stop:
		return int(l.keys.Load())
	default:
		close(l.stop)
	}
	l.callers.Wait()
	if n := len(l.failed); n > 0 {
		l.t.Errorf("%d of %d keys failed, such as:\n%s", n, int(l.keys.Load())+n, strings.Join(l.failed[:min(n, 3)], "\n"))
	}
	return int(l.keys.Load())
}

func TestComposeRollingRestart(t *testing.T) {
	t.Parallel()
	c := compose(t)
	l := startLoad(t, c.entry.addr, pay)
	l.more(200)
	for i, p := range c.proxies {
		p.stop()
		l.more(50) // by the other one alone
		c.again(i)
		eventually(t, "in use again", func() bool { return strings.Contains(p.log.String(), `"payments"`) })
		l.more(50)
	}
	keys := l.end()
	c.charged(keys)
	t.Logf("%d keys, each sent twice, none failed", keys)
}

// The same with a plain balancer, on each store that replicas share.
func TestRollingRestart(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			if strings.HasSuffix(r.target, "?slow=1s") {
				time.Sleep(time.Second)
			}
			created(w, r)
		})
		s := setup{store: shared, upstream: up.url, routes: payments, server: "drain_delay: 2s"}
		replicas := []*proxy{start(t, s), start(t, s)}
		l := startLoad(t, newBalancer(t, replicas...), func(key string) request { return request{target: "/pay", key: key, body: "{}"} })
		l.more(200)
		for _, p := range replicas {
			p.restart()
			l.more(50)
		}
		keys := l.end()
		up.saw(t, keys)
		seen := map[string]bool{}
		for _, r := range up.all() {
			seen[r.header.Get("Idempotency-Key")] = true
		}
		if len(seen) != keys {
			t.Errorf("%d keys reached the upstream, %d were sent", len(seen), keys)
		}
	})
}

// A balancer takes each request to the next replica that is ready, and repeats nothing.
type balancer struct {
	forward *httputil.ReverseProxy
	turn    atomic.Uint64

	mu    sync.Mutex
	ready []*proxy
}

type chosen struct{}

// newBalancer starts one, and returns its address.
func newBalancer(t *testing.T, replicas ...*proxy) string {
	t.Helper()
	b := &balancer{ready: replicas, forward: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Context().Value(chosen{}).(string)
		},
		Transport: &http.Transport{DisableKeepAlives: true}, // Go would repeat what was lost on a kept one
	}}
	for _, p := range replicas {
		go b.watch(t.Context(), p)
	}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (b *balancer) watch(ctx context.Context, p *proxy) {
	for ctx.Err() == nil {
		ready := p.probe("/readyz") == http.StatusOK
		b.mu.Lock()
		b.ready = slices.DeleteFunc(slices.Clone(b.ready), func(other *proxy) bool { return other == p })
		if ready {
			b.ready = append(b.ready, p)
		}
		b.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	ready := b.ready
	b.mu.Unlock()
	if len(ready) == 0 {
		http.Error(w, "no replica is ready", http.StatusBadGateway)
		return
	}
	p := ready[b.turn.Add(1)%uint64(len(ready))]
	b.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chosen{}, p.addr)))
}
