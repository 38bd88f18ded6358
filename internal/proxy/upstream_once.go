package proxy

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// http.Transport repeats requests by itself: over HTTP/1.1 those that have an
// Idempotency-Key or X-Idempotency-Key header and whose body it can produce again, when
// a reused connection ends before the answer, also after the upstream acted; over
// HTTP/2 those whose body it can produce again, on some errors. (net/http:
// Request.isReplayable, http2 shouldRetryRequest.) The types of this file take those two
// conditions away. What remains is the repetition of what was not sent.

// onceH1 keeps a transport of HTTP/1.1 from repeating requests.
type onceH1 struct{ *http.Transport }

func (o onceH1) RoundTrip(req *http.Request) (*http.Response, error) {
	if hideKeys(req.Header) && safeMethod(req.Method) {
		// Without a key it would still be repeated for its method. A body, though it is
		// empty, prevents that; "identity" keeps it from being announced as chunked.
		req.GetBody = nil
		if noBody(req) {
			req.Body, req.TransferEncoding = emptyBody{}, []string{"identity"}
		}
	}
	return o.Transport.RoundTrip(req)
}

// onceH2 keeps a transport of HTTP/2 from repeating requests.
type onceH2 struct{ *http.Transport }

func (o onceH2) RoundTrip(req *http.Request) (*http.Response, error) {
	if hideKeys(req.Header) || !safeMethod(req.Method) {
		req.GetBody = nil
		if noBody(req) {
			req.Body = emptyBody{}
		}
	}
	return o.Transport.RoundTrip(req)
}

// hideKeys moves the headers by which http.Transport takes a request for repeatable to
// map keys in which it doesn't look: header names have no case on the wire. It says
// whether there was one.
func hideKeys(h http.Header) bool {
	hidden := false
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
			hidden = true
		}
	}
	return hidden
}

func safeMethod(m string) bool {
	switch m {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func noBody(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody
}

// emptyBody is a body of no bytes that net/http doesn't know as one.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// guardedH2 adds to its errors whether the request was provably not sent.
type guardedH2 struct{ next onceH2 }

func (g guardedH2) RoundTrip(req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	out := req.WithContext(ctx)
	out.GetBody = nil
	if noBody(out) {
		out.Body = emptyBody{}
	}
	if strings.HasPrefix(out.URL.Opaque, "//") {
		// net/http takes it for an authority. In this form it takes it for a path.
		u := *out.URL
		u.Opaque = u.Scheme + "://" + cmp.Or(out.Host, u.Host) + u.Opaque
		out.URL = &u
	}
	res, err := g.next.RoundTrip(out)
	if err != nil {
		if !connected.Load() || unprocessedH2(err) {
			return nil, notSent(err)
		}
		return nil, err
	}
	res.Request = req
	return res, nil
}

// unprocessedH2 reports whether err proves that no stream was opened for the request, or
// that the upstream refused the one that was before acting (RFC 9113, sections 6.8, 8.7).
// That a header frame was not yet written when the request was given up proves nothing:
// it may still be written. The texts are those of net/http, which exports no values.
func unprocessedH2(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var stream streamErrorH2
	if errors.As(err, &stream) {
		return stream.Code == refusedStreamH2
	}
	text := err.Error()
	if inner, ok := strings.CutPrefix(text, "http2: Transport: cannot retry err ["); ok {
		// From here on nothing is under the control of a peer: a GOAWAY's debug data is
		// in another error.
		text = inner[:max(0, strings.LastIndex(inner, "] after Request.Body was written"))]
	}
	switch text {
	case "http2: client conn not usable",
		"http2: client conn could not be established",
		"http2: Transport received Server's graceful shutdown GOAWAY",
		"http2: request header list larger than peer's advertised limit":
		return true
	}
	if strings.HasPrefix(text, "http2: Transport received GOAWAY from server ErrCode:") {
		return true
	}
	return strings.HasPrefix(text, "stream error: stream ID ") &&
		(strings.HasSuffix(text, "; REFUSED_STREAM") || strings.HasSuffix(text, "; REFUSED_STREAM; received from peer"))
}

// streamErrorH2 has the shape that net/http's StreamError.As fills.
type streamErrorH2 struct {
	StreamID uint32
	Code     errCodeH2
	Cause    error
}

func (streamErrorH2) Error() string { return "http2 stream error" }

type errCodeH2 uint32

const refusedStreamH2 errCodeH2 = 7

// grpcSplit sends gRPC, which needs HTTP/2, to h2 and everything else to h1.
type grpcSplit struct{ h1, h2 http.RoundTripper }

func (s grpcSplit) RoundTrip(req *http.Request) (*http.Response, error) {
	// Not gRPC-Web, which is another type and works over HTTP/1.1.
	rest, ok := strings.CutPrefix(req.Header.Get("Content-Type"), "application/grpc")
	if ok && (rest == "" || rest[0] == '+' || rest[0] == ';') {
		return s.h2.RoundTrip(req)
	}
	return s.h1.RoundTrip(req)
}
