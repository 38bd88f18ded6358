package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"reflect"
)

// refused reports whether an error, met where an answer was awaited, is the upstream's
// refusal of our certificate. In TLS 1.3 it comes after the client's handshake has ended
// and the request is written; but a server reads no request before it has accepted the
// certificate, so that this one was not executed. (Certificates that are asked for later,
// by renegotiation or after the handshake, are never given by crypto/tls's client.)
func (x *exchange) refused(err error) bool {
	if _, secure := x.conn.stream.(*tls.Conn); !secure || !x.conn.since.IsZero() {
		return false
	}
	remote, ok := errors.AsType[*net.OpError](err)
	if !ok || remote.Op != "remote error" {
		return false
	}
	alert := reflect.ValueOf(remote.Err) // crypto/tls keeps its type to itself: the number of the alert
	if alert.Kind() != reflect.Uint8 {
		return false
	}
	switch alert.Uint() { // RFC 8446, 6.2
	case 42, 43, 44, 45, 46, 48, 49, 116: // bad, unsupported, revoked, expired or unknown certificate, unknown_ca, access_denied, certificate_required
		return true
	}
	return false
}
