package proxy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"idemproxy/internal/dedup"
)

const (
	keysLooked    = 500  // for one page, if nobody asks for more or less
	maxKeysLooked = 1000 // most keys looked at for one page
)

func (c *control) listKeys(r *http.Request) (any, error) {
	f, cursor, limit, err := readFilter(r)
	if err != nil {
		return nil, err
	}
	page, err := c.keys(r).List(r.Context(), f, cursor, limit)
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (c *control) purgeKeys(r *http.Request) (any, error) {
	f, cursor, limit, err := readFilter(r)
	if err != nil {
		return nil, err
	}
	done, err := c.keys(r).Purge(r.Context(), f, cursor, limit)
	return done, err
}

func (c *control) showKey(r *http.Request) (any, error) {
	id, body, err := readKey(r, "body")
	if err != nil {
		return nil, err
	}
	if body && c.token == nil {
		return nil, errReadOnly()
	}
	return about(c.keys(r).Show(r.Context(), id, body))
}

func (c *control) releaseKey(r *http.Request) (any, error) {
	id, force, err := readKey(r, "force")
	if err != nil {
		return nil, err
	}
	return about(c.keys(r).Release(r.Context(), id, force))
}

func (c *control) removeKey(r *http.Request) (any, error) {
	id, _, err := readKey(r, "")
	if err != nil {
		return nil, err
	}
	return about(c.keys(r).Remove(r.Context(), id))
}

// about is what is known of a key, nothing if the store did not tell.
func about(k dedup.Known, err error) (any, error) {
	if k.ID == "" {
		return nil, err
	}
	return k, err
}

// readKey reads which key is meant, and whether the one parameter that the call has is set.
func readKey(r *http.Request, flag string) (id dedup.ID, set bool, err error) {
	hash := r.PathValue("hash")
	if b, err := base64.RawURLEncoding.DecodeString(hash); err != nil || len(b) != 32 {
		return "", false, errBadRequest("This is no key_hash: 43 characters of A-Z a-z 0-9 - _")
	}
	q, err := readQuery(r, flag)
	if err != nil {
		return "", false, err
	}
	if v := q.Get(flag); v != "" && v != "1" {
		return "", false, errBadRequest(flag + ": must be 1, or missing")
	}
	return dedup.ID(hash), q.Get(flag) != "", nil
}

func readFilter(r *http.Request) (f dedup.Filter, cursor string, limit int, err error) {
	q, err := readQuery(r, "state", "route", "older_than", "cursor", "limit")
	if err != nil {
		return f, "", 0, err
	}
	f = dedup.Filter{State: dedup.KeyState(q.Get("state")), Route: q.Get("route")}
	if f.State != "" && !slices.Contains(dedup.KeyStates(), f.State) {
		return f, "", 0, errBadRequest(fmt.Sprintf("state: must be one of %v", dedup.KeyStates()))
	}
	if text := q.Get("older_than"); text != "" {
		if f.OlderThan, err = time.ParseDuration(text); err != nil || f.OlderThan <= 0 {
			return f, "", 0, errBadRequest("older_than: must be a duration such as 90m or 48h")
		}
	}
	limit = keysLooked
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxKeysLooked {
			return f, "", 0, errBadRequest(fmt.Sprintf("limit: must be from 1 to %d", maxKeysLooked))
		}
	}
	return f, q.Get("cursor"), limit, nil
}

// readQuery refuses what it doesn't know: a purge whose filter is misspelt would be a purge
// of everything.
func readQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errBadRequest("The query can't be read.")
	}
	for name, values := range q {
		switch {
		case name == "" || !slices.Contains(known, name):
			return nil, errBadRequest(fmt.Sprintf("The query has a parameter that this call doesn't know; it knows %v", known))
		case len(values) > 1:
			return nil, errBadRequest(name + ": is given more than once")
		case values[0] == "":
			return nil, errBadRequest(name + ": is empty; leave it out")
		}
	}
	return q, nil
}
