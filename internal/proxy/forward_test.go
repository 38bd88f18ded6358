package proxy

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
	"idemproxy/internal/store"
)

// A front is a whole proxy over HTTP, with the memory store, before an upstream.
type front struct {
	*testing.T
	server *httptest.Server
	proxy  *Proxy
}

// newFront serves rules in front of an upstream's URL.
func newFront(t *testing.T, upstream string, rules []dedup.Rule, change ...func(*Options)) *front {
	t.Helper()
	memory := store.NewMemory(store.DefaultConfig().Memory)
	o := Options{
		Server: DefaultServerConfig(), Admin: DefaultAdminConfig(), Upstream: DefaultUpstreamConfig(), Limits: DefaultLimitsConfig(),
		Routes: rules, Store: memory, Metrics: metrics.New("test"), Log: zap.NewNop(), AccessLog: true,
	}
	o.Upstream.URL = upstream
	for _, c := range change {
		c(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t, httptest.NewServer(p), p}
	t.Cleanup(func() {
		f.server.Close()
		p.later.wait(t.Context())
		p.upstream.close()
		memory.Close()
	})
	return f
}

// raw sends bytes as they are on a connection of their own and returns the answer, its
// body read.
func (f *front) raw(request string) (*http.Response, string) {
	f.Helper()
	c, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		f.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		f.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		f.Fatalf("%q: %v", request, err)
	}
	return res, string(body)
}

// seenBy is an upstream that answers 201, and what gives the next request it got.
func seenBy(t *testing.T) (url string, next func() *http.Request) {
	t.Helper()
	seen := make(chan *http.Request, 10)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(up.Close)
	return up.URL, func() *http.Request {
		t.Helper()
		select {
		case r := <-seen:
			return r
		default:
			t.Fatal("the upstream got no request")
			return nil
		}
	}
}

func TestTrusted(t *testing.T) {
	trusted, err := newTrustedProxies(DefaultServerConfig().TrustedProxies)
	if err != nil {
		t.Fatal(err)
	}
	for remote, want := range map[string]bool{
		"127.0.0.1:1234":        true,
		"127.9.9.9:1":           true,
		"[::1]:1234":            true,
		"10.1.2.3:80":           true,
		"172.16.0.1:80":         true,
		"172.31.255.255:80":     true,
		"192.168.0.1:80":        true,
		"[fd00::1]:80":          true,
		"[::ffff:10.0.0.1]:80":  true,
		"[::ffff:127.0.0.1]:80": true,
		"172.32.0.1:80":         false,
		"11.0.0.1:80":           false,
		"203.0.113.9:80":        false,
		"[2001:db8::1]:80":      false,
		"[::ffff:8.8.8.8]:80":   false,
		"0.0.0.0:80":            false,
		"":                      false,
		"@":                     false,
		"127.0.0.1":             false,
		"localhost:80":          false,
	} {
		if got := trusted.has(remote); got != want {
			t.Errorf("%q is trusted: %v, want %v", remote, got, want)
		}
	}
}

// TestForwardedHeaders: what a trusted proxy says is kept and extended, what others say is
// dropped.
func TestForwardedHeaders(t *testing.T) {
	const ours, foreign = "10.0.0.7:4000", "203.0.113.9:4000"
	all := http.Header{
		"X-Forwarded-For":   {"198.51.100.1, 10.0.0.1", "10.0.0.2"},
		"X-Forwarded-Host":  {"public.example.com"},
		"X-Forwarded-Proto": {"https"},
		"Forwarded":         {"for=198.51.100.1;proto=https", "for=10.0.0.1"},
	}
	untouched := http.Header{"X-Forwarded-For": {"10.0.0.7"}, "X-Forwarded-Host": {"api.example.com"}, "X-Forwarded-Proto": {"http"}}
	stranger := http.Header{"X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Host": {"api.example.com"}, "X-Forwarded-Proto": {"http"}}
	kept := func(peer, element string) http.Header {
		return http.Header{
			"X-Forwarded-For": {"198.51.100.1, 10.0.0.1, 10.0.0.2, " + peer}, "X-Forwarded-Host": {"public.example.com"}, "X-Forwarded-Proto": {"https"},
			"Forwarded": {`for=198.51.100.1;proto=https, for=10.0.0.1, ` + element + `;host="api.example.com";proto=http`},
		}
	}
	for name, tc := range map[string]struct {
		trusts []string // nil: the defaults
		remote string
		sent   http.Header
		want   http.Header
	}{
		"nothing came":        {nil, ours, nil, untouched},
		"a trusted proxy":     {nil, ours, all, kept("10.0.0.7", "for=10.0.0.7")},
		"a trusted neighbour": {nil, "[::1]:4000", all, kept("::1", `for="[::1]"`)},
		"a stranger":          {nil, foreign, all, stranger},
		"a stranger trusted":  {[]string{"203.0.113.0/24"}, foreign, all, kept("203.0.113.9", "for=203.0.113.9")},
		"one address":         {[]string{"203.0.113.9"}, foreign, all, kept("203.0.113.9", "for=203.0.113.9")},
		"another address":     {[]string{"203.0.113.8"}, foreign, all, stranger},
		"nobody trusted":      {[]string{}, ours, all, untouched},
		"only loopback":       {[]string{"loopback"}, ours, all, untouched},
		"a part of them": {nil, ours, http.Header{"X-Forwarded-Proto": {"https"}}, http.Header{
			"X-Forwarded-For": {"10.0.0.7"}, "X-Forwarded-Host": {"api.example.com"}, "X-Forwarded-Proto": {"https"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := httptest.NewRequest("POST", "http://api.example.com/x", nil)
			in.RemoteAddr = tc.remote
			maps.Copy(in.Header, tc.sent.Clone())
			got := forwardedBy(t, func(o *Options) {
				if tc.trusts != nil {
					o.Server.TrustedProxies = tc.trusts
				}
			}, in).Header
			for _, h := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if !slices.Equal(got[h], tc.want[h]) {
					t.Errorf("%s: %q, want %q", h, got[h], tc.want[h])
				}
			}
		})
	}
}

// forwardedBy is what rewrite and ReverseProxy make of a request.
func forwardedBy(t *testing.T, change func(*Options), in *http.Request) (out *http.Request) {
	t.Helper()
	o := Options{Server: DefaultServerConfig(), Upstream: DefaultUpstreamConfig()}
	if change != nil {
		change(&o)
	}
	up, err := newUpstream(o.Upstream)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := newTrustedProxies(o.Server.TrustedProxies)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{options: o, upstream: up, copies: newBuffers(), trusted: trusted}
	rp := p.reverseProxy()
	rp.Transport = sendFunc(func(r *http.Request) (*http.Response, error) {
		out = r
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	rp.ServeHTTP(httptest.NewRecorder(), in)
	return out
}

type sendFunc func(*http.Request) (*http.Response, error)

func (f sendFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestForwardedTo(t *testing.T) {
	for name, tc := range map[string]struct {
		url       string
		preserve  bool
		url2, out string // where the request goes, and its Host
	}{
		"host kept":   {"http://10.0.0.1:3000", true, "http://10.0.0.1:3000/a?b", "api.example.com"},
		"host ours":   {"http://10.0.0.1:3000", false, "http://10.0.0.1:3000/a?b", "10.0.0.1:3000"},
		"https":       {"https://up.example.com", false, "https://up.example.com/a?b", "up.example.com"},
		"h2c":         {"h2c://up:50051", true, "http://up:50051/a?b", "api.example.com"},
		"unix":        {"unix:///run/app.sock", false, "http://localhost/a?b", "localhost"},
		"with a path": {"http://10.0.0.1:3000/", true, "http://10.0.0.1:3000/a?b", "api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			in := httptest.NewRequest("POST", "http://api.example.com/a?b", nil)
			in.RequestURI = "/a?b"
			got := forwardedBy(t, func(o *Options) { o.Upstream.URL, o.Upstream.PreserveHost = tc.url, tc.preserve }, in)
			if got.URL.String() != tc.url2 || got.Host != tc.out {
				t.Errorf("goes to %s as %s, want %s as %s", got.URL, got.Host, tc.url2, tc.out)
			}
		})
	}
}

// TestForwardTargetIsKept: the upstream gets the request-target byte by byte, guarded or
// not, whatever it looks like.
func TestForwardTargetIsKept(t *testing.T) {
	url, next := seenBy(t)
	f := newFront(t, url, []dedup.Rule{ruleFor("/g/{rest...}"), ruleFor("/p/{rest...}", func(r *dedup.Rule) { r.MissingHeader = dedup.MissingPassThrough })})
	key := 0
	for _, prefix := range []string{"/g", "/p", "/free", "//g", "//p", "//free"} {
		for _, rest := range []string{
			"/a", "/a/", "/a?", "/a?b=1;c=2", "/a?b=%zz&c", "/a?x=1&x=2&%78=3", "/a%2Fb", "/%61", "//a", "/./a", "/b/../a", "/a|b", "/a?b",
			"/a%20b?c=d+e", `/a\b`, "/a;v=1", "/a?b=http://c//d", "/ä", "/a[1]?b[]=c", "/a?b#c",
		} {
			line, header := prefix+rest, ""
			want := line
			switch guarded := strings.HasSuffix(prefix, "/g"); {
			case guarded:
				key++
				header = fmt.Sprintf("Idempotency-Key: %d\r\n", key)
			case strings.HasPrefix(line, "//"): // net/http writes such a path only as it escapes it
				want = strings.NewReplacer("|", "%7C", `\`, "%5C", "ä", "%C3%A4").Replace(line)
			}
			res, body := f.raw("POST " + line + " HTTP/1.1\r\nHost: x\r\n" + header + "Content-Length: 2\r\n\r\nhi")
			if res.StatusCode != 201 {
				t.Fatalf("%s: status %d, body %q", line, res.StatusCode, body)
			}
			if got := next().RequestURI; got != want {
				t.Errorf("sent %s, the upstream got %s, want %s", line, got, want)
			}
		}
	}
}

// TestForwardAbsoluteForm: of an absolute target the upstream gets what follows the
// authority, and the authority as Host.
func TestForwardAbsoluteForm(t *testing.T) {
	url, next := seenBy(t)
	f := newFront(t, url, []dedup.Rule{ruleFor("/g")})
	for _, line := range []string{"http://api.example.com/g?a=%zz", "http://api.example.com/free?a;b"} {
		res, body := f.raw("POST " + line + " HTTP/1.1\r\nHost: other\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
		if res.StatusCode != 201 {
			t.Fatalf("%s: status %d, body %q", line, res.StatusCode, body)
		}
		r := next()
		if want := strings.TrimPrefix(line, "http://api.example.com"); r.RequestURI != want || r.Host != "api.example.com" {
			t.Errorf("%s: the upstream got %s of %s", line, r.RequestURI, r.Host)
		}
	}
}

// TestForwardConnectionHidesNothing that the rule relies on.
func TestForwardConnectionHidesNothing(t *testing.T) {
	url, next := seenBy(t)
	rule := ruleFor("/g", func(r *dedup.Rule) { r.IdentityHeader, r.TenantHeader = "X-Account", "X-Tenant" })
	through := ruleFor("/p", func(r *dedup.Rule) { r.IdentityHeader, r.MissingHeader = "X-Account", dedup.MissingPassThrough })
	f := newFront(t, url, []dedup.Rule{rule, through})
	const hidden = "Connection: Idempotency-Key, x-account\r\nConnection: X-Tenant, X-Hop, close\r\nX-Hop: gone\r\nKeep-Alive: 5\r\nTe: gzip\r\n"
	for _, tc := range []struct{ path, key string }{{"/g", "k"}, {"/p", ""}} {
		head := "POST " + tc.path + " HTTP/1.1\r\nHost: x\r\nX-Account: a\r\nX-Tenant: t\r\n" + hidden + "Content-Length: 0\r\n"
		if tc.key != "" {
			head += "Idempotency-Key: " + tc.key + "\r\n"
		}
		if res, body := f.raw(head + "\r\n"); res.StatusCode != 201 {
			t.Fatalf("%s: status %d, body %q", tc.path, res.StatusCode, body)
		}
		h := next().Header
		if h.Get("Idempotency-Key") != tc.key || h.Get("X-Account") != "a" || tc.path == "/g" && h.Get("X-Tenant") != "t" {
			t.Errorf("%s: the upstream got %v", tc.path, h)
		}
		for _, name := range []string{"X-Hop", "Keep-Alive", "Te", "Connection"} {
			if h.Get(name) != "" {
				t.Errorf("%s: the upstream got %s: %q", tc.path, name, h[name])
			}
		}
	}
}

// TestForwardKey: forward_key: false takes every alias, and nothing else.
func TestForwardKey(t *testing.T) {
	url, next := seenBy(t)
	aliases := func(r *dedup.Rule) { r.HeaderName = dedup.Names{"Idempotency-Key", "X-Request-Key"} }
	f := newFront(t, url, []dedup.Rule{ruleFor("/kept", aliases), ruleFor("/taken", aliases, func(r *dedup.Rule) { r.ForwardKey = false })})
	for _, tc := range []struct{ path, key, want string }{{"/kept", "k1", "k1"}, {"/taken", "k2", ""}} {
		res, body := f.raw("POST " + tc.path + " HTTP/1.1\r\nHost: x\r\nX-Request-Key: " + tc.key +
			"\r\nX-Other: o\r\nExpect: 100-continue\r\nConnection: X-Request-Key\r\nContent-Length: 0\r\n\r\n")
		if res.StatusCode != 201 {
			t.Fatalf("%s: status %d, body %q", tc.path, res.StatusCode, body)
		}
		h := next().Header
		if got := h.Get("X-Request-Key"); got != tc.want || h.Get("X-Other") != "o" {
			t.Errorf("%s: the upstream got %v", tc.path, h)
		}
		if h.Get("Expect") != "" {
			t.Errorf("%s: the upstream is asked whether it wants a body that is here: %q", tc.path, h["Expect"])
		}
	}
}

// TestBuffers: what is lent comes back and is lent again.
func TestBuffers(t *testing.T) {
	var pool httputil.BufferPool = newBuffers()
	b := pool.Get()
	if len(b) != 32<<10 {
		t.Errorf("a buffer of %d bytes", len(b))
	}
	pool.Put(b)
	if again := pool.Get(); len(again) != 32<<10 {
		t.Errorf("a buffer of %d bytes", len(again))
	}
}
