package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// maxRefusal bounds the body of an answer of replay_auth, which is held in memory.
const maxRefusal = 1 << 20

// errAllowed ends the forwarding of an answer that means yes.
var errAllowed = errors.New("replay allowed")

// newAskTransport is the way to all services of replay_auth. A question changes nothing,
// so that it may be repeated on another connection.
func newAskTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the caller's credentials go where the configuration says
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxAnswerHead,
	}
}

// tells reports whether a decision gives something of a recorded answer away.
func tells(d dedup.Decision) bool {
	return d.Replay != nil || d.Rejection != nil && d.Rejection.Reason == dedup.ReasonResponseNotStored
}

// A question to replay_auth is whether a caller may still have an answer.
type question struct {
	proxy     *Proxy
	o         *observation
	w         http.ResponseWriter
	held      *hold
	url       *url.URL
	allowed   bool
	rejection *dedup.Rejection
}

// mayHave asks the rule's replay_auth whether the caller may have a recorded answer. If it
// may not, replay_auth's own answer was passed on, or there is a rejection. Nothing is
// claimed while it asks. A caller that leaves takes its question along.
func (p *Proxy) mayHave(w http.ResponseWriter, r *http.Request, o *observation, held *hold) (bool, *dedup.Rejection) {
	auth := o.route.rule.ReplayAuth
	ctx, cancel := context.WithTimeout(r.Context(), auth.Timeout)
	defer cancel()
	q := &question{proxy: p, o: o, w: w, held: held}
	var err error
	if q.url, err = url.Parse(auth.URL); err != nil { // the rule's check has parsed it before
		q.unavailable(err)
		return false, q.rejection
	}
	rp := p.reverseProxy()
	rp.Rewrite = q.rewrite
	rp.Transport = p.asks
	rp.ModifyResponse = q.answered
	rp.ErrorHandler = q.failed
	rp.ServeHTTP(w, buffered(r.WithContext(ctx), nil))
	return q.allowed, q.rejection
}

// rewrite makes the question: a GET with the caller's headers, which names the request as
// Traefik's and nginx's forward-auth do. What came in these headers is not believed.
func (q *question) rewrite(pr *httputil.ProxyRequest) {
	p, rule, out := q.proxy, q.o.route.rule, pr.Out
	to := *q.url
	out.Method, out.URL, out.Host = http.MethodGet, &to, to.Host
	p.trusted.setForwarded(pr)
	q.o.route.restoreHeaders(pr)
	if !rule.ForwardKey {
		for _, name := range rule.HeaderName {
			out.Header.Del(name)
		}
	}
	for name := range out.Header {
		// Some services take X_Forwarded_Uri for the name with hyphens.
		if plain := fold(name); strings.Contains(name, "_") && (strings.HasPrefix(plain, "x-forwarded-") || strings.HasPrefix(plain, "x-original-")) {
			delete(out.Header, name)
		}
	}
	for _, name := range [...]string{"Expect", "Content-Length", "Te"} { // of the request, and of its connection
		out.Header.Del(name)
	}
	uri := target(pr.In)
	out.Header.Set("X-Forwarded-Method", pr.In.Method)
	out.Header.Set("X-Forwarded-Uri", uri)
	out.Header.Set("X-Original-Method", pr.In.Method)
	out.Header.Set("X-Original-Uri", uri)
	out.Header.Set("X-Original-Url", out.Header.Get("X-Forwarded-Proto")+"://"+out.Header.Get("X-Forwarded-Host")+uri)
}

// answered sees the answer. One that means no is read whole before anything of it is
// passed on, redirects too.
func (q *question) answered(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is a connection, which no deadline ends
		return errors.New("replay_auth switched protocols unasked")
	}
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		_, _ = io.CopyN(io.Discard, res.Body, firstRead) // so that the connection can be used again
		return errAllowed
	}
	body, err := readSteps(io.LimitReader(res.Body, maxRefusal+1), res.ContentLength, func(n int64) error {
		if !q.held.try(n) {
			return errOverloaded
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(body) > maxRefusal {
		return fmt.Errorf("answered with more than %d bytes", maxRefusal)
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	frame(res, len(body))
	cleanAnswer(q.o.route.rule, res)
	inventNothing(q.w)
	q.proxy.letGo(q.w)
	q.o.refused(res.StatusCode)
	return nil
}

// failed is told of everything that is no refusal.
func (q *question) failed(_ http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, errAllowed):
		q.allowed = true
		q.o.replayAuth = metrics.ReplayAllowed
	case q.o.request.Context().Err() != nil:
		q.o.abandon()
	default:
		q.unavailable(err)
	}
}

func (q *question) unavailable(err error) {
	q.o.replayAuth = metrics.ReplayUnavailable
	q.rejection = &dedup.Rejection{
		Reason: dedup.ReasonReplayAuth, Err: fmt.Errorf("ask replay_auth: %w", err), RetryAfter: time.Second,
		Detail: "There is an answer for this idempotency key, and it can't be checked now whether you may have it; nothing was sent on. Retry with the same key.",
	}
}
