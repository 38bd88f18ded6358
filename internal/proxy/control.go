package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// Operations are what the control listener can do beyond the Proxy itself.
type Operations struct {
	// Level is that of the log.
	Level zap.AtomicLevel
	// Reload loads the configuration again. It returns a result, or all that is wrong with
	// the new one, which was then refused.
	Reload func(why string) (result string, faults []string)
	// Settings are the effective settings of the rule of this name, for JSON, without
	// secrets.
	Settings func(route string) any
}

const (
	minControlToken = 16       // characters: it must not be guessed
	maxControlBody  = 64 << 10 // bytes; no call has a large one
)

// control is what operators reach: the API of docs/control-api.md. It decides nothing
// about keys, dedup.Keys does.
type control struct {
	p     *Proxy
	mux   *http.ServeMux
	token *renewed[[sha256.Size]byte] // its digest; nil: nothing can be changed
	began time.Time
}

// newControl makes it. It fails on a token that can't be read, or is too short.
func newControl(p *Proxy) (*control, error) {
	c := &control{p: p, mux: http.NewServeMux(), began: time.Now()}
	if file := p.options.Control.TokenFile; file != "" {
		var err error
		if c.token, err = newRenewed(func() ([sha256.Size]byte, error) { return tokenDigest(file) }, file); err != nil {
			return nil, fmt.Errorf("control.token_file: %w", err)
		}
	}
	c.handle("GET /api/status", c.status)
	c.handle("GET /api/keys", c.listKeys)
	c.handle("DELETE /api/keys", c.purgeKeys)
	c.handle("GET /api/keys/{hash}", c.showKey)
	c.handle("DELETE /api/keys/{hash}", c.removeKey)
	c.handle("POST /api/keys/{hash}/release", c.releaseKey)
	c.handle("POST "+lookupPath, c.lookUp)
	c.handle("POST /drain", c.drain)
	c.handle("POST /reload", c.reload)
	c.handle("GET /loglevel", c.logLevel)
	c.handle("PUT /loglevel", c.setLogLevel)
	c.handle("/", func(*http.Request) (any, error) { return nil, errNoSuchCall() })
	if p.options.Control.PProf {
		c.mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		c.mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		c.mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return c, nil
}

func tokenDigest(file string) (digest [sha256.Size]byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return digest, fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minControlToken {
		return digest, fmt.Errorf("%s must hold %d characters or more, such as `openssl rand -hex 32` prints", file, minControlToken)
	}
	return sha256.Sum256([]byte(token)), nil
}

// handle adds a call. What it returns is written here, a result or an error about it.
func (c *control) handle(pattern string, call func(*http.Request) (any, error)) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		result, err := call(r)
		if err != nil {
			c.refuse(w, result, err)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", result)
	})
}

// ServeHTTP lets in who may ask.
func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := c.admit(r); err != nil {
		c.refuse(w, nil, err)
		return
	}
	if isPage(r) {
		writePage(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxControlBody)
	c.mux.ServeHTTP(w, r)
}

// admit says why a request is not served. A page of somebody else's in an operator's
// browser is kept out three times: it can't know the token, its requests tell their
// origin, and without a token a name that was made to lead here (DNS rebinding) is no name
// of ours.
func (c *control) admit(r *http.Request) error {
	switch {
	case c.token == nil && !c.ownHost(r.Host):
		return errWrongHost()
	case crossOrigin(r):
		return errCrossOrigin()
	case c.token != nil && !isPage(r) && !c.knowsToken(r):
		return errUnauthorized()
	case c.token == nil && !readsOnly(r):
		return errReadOnly()
	default:
		return nil
	}
}

// readsOnly reports whether a call changes nothing: none does by GET.
func readsOnly(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodPost && r.URL.Path == lookupPath
}

func (c *control) ownHost(host string) bool {
	host = cleanHost(host)
	return isLoopback(host) || host == cleanHost(c.p.options.Control.Listen)
}

// crossOrigin reports whether a browser sends this for a page that is not of this listener.
// Another port of the same machine is another origin, too.
func crossOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

func (c *control) knowsToken(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), c.token.get()
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// keys is what the caller does to keys, in its name.
func (c *control) keys(r *http.Request) dedup.Keys {
	return dedup.Keys{Store: c.p.options.Store, By: "control@" + c.p.options.Replica + " from " + callerOf(r)}
}

// callerOf is the address that a request comes from.
func callerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "an unknown address"
	}
	return host
}

// loopbackOnly checks what a name was bound to: only the machine's own tables say where
// localhost leads.
func (c *control) loopbackOnly(l net.Listener) error {
	if addr, ok := l.Addr().(*net.TCPAddr); c.token == nil && ok && !addr.IP.IsLoopback() {
		return errors.New("it leads beyond loopback, which needs control.token_file")
	}
	return nil
}
