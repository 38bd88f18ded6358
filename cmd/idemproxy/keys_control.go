package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"idemproxy/internal/dedup"
)

// controlClient is the desk of a running proxy: its control listener's API, as
// docs/control-api.md says.
type controlClient struct {
	base  *url.URL
	token string
	http  *http.Client
}

// controlTimeout bounds one call.
const controlTimeout = 30 * time.Second

// newControlClient asks at a URL, or a host:port, with the token in a file if there is one.
func newControlClient(address, tokenFile string) (*controlClient, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, usageError{errors.New("--control: must be a URL such as http://127.0.0.1:9091")}
	}
	c := &controlClient{base: base, http: &http.Client{
		Transport:     &http.Transport{},
		Timeout:       controlTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the control listener's token: %w", err)
		}
		c.token = strings.TrimSpace(string(b))
	}
	return c, nil
}

// Show is desk's.
func (c *controlClient) Show(ctx context.Context, id dedup.ID, response bool) (k dedup.Known, err error) {
	query := url.Values{}
	if response {
		query.Set("body", "1")
	}
	err = c.call(ctx, http.MethodGet, query, &k, string(id))
	return k, err
}

// List is desk's.
func (c *controlClient) List(ctx context.Context, f dedup.Filter, cursor string, limit int) (page dedup.KeyPage, err error) {
	err = c.call(ctx, http.MethodGet, filterQuery(f, cursor, limit), &page)
	return page, err
}

// Release is desk's.
func (c *controlClient) Release(ctx context.Context, id dedup.ID, force bool) (k dedup.Known, err error) {
	query := url.Values{}
	if force {
		query.Set("force", "1")
	}
	err = c.call(ctx, http.MethodPost, query, &k, string(id), "release")
	return k, err
}

// Remove is desk's.
func (c *controlClient) Remove(ctx context.Context, id dedup.ID) (k dedup.Known, err error) {
	err = c.call(ctx, http.MethodDelete, nil, &k, string(id))
	return k, err
}

// Purge is desk's.
func (c *controlClient) Purge(ctx context.Context, f dedup.Filter, cursor string, limit int) (done dedup.Purged, err error) {
	err = c.call(ctx, http.MethodDelete, filterQuery(f, cursor, limit), &done)
	return done, err
}

func filterQuery(f dedup.Filter, cursor string, limit int) url.Values {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("state", string(f.State))
	set("route", f.Route)
	set("cursor", cursor)
	if f.OlderThan > 0 {
		query.Set("older_than", f.OlderThan.String())
	}
	return query
}

// controlProblem is an answer that is an error. What it is about stands beside it.
type controlProblem struct {
	Code   string          `json:"code"`
	Detail string          `json:"detail"`
	Result json.RawMessage `json:"result"`
}

// controlCodes are the errors that have a code.
func controlCodes() map[string]error {
	return map[string]error{
		"key_free": dedup.ErrKeyFree, "key_live": dedup.ErrKeyLive, "key_completed": dedup.ErrKeyCompleted,
		"key_changed": dedup.ErrKeyChanged, "keys_unnamed": dedup.ErrKeysUnnamed, "audit_failed": dedup.ErrUntold,
	}
}

// call asks for /api/keys and what is below it, and fills in the result.
func (c *controlClient) call(ctx context.Context, method string, query url.Values, result any, below ...string) error {
	target := c.base.JoinPath(append([]string{"api", "keys"}, below...)...)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return fmt.Errorf("ask control listener: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask control listener, the address in control.listen of the running proxy: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("read answer of control listener: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, result); err != nil {
			return fmt.Errorf("read answer of control listener: is %s the control listener of idemproxy? %w", c.base.Host, err)
		}
		return nil
	}
	return controlError(answer.StatusCode, body, result)
}

func controlError(status int, body []byte, result any) error {
	var problem controlProblem
	_ = json.Unmarshal(body, &problem) // what is no problem of ours has no code
	if len(problem.Result) > 0 {
		_ = json.Unmarshal(problem.Result, result)
	}
	if known, ok := controlCodes()[problem.Code]; ok {
		return known
	}
	switch {
	case status == http.StatusUnauthorized:
		return errors.New("the control listener wants its token, that of control.token_file: give --token-file")
	case status == http.StatusForbidden && (problem.Code == "" || problem.Code == "read_only"):
		return errors.New("without a token the control listener changes nothing and shows no recorded answer: set control.token_file, and give --token-file")
	case problem.Code != "":
		return fmt.Errorf("the control listener refuses: %s: %s", plain(problem.Code), plain(problem.Detail))
	default:
		return fmt.Errorf("the control listener answers %d", status)
	}
}
