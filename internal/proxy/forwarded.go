package proxy

import (
	"fmt"
	"net"
	"net/http/httputil"
	"net/netip"
	"strings"
)

// What TrustedProxies may name besides addresses.
const (
	trustLoopback = "loopback" // this machine
	trustPrivate  = "private"  // RFC 1918 and RFC 4193
)

// trustedProxies are the peers whose word on the original request is passed on.
type trustedProxies []netip.Prefix

func newTrustedProxies(entries []string) (trustedProxies, error) {
	var all trustedProxies
	for _, entry := range entries {
		ranges, err := trustedRanges(entry)
		if err != nil {
			return nil, fmt.Errorf("trusted proxies: %w", err)
		}
		all = append(all, ranges...)
	}
	return all, nil
}

func trustedRanges(entry string) ([]netip.Prefix, error) {
	ranges := []string{entry}
	switch entry {
	case trustLoopback:
		ranges = []string{"127.0.0.0/8", "::1/128"}
	case trustPrivate:
		ranges = []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}
	}
	prefixes := make([]netip.Prefix, 0, len(ranges))
	for _, r := range ranges {
		prefix, err := netip.ParsePrefix(r)
		if addr, e := netip.ParseAddr(r); e == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf(`must be a CIDR such as 10.0.0.0/8, an address, "loopback" or "private"`)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// has reports whether a peer, as host:port, is trusted.
func (t trustedProxies) has(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	for _, prefix := range t {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// setForwarded tells the upstream who asked: X-Forwarded-For is extended by the peer, and
// so is Forwarded (RFC 7239) where there is one; X-Forwarded-Host and -Proto are set.
// What came in these headers is kept if a trusted proxy sent it, and dropped otherwise.
func (t trustedProxies) setForwarded(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	trusted := t.has(pr.In.RemoteAddr)
	if trusted {
		if values := in["X-Forwarded-For"]; len(values) > 0 {
			out["X-Forwarded-For"] = values
		}
	}
	pr.SetXForwarded()
	if !trusted {
		for name := range out {
			if strings.HasPrefix(name, "X-Forwarded-") && !setByUs(name) {
				delete(out, name)
			}
		}
		return
	}
	for _, name := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := in[name]; len(values) > 0 {
			out[name] = values
		}
	}
	if values := in["Forwarded"]; len(values) > 0 {
		out.Set("Forwarded", strings.Join(values, ", ")+", "+forwardedElement(pr))
	}
}

// setByUs reports whether SetXForwarded has written a header.
func setByUs(name string) bool {
	return name == "X-Forwarded-For" || name == "X-Forwarded-Host" || name == "X-Forwarded-Proto"
}

// forwardedElement is what this proxy adds to Forwarded (RFC 7239, 4).
func forwardedElement(pr *httputil.ProxyRequest) string {
	host, _, _ := net.SplitHostPort(pr.In.RemoteAddr)
	if strings.Contains(host, ":") {
		host = `"[` + host + `]"`
	}
	proto := "http"
	if pr.In.TLS != nil {
		proto = "https"
	}
	return fmt.Sprintf("for=%s;host=%q;proto=%s", host, pr.In.Host, proto)
}
