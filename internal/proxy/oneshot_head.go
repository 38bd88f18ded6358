package proxy

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// errUnsendable is a request that would not arrive as it is: its head has bytes that
// would end a line, or its framing is not what oneShot says it is.
var errUnsendable = errors.New("request can't be written as HTTP/1.1")

// appendHead appends the request line and the header section, its empty line included.
// The fields are in the order of their names.
func (o *outgoing) appendHead(req *http.Request) error {
	method, target, host := req.Method, requestTarget(req), req.Host
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = req.URL.Host
	}
	if !isToken(method) || !isTarget(target) || !isTarget(host) {
		return errUnsendable
	}
	b := append(o.bytes, method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", host)
	b = o.appendFraming(b, req, method)
	if req.Close {
		b = appendField(b, "Connection", "close")
	}
	o.names = o.names[:0]
	for name := range req.Header {
		if !isToken(name) {
			return errUnsendable
		}
		o.names = append(o.names, name)
	}
	slices.Sort(o.names)
	for _, name := range o.names {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue // written above, from what is really sent
		}
		for _, value := range req.Header[name] {
			if !isFieldValue(value) {
				return errUnsendable
			}
			if value == "" && name == "User-Agent" {
				continue // ReverseProxy's way to say that there is none
			}
			b = appendField(b, name, value)
		}
	}
	o.bytes = append(b, "\r\n"...)
	return nil
}

// appendFraming appends the fields that say where the body ends. An empty one has a
// Content-Length of 0, except for methods that have none by nature.
func (o *outgoing) appendFraming(b []byte, req *http.Request, method string) []byte {
	if !o.chunked {
		if o.left == 0 && safeMethod(method) {
			return b
		}
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, o.left, 10)
		return append(b, "\r\n"...)
	}
	b = appendField(b, "Transfer-Encoding", "chunked")
	if len(req.Trailer) > 0 {
		b = appendField(b, "Trailer", strings.Join(slices.Sorted(maps.Keys(req.Trailer)), ","))
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// requestTarget is the URL's Opaque part, if there is one, byte by byte, otherwise
// path and query. Other than URL.RequestURI it leaves an Opaque of "//path" alone.
func requestTarget(req *http.Request) string {
	u := req.URL
	if u.Opaque == "" {
		return u.RequestURI()
	}
	if u.RawQuery != "" && !strings.Contains(u.Opaque, "?") {
		return u.Opaque + "?" + u.RawQuery
	}
	return u.Opaque
}

// isTarget reports whether s has bytes and none that would end it in a request line.
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7F {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s has no control characters but tabs (RFC 9110, 5.5).
func isFieldValue(s string) bool {
	for i := range len(s) {
		if (s[i] < ' ' && s[i] != '\t') || s[i] == 0x7F {
			return false
		}
	}
	return true
}

// isToken reports whether s is a method or field name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-' || c == '_' || c == '.' || c == '!' || c == '#' || c == '$' || c == '%':
		case c == '&' || c == '\'' || c == '*' || c == '+' || c == '^' || c == '`' || c == '|' || c == '~':
		default:
			return false
		}
	}
	return s != ""
}
