package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
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
	setForwarded(pr)
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

// setForwarded extends X-Forwarded-For, -Host and -Proto, and passes Forwarded on. What
// came in them is kept if a trusted proxy sent it, and dropped otherwise.
func setForwarded(pr *httputil.ProxyRequest) {
	if trusted(pr.In.RemoteAddr) {
		for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
			if values := pr.In.Header[name]; len(values) > 0 {
				pr.Out.Header[name] = values
			}
		}
	}
	pr.SetXForwarded()
	if trusted(pr.In.RemoteAddr) {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values := pr.In.Header[name]; len(values) > 0 {
				pr.Out.Header[name] = values
			}
		}
	}
}

// trusted reports whether a peer is one whose forwarding headers are kept: on this machine
// or in a private network, as an ingress is.
func trusted(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.IsLoopback() || addr.IsPrivate())
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
