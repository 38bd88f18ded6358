package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// Options are what a Proxy is made of. All fields but Control, Operations, Tracing, Version,
// AccessLog and Replica are required; with Control.Listen Operations are, too.
type Options struct {
	Server     ServerConfig
	Admin      AdminConfig
	Control    ControlConfig
	Operations Operations
	Upstream   UpstreamConfig
	Limits     LimitsConfig
	Tracing    TracingConfig
	Version    string // of the program, for its spans
	Routes     []dedup.Rule
	Store      dedup.Store // the Proxy uses it until Serve returns, and doesn't close it
	Metrics    *metrics.Metrics
	Log        *zap.Logger
	AccessLog  bool   // a line for each request that a rule matches
	Replica    string // this replica's name, which claims and records carry; may be empty
}

// A Proxy stands in front of an upstream and makes the requests that its rules guard
// safe to retry. Make one with New, then call Listen and Serve once each.
type Proxy struct {
	options  Options
	rules    atomic.Pointer[rules]
	guard    *dedup.Guard
	upstream *upstream
	plain    *httputil.ReverseProxy
	passed   *metrics.Route // what no rule matches
	answers  *answers       // where no rule has a say
	copies   *buffers
	budget   *budget
	trusted  trustedProxies
	asks     *http.Transport // to replay_auth
	tracing  *tracing        // nil: none
	tls      *tls.Config     // of the listener; nil for plain HTTP
	log      *zap.Logger

	control *control // nil: none

	listener, adminListener, controlListener net.Listener

	draining atomic.Bool
	serving  context.Context // ends when no more requests are served
	stop     context.CancelFunc
	running  tally      // guarded requests
	later    background // what goes on after a request was answered
}

// New makes a Proxy. It fails on what Validate or CheckRoutes would refuse, and on
// certificates and keys that can't be read; it neither listens nor connects.
func New(o Options) (*Proxy, error) {
	up, err := newUpstream(o.Upstream)
	if err != nil {
		return nil, err
	}
	trusted, err := newTrustedProxies(o.Server.TrustedProxies)
	if err != nil {
		return nil, err
	}
	listenTLS, err := serverTLS(o.Server.TLS)
	if err != nil {
		return nil, err
	}
	spans, err := newTracing(o.Tracing, o.Version, o.Log)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		options:  o,
		guard:    dedup.NewGuard(o.Store),
		upstream: up,
		passed:   o.Metrics.Route(""),
		answers:  newAnswers(nil),
		copies:   newBuffers(),
		budget:   newBudget(o.Limits, o.Metrics),
		trusted:  trusted,
		asks:     newAskTransport(),
		tracing:  spans,
		tls:      listenTLS,
		log:      o.Log,
		later:    newBackground(o.Log),
	}
	if err := p.exchange(Reloadable{o.Routes, o.Limits, o.AccessLog}); err != nil {
		return nil, err
	}
	p.serving, p.stop = context.WithCancel(context.Background())
	p.guard.Replica = o.Replica
	p.plain = p.reverseProxy()
	p.plain.Transport = up.plain
	if o.Control.Listen != "" {
		if p.control, err = newControl(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// ServeHTTP serves one request. Without a rule it is forwarded as any reverse proxy does.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path := p.options.Server.StatusPath; path != "" && r.URL.Path == path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		p.tell(w, r)
		return
	}
	route := p.rules.Load().routes.match(r)
	if route == nil {
		p.passed.PassedThrough()
		p.forward(w, r, passage{rewrite: p.rewrite})
		return
	}
	p.running.Add(1)
	defer p.running.Done()
	p.serve(w, r, route)
}

// reverseProxy returns what all forwarding has in common.
func (p *Proxy) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Rewrite: p.rewrite, BufferPool: p.copies, ErrorLog: zap.NewStdLog(zap.NewNop())}
}

// A passage is how a request passes through. All fields but rewrite may be nil.
type passage struct {
	rewrite func(*httputil.ProxyRequest)
	route   *route                               // in whose words a failure is answered
	see     func(*http.Response)                 // is shown the answer before it is passed on
	failed  func(r *dedup.Rejection, status int) // is told what was answered when no answer came
}

// forward passes a request through, unguarded.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, how passage) {
	answering := false
	defer p.rescueForward(w, how, &answering)
	rp := *p.plain
	rp.Rewrite = how.rewrite
	rp.ModifyResponse = func(res *http.Response) error {
		inventNothing(w)
		if res.StatusCode != http.StatusSwitchingProtocols {
			p.letGo(w)
		}
		answering = true
		if how.see != nil {
			how.see(res)
		}
		return nil
	}
	rp.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
		answering = true
		p.plainFailed(w, r, err, how)
	}
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		// Otherwise net/http takes the rest of the body from under the transport's hands
		// when an answer begins before it is sent. It fails only for a ResponseWriter that
		// is not net/http's.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	rp.ServeHTTP(w, r)
}

// inventNothing keeps net/http from inventing a Content-Type for an answer that has none.
// It is needed just before the head: ReverseProxy clears all headers after a 1xx.
func inventNothing(w http.ResponseWriter) { w.Header()["Content-Type"] = nil }

// letGo tells a caller to leave its connection when the proxy is about to end: one that is
// kept until Shutdown closes it may be carrying the next request by then. Over HTTP/2
// net/http makes it a GOAWAY. It is needed just before the head, too: a 1xx over HTTP/2
// must not have it (RFC 9113, 8.2.2).
func (p *Proxy) letGo(w http.ResponseWriter) {
	if p.draining.Load() {
		w.Header().Set("Connection", "close")
	}
}

// plainFailed answers an unguarded request that the upstream did not answer.
func (p *Proxy) plainFailed(w http.ResponseWriter, r *http.Request, err error, how passage) {
	if r.Context().Err() != nil { // the caller is gone, and with it the request
		panic(http.ErrAbortHandler)
	}
	p.log.Warn("upstream failed", zap.String("method", r.Method), zap.Error(err))
	rejection := failure(context.Background(), err)
	status := p.answer(w, how.route, rejection)
	if how.failed != nil {
		how.failed(rejection, status)
	}
}
