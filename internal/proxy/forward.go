package proxy

import (
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
)

// rewrite makes the request that the upstream sees of the one that came. ReverseProxy has
// taken the hop-by-hop headers already, also those that Connection names.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	out, base := pr.Out, p.upstream.base
	out.URL.Scheme, out.URL.Host = base.Scheme, base.Host
	keepTarget(pr)
	if p.options.Upstream.PreserveHost {
		out.Host = pr.In.Host
	} else {
		out.Host = base.Host
	}
	p.trusted.setForwarded(pr)
}

// keepTarget forwards the request-target byte for byte. ReverseProxy has dropped from the
// query what Go can't parse, and net/url would re-encode some paths.
func keepTarget(pr *httputil.ProxyRequest) {
	u := pr.Out.URL
	u.RawQuery, u.ForceQuery = pr.In.URL.RawQuery, pr.In.URL.ForceQuery
	if t := target(pr.In); t != u.RequestURI() && !strings.HasPrefix(t, "//") {
		u.Opaque, u.RawQuery, u.ForceQuery = t, "", false
	}
}

// restoreHeaders gives the upstream the headers that the rule relies on, also when the
// caller named them in Connection, which would hide them.
func (rt *route) restoreHeaders(pr *httputil.ProxyRequest) {
	if len(pr.In.Header["Connection"]) == 0 {
		return
	}
	for name := range rt.twins.names {
		name = http.CanonicalHeaderKey(name)
		if values := pr.In.Header[name]; len(values) > 0 {
			pr.Out.Header[name] = values
		}
	}
}

// buffers lends the 32 KiB that ReverseProxy copies a body with.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
}

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte { return b.pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (b *buffers) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }
