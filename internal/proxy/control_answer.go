package proxy

import (
	"encoding/json"
	"errors"
	"net/http"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// A controlError is an answer of the control listener that is an error. The codes are
// those of docs/control-api.md, and for machines: none may change.
type controlError struct {
	status int
	code   string
	detail string
}

// Error is error's.
func (e *controlError) Error() string { return e.code + ": " + e.detail }

func errNoSuchCall() error {
	return &controlError{http.StatusNotFound, "no_such_call", "There is no such path, or not with this method."}
}

func errWrongHost() error {
	return &controlError{http.StatusForbidden, "wrong_host", "The Host header is neither loopback nor the host of control.listen; without control.token_file no other is served."}
}

func errCrossOrigin() error {
	return &controlError{http.StatusForbidden, "cross_origin", "A browser sends this for a page of another origin."}
}

func errUnauthorized() error {
	return &controlError{http.StatusUnauthorized, "unauthorized", "The header Authorization: Bearer with the token of control.token_file is missing or wrong."}
}

func errReadOnly() error {
	return &controlError{http.StatusForbidden, "read_only", "Without control.token_file nothing is changed here, and no recorded answer is shown."}
}

func errBadRequest(detail string) error {
	return &controlError{http.StatusBadRequest, "bad_request", detail}
}

// controlFailure is the answer for an error of dedup.Keys; nil for one that is nobody's but
// the store's.
func controlFailure(err error) *controlError {
	if known, ok := errors.AsType[*controlError](err); ok {
		return known
	}
	for _, row := range []struct {
		err error
		controlError
	}{
		{dedup.ErrUntold, controlError{http.StatusInternalServerError, "audit_failed", "It is done, but the audit trail could not be written."}},
		{dedup.ErrKeyFree, controlError{http.StatusNotFound, "key_free", "There is nothing under the key."}},
		{dedup.ErrKeyLive, controlError{http.StatusConflict, "key_live", "A request with the key is being executed; force=1 releases it all the same."}},
		{dedup.ErrKeyCompleted, controlError{http.StatusConflict, "key_completed", "The key has a recorded answer; DELETE removes it."}},
		{dedup.ErrKeyChanged, controlError{http.StatusConflict, "key_changed", "The key changed meanwhile, and stays; look at it again."}},
		{dedup.ErrKeysUnnamed, controlError{http.StatusBadRequest, "keys_unnamed", "Claims of running requests can't be purged."}},
		{dedup.ErrCursor, controlError{http.StatusBadRequest, "bad_request", "cursor: not one that a page before gave."}},
		{dedup.ErrUnreadable, controlError{http.StatusServiceUnavailable, "record_unreadable", "What lies under the key is no entry of this program."}},
	} {
		if errors.Is(err, row.err) {
			return &row.controlError
		}
	}
	return nil
}

// refuse answers with an error, and with what is known in spite of it.
func (c *control) refuse(w http.ResponseWriter, result any, err error) {
	e := controlFailure(err)
	if e == nil {
		c.p.log.Warn("the control listener could not use the store", zap.Error(err))
		e = &controlError{http.StatusServiceUnavailable, "store_unavailable", "The store can't be used; the proxy's log says why."}
	}
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.status, "application/problem+json", struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
		Result any    `json:"result,omitempty"`
	}{"urn:idemproxy:problem:" + e.code, http.StatusText(e.status), e.status, e.detail, e.code, result})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
