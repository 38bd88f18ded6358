package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// contractStatus is the tables of contract §2 to §4.
func contractStatus() map[dedup.Reason]int {
	return map[dedup.Reason]int{
		"missing_key":          400,
		"invalid_key":          400,
		"bad_request":          400,
		"missing_identity":     400,
		"invalid_identity":     400,
		"invalid_token":        401,
		"identity_unavailable": 503,
		"request_too_large":    413,
		"request_timeout":      408,
		"in_progress":          409,
		"outcome_unknown":      409,
		"key_reuse":            422,
		"replay_scope":         409,
		"response_not_stored":  409,
		"too_many_keys":        429,
		"record_unreadable":    503,

		"replay_auth_unavailable": 503,

		"overloaded":           503,
		"store_unavailable":    503,
		"upstream_unreachable": 502,
		"upstream_timeout":     504,
		"upstream_failed":      502,
	}
}

// answered is what the proxy answers to a rejection.
func answered(t *testing.T, rule *dedup.Rule, rejection *dedup.Rejection) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	if status := newAnswers(rule).write(w, rejection); status != w.Code {
		t.Errorf("%s: answer returns %d, sent is %d", rejection.Reason, status, w.Code)
	}
	return w.Result()
}

// TestEveryReasonHasAnAnswer as the contract says; a new reason needs a row in newReplies
// and one in contractStatus.
func TestEveryReasonHasAnAnswer(t *testing.T) {
	rule := ruleFor("/payments")
	titles, lines := map[string]bool{}, map[string]bool{}
	for _, reason := range dedup.Reasons() {
		t.Run(string(reason), func(t *testing.T) {
			want, known := contractStatus()[reason]
			reply, has := newReplies()[reason]
			if !known || !has {
				t.Fatalf("in the contract: %v, in newReplies: %v", known, has)
			}
			for _, rule := range []*dedup.Rule{&rule, nil} {
				res := answered(t, rule, &dedup.Rejection{Reason: reason, Detail: "It is so."})
				if res.StatusCode != want {
					t.Errorf("status %d, want %d", res.StatusCode, want)
				}
				wantProblem(t, res, reason, reply)
			}
			if titles[reply.title] || lines[reply.line] {
				t.Error("another reason has the same title or line")
			}
			titles[reply.title], lines[reply.line] = true, true
		})
	}
	if got, want := slices.Sorted(maps.Keys(newReplies())), slices.Sorted(slices.Values(dedup.Reasons())); !slices.Equal(got, want) {
		t.Errorf("replies of %v, want those of %v", got, want)
	}
	if len(dedup.Reasons()) != len(contractStatus()) {
		t.Error("dedup.Reasons is not the whole list")
	}
}

// wantProblem checks the body, its headers, and the headers that every answer has.
func wantProblem(t *testing.T, res *http.Response, reason dedup.Reason, reply reply) {
	t.Helper()
	var body map[string]any
	decoder := json.NewDecoder(res.Body)
	if err := decoder.Decode(&body); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "urn:idemproxy:problem:" + string(reason), "title": reply.title, "status": float64(res.StatusCode),
		"detail": "It is so.", "code": string(reason), "error": reply.line,
	}
	if !maps.Equal(body, want) {
		t.Errorf("body %v, want %v", body, want)
	}
	if decoder.More() {
		t.Error("the body has more than one value")
	}
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Content-Length": strconv.FormatInt(res.ContentLength, 10)} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if strings.Contains(reply.line, "\n") || reply.line == "" || reply.title == "" {
		t.Errorf("title %q, line %q", reply.title, reply.line)
	}
	retry := map[dedup.Reason]string{"in_progress": "true", "record_unreadable": "true", "store_unavailable": "true", "key_reuse": "false"}
	if want, ok := retry[reason]; ok && res.Header.Get("X-Should-Retry") != want {
		t.Errorf("x-should-retry: %q, want %q", res.Header.Get("X-Should-Retry"), want)
	}
}

// TestAnswersOfTheDraft: scripts and people know these words.
func TestAnswersOfTheDraft(t *testing.T) {
	for reason, title := range map[dedup.Reason]string{
		"missing_key": "Idempotency-Key is missing",
		"key_reuse":   "Idempotency-Key is already used",
		"in_progress": "A request is outstanding for this Idempotency-Key",
	} {
		if got := newReplies()[reason].title; got != title {
			t.Errorf("title of %s: %q, want %q", reason, got, title)
		}
	}
	if got := newReplies()["in_progress"].line; got != "idempotency-key in-flight; retry shortly" {
		t.Errorf("error of in_progress: %q", got)
	}
}

func TestAnswerByTheRule(t *testing.T) {
	rule := ruleFor("/payments", func(r *dedup.Rule) { r.MismatchStatus, r.DocsURL = 409, "https://example.com/docs?a=b#c" })
	for _, reason := range dedup.Reasons() {
		res := answered(t, &rule, &dedup.Rejection{Reason: reason})
		want := contractStatus()[reason]
		if reason == dedup.ReasonKeyReuse {
			want = 409
		}
		if res.StatusCode != want {
			t.Errorf("%s: status %d, want %d", reason, res.StatusCode, want)
		}
		if got := res.Header.Get("Link"); got != `<https://example.com/docs?a=b#c>; rel="describedby"` {
			t.Errorf("%s: link %q", reason, got)
		}
		var body problem
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil || body.Status != want {
			t.Errorf("%s: the body says status %d (%v)", reason, body.Status, err)
		}
	}
	plain := ruleFor("/payments")
	if got := answered(t, &plain, &dedup.Rejection{Reason: "in_progress"}).Header["Link"]; got != nil {
		t.Errorf("without docs_url: link %q", got)
	}
}

// TestSimpleAnswers have the same status and headers as problems, and the rule's codes.
func TestSimpleAnswers(t *testing.T) {
	problems := ruleFor("/payments", func(r *dedup.Rule) { r.DocsURL = "https://example.com/docs" })
	simple := problems
	simple.Errors = dedup.Errors{Format: dedup.ErrorsSimple, Codes: map[dedup.Reason]string{"in_progress": `"<&`}}
	for _, reason := range dedup.Reasons() {
		rejection := &dedup.Rejection{Reason: reason, Detail: "It is so.", RetryAfter: time.Second}
		like, res := answered(t, &problems, rejection), answered(t, &simple, rejection)
		var body map[string]string
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"error": newReplies()[reason].line, "code": string(reason)}
		if reason == dedup.ReasonInProgress {
			want["code"] = `"<&`
		}
		if !maps.Equal(body, want) || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v as %s", reason, body, res.Header.Get("Content-Type"))
		}
		for _, own := range []string{"Content-Type", "Content-Length"} {
			like.Header.Del(own)
			res.Header.Del(own)
		}
		if res.StatusCode != like.StatusCode || fmt.Sprint(res.Header) != fmt.Sprint(like.Header) {
			t.Errorf("%s: %d %v, want %d %v", reason, res.StatusCode, res.Header, like.StatusCode, like.Header)
		}
	}
}

// TestCodesAreTheRules: the type of a problem stays ours.
func TestCodesAreTheRules(t *testing.T) {
	rule := ruleFor("/payments", func(r *dedup.Rule) { r.Errors.Codes = map[dedup.Reason]string{"key_reuse": "IDEMPOTENCY_CONFLICT"} })
	for reason, code := range map[dedup.Reason]string{"key_reuse": "IDEMPOTENCY_CONFLICT", "in_progress": "in_progress"} {
		var body problem
		if err := json.NewDecoder(answered(t, &rule, &dedup.Rejection{Reason: reason}).Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if body.Code != code || body.Type != "urn:idemproxy:problem:"+string(reason) {
			t.Errorf("%s: %+v", reason, body)
		}
	}
}

func TestAnswerRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		after           time.Duration
		seconds, millis string
	}{
		{0, "", ""},
		{time.Nanosecond, "1", "1"},
		{time.Millisecond, "1", "1"},
		{1500 * time.Microsecond, "1", "2"},
		{300 * time.Millisecond, "1", "300"},
		{time.Second, "1", "1000"},
		{1999 * time.Millisecond, "1", "1999"},
		{2 * time.Second, "2", "2000"},
		{90 * time.Second, "90", "90000"},
	} {
		h := answered(t, nil, &dedup.Rejection{Reason: dedup.ReasonInProgress, RetryAfter: tc.after}).Header
		if h.Get("Retry-After") != tc.seconds || h.Get("Retry-After-Ms") != tc.millis {
			t.Errorf("%v: Retry-After %q, retry-after-ms %q, want %q and %q", tc.after, h.Get("Retry-After"), h.Get("Retry-After-Ms"), tc.seconds, tc.millis)
		}
	}
}

// TestAnswerKeepsTheCauseToItself: the log's error is not the caller's.
func TestAnswerKeepsTheCauseToItself(t *testing.T) {
	res := answered(t, nil, &dedup.Rejection{Reason: dedup.ReasonStoreUnavailable, Detail: "no", Err: http.ErrServerClosed})
	text := res.Header.Clone()
	var body map[string]any
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	for _, v := range body {
		if s, ok := v.(string); ok {
			text.Add("Body", s)
		}
	}
	for name, values := range text {
		if strings.Contains(strings.Join(values, " "), http.ErrServerClosed.Error()) {
			t.Errorf("%s tells the cause: %q", name, values)
		}
	}
}

// TestMetricsKnowEveryRejection: a reason that is counted as "other" is one that was
// forgotten there. What the upstream did is counted as a failure.
func TestMetricsKnowEveryRejection(t *testing.T) {
	conflicts, rejects := metrics.Reasons()
	for _, reason := range dedup.Reasons() {
		upstream := strings.HasPrefix(string(reason), "upstream_")
		if known := slices.Contains(conflicts, string(reason)) || slices.Contains(rejects, string(reason)); known == upstream {
			t.Errorf("%s is known to metrics: %v", reason, known)
		}
		if conflict := slices.Contains(conflicts, string(reason)); conflict != (contractStatus()[reason] == 409 || reason == dedup.ReasonKeyReuse) {
			t.Errorf("%s is a conflict: %v", reason, conflict)
		}
	}
}

// A brokenStore is a store that claims nothing while it is down.
type brokenStore struct {
	dedup.Store
	down atomic.Bool
}

func (s *brokenStore) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	if s.down.Load() {
		return dedup.Found{}, fmt.Errorf("claim entry: %w: %w", dedup.ErrNotApplied, errors.New("down"))
	}
	return s.Store.Claim(ctx, req)
}

// marked is a request that carries SEKRIT wherever a caller can put something.
func marked(path, body string, headers ...string) string {
	return "POST /" + path + "/SEKRIT?SEKRIT=SEKRIT HTTP/1.1\r\nHost: SEKRIT.example.com\r\nX-Sekrit: SEKRIT\r\nUser-Agent: SEKRIT\r\nX-Forwarded-For: SEKRIT\r\n" +
		strings.Join(headers, "\r\n") + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

const markedKey = "Idempotency-Key: SEKRIT"

// badUpstream serves each path as its name says.
func badUpstream(t *testing.T) (url string, arrived chan struct{}, proceed chan struct{}) {
	arrived, proceed = make(chan struct{}, 10), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.Split(r.URL.Path, "/")[1] {
		case "in-progress", "upstream-timeout":
			arrived <- struct{}{}
			<-proceed
		case "upstream-failed":
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "ok")
	}))
	t.Cleanup(up.Close)
	return up.URL, arrived, proceed
}

// TestNothingOfTheCallerIsAnswered makes every refusal there is happen to a caller that
// sent a marker everywhere, and looks for it in answers and logs.
func TestNothingOfTheCallerIsAnswered(t *testing.T) {
	url, arrived, proceed := badUpstream(t)
	broken := &brokenStore{}
	core, logs := observer.New(zap.DebugLevel)
	options := func(o *Options) {
		broken.Store, o.Store = o.Store, broken
		o.Log = zap.New(core)
		o.Server.BodyTimeout = 300 * time.Millisecond
	}
	rules := []dedup.Rule{
		ruleFor("/{rest...}", func(r *dedup.Rule) { r.MaxRequestBody = 16 }),
		ruleFor("/identity/{rest...}", func(r *dedup.Rule) { r.IdentityHeader = "X-Account" }),
		ruleFor("/large-answer/{rest...}", func(r *dedup.Rule) { r.MaxResponseBody = 1 }),
		ruleFor("/quota/{rest...}", func(r *dedup.Rule) { r.MaxLiveKeysPerScope = 1 }),
	}
	rules = append(rules,
		ruleFor("/token/{rest...}", func(r *dedup.Rule) {
			r.Identity.JWT.Claim, r.Identity.JWT.SecretFile = "sub", secretFile(t, testSecret)
		}),
		ruleFor("/far-token/{rest...}", func(r *dedup.Rule) { r.Identity.JWT.Claim, r.Identity.JWT.JWKSURL = "sub", "http://127.0.0.1:1/" }),
		ruleFor("/asks/{rest...}", func(r *dedup.Rule) { r.ReplayAuth.URL = "http://127.0.0.1:1/" }))
	for i := range rules {
		rules[i].ScopeByRoute, rules[i].Name = true, fmt.Sprint("rule ", i)
	}
	f := newFront(t, url, rules, options)
	hasty := newFront(t, url, []dedup.Rule{ruleFor("/")}, func(o *Options) { o.Log, o.Upstream.ResponseTimeout = zap.New(core), 300*time.Millisecond })
	nowhere := newFront(t, "http://127.0.0.1:1", []dedup.Rule{ruleFor("/")}, func(o *Options) { o.Log = zap.New(core) })
	full := newFront(t, url, []dedup.Rule{ruleFor("/")}, func(o *Options) { o.Log, o.Limits.MaxBufferedBytes = zap.New(core), 1 })

	seen := map[dedup.Reason]bool{}
	refused := func(f *front, reason dedup.Reason, request string) {
		t.Helper()
		res, body := f.raw(request)
		seen[reason] = true
		if res.StatusCode != contractStatus()[reason] || !strings.Contains(body, `"code":"`+string(reason)+`"`) {
			t.Errorf("status %d, body %s; want %s", res.StatusCode, body, reason)
		}
		if text := strings.ToUpper(fmt.Sprint(res.Header, body)); strings.Contains(text, "SEKRIT") {
			t.Errorf("%s: the caller's bytes are in %s", reason, text)
		}
		after, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if has := err == nil && after >= 1 && res.Header.Get("Retry-After-Ms") != ""; has != (reason == dedup.ReasonInProgress || reason == dedup.ReasonTooManyKeys || res.StatusCode == 503) {
			t.Errorf("%s: Retry-After %q, retry-after-ms %q", reason, res.Header["Retry-After"], res.Header["Retry-After-Ms"])
		}
		if res.Header.Get("X-Idempotent-Replay") != "" {
			t.Errorf("%s: it is marked as a replay", reason)
		}
	}
	served := func(request string) {
		t.Helper()
		if res, body := f.raw(request); res.StatusCode != 200 {
			t.Errorf("status %d, body %s", res.StatusCode, body)
		}
	}

	refused(f, "missing_key", marked("x", "SEKRIT"))
	refused(f, "invalid_key", marked("x", "SEKRIT", markedKey+" x"))
	refused(f, "invalid_key", marked("x", "SEKRIT", markedKey, markedKey))
	refused(f, "invalid_key", marked("x", "SEKRIT", `Idempotency-Key: "SEKRIT`))
	refused(f, "bad_request", marked("x", "SEKRIT", markedKey, "Idempotency_Key: SEKRIT"))
	refused(f, "bad_request", marked("x", "SEKRIT", markedKey, "Upgrade: SEKRIT"))
	refused(f, "missing_identity", marked("identity", "SEKRIT", markedKey))
	refused(f, "invalid_identity", marked("identity", "SEKRIT", markedKey, "X-Account: SEKRIT x"))
	refused(f, "invalid_token", marked("token", "SEKRIT", markedKey, "Authorization: Bearer SEKRIT.SEKRIT.SEKRIT"))
	refused(f, "invalid_token", marked("token", "SEKRIT", markedKey, "Authorization: Bearer "+tokenOf(t, jwt.SigningMethodHS256, []byte(testSecret), jwt.MapClaims{"SEKRIT": "SEKRIT"}, map[string]any{"kid": "SEKRIT"})))
	refused(f, "identity_unavailable", marked("far-token", "SEKRIT", markedKey, "Authorization: Bearer SEKRIT.SEKRIT.SEKRIT"))
	served(marked("asks", "SEKRIT", markedKey))
	refused(f, "replay_auth_unavailable", marked("asks", "SEKRIT", markedKey))
	refused(f, "request_too_large", marked("x", "SEKRIT-SEKRIT-SEKRIT", markedKey))
	refused(f, "request_timeout", strings.TrimSuffix(marked("x", "SEKRIT+", markedKey), "+"))
	served(marked("reuse", "SEKRIT", markedKey, "Authorization: SEKRIT"))
	refused(f, "key_reuse", marked("reuse", "SEKRIT2", markedKey, "Authorization: SEKRIT"))
	refused(f, "replay_scope", marked("reuse", "SEKRIT", markedKey, "Authorization: SEKRIT2"))
	served(marked("large-answer", "SEKRIT", markedKey))
	refused(f, "response_not_stored", marked("large-answer", "SEKRIT", markedKey))
	refused(f, "upstream_failed", marked("upstream-failed", "SEKRIT", markedKey+"-failed"))
	refused(f, "outcome_unknown", marked("upstream-failed", "SEKRIT", markedKey+"-failed"))
	served(marked("quota", "SEKRIT", markedKey))
	refused(f, "too_many_keys", marked("quota", "SEKRIT", markedKey+"-2"))
	refused(full, "overloaded", marked("x", "SEKRIT", markedKey))
	refused(nowhere, "upstream_unreachable", marked("x", "SEKRIT", markedKey))

	done := make(chan struct{})
	go func() {
		defer close(done)
		served(marked("in-progress", "SEKRIT", markedKey+"-progress"))
	}()
	<-arrived
	refused(f, "in_progress", marked("in-progress", "SEKRIT", markedKey+"-progress"))
	refused(hasty, "upstream_timeout", marked("upstream-timeout", "SEKRIT", markedKey))
	close(proceed)
	<-done

	id := dedup.Scope{Route: rules[0].Name}.ID("SEKRIT-unreadable")
	if _, err := broken.Complete(t.Context(), id, dedup.NewToken(), dedup.Completion{TTL: time.Hour, Blob: []byte("SEKRIT")}); err != nil {
		t.Fatal(err)
	}
	refused(f, "record_unreadable", marked("x", "SEKRIT", markedKey+"-unreadable"))
	broken.down.Store(true)
	refused(f, "store_unavailable", marked("x", "SEKRIT", markedKey))

	for _, reason := range dedup.Reasons() {
		if !seen[reason] {
			t.Errorf("%s did not happen here", reason)
		}
	}
	for _, entry := range logs.All() {
		if text := strings.ToUpper(fmt.Sprint(entry.Message, entry.ContextMap())); strings.Contains(text, "SEKRIT") {
			t.Errorf("the log tells what the caller sent: %s", text)
		}
	}
	if logs.Len() < len(dedup.Reasons()) {
		t.Errorf("%d log lines of %d refusals", logs.Len(), len(dedup.Reasons()))
	}
}
