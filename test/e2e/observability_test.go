package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests are about what operators see, contract §8.

// metrics is the page of metrics, by series.
func (p *proxy) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	res, err := exchange(p.admin, request{method: "GET", target: "/metrics"})
	if err != nil || res.status != 200 {
		t.Fatalf("no metrics: %v, %v", res, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.secrets {
		if strings.Contains(string(res.body), s) {
			t.Errorf("the metrics have %q, which a caller sent", s)
		}
	}
	series := map[string]float64{}
	for line := range strings.Lines(string(res.body)) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			series[line[:at]], _ = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		}
	}
	return series
}

// metric is one series; 0 if there is none.
func (p *proxy) metric(t *testing.T, series string) float64 {
	t.Helper()
	return p.metrics(t)[series]
}

func TestMetricsMove(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		g := newGate(t)
		up := newUpstream(t, created)
		p := start(t, setup{store: s, upstream: up.url, upstreams: "response_timeout: 500ms", routes: `
  - {name: payments, path: "/pay", identity_header: X-Account, max_response_body: 1KiB, max_request_body: 1KiB}
  - {name: optional, path: /optional, missing_header: pass-through}`})
		everyOutcome(t, p, up, g)
		eventually(t, "counted", func() bool { return p.metric(t, `idemproxy_in_flight{route="payments"}`) == 0 })
		got := p.metrics(t)
		for series, want := range map[string]float64{
			`idemproxy_requests_total{outcome="executed",route="payments"}`:            3,
			`idemproxy_requests_total{outcome="replayed",route="payments"}`:            2,
			`idemproxy_requests_total{outcome="released",route="payments"}`:            1,
			`idemproxy_requests_total{outcome="failed",route="payments"}`:              2,
			`idemproxy_requests_total{outcome="rejected",route="payments"}`:            10,
			`idemproxy_requests_total{outcome="passed_through",route="optional"}`:      1,
			`idemproxy_replays_total{route="payments"}`:                                2,
			`idemproxy_conflicts_total{reason="in_progress",route="payments"}`:         1,
			`idemproxy_conflicts_total{reason="key_reuse",route="payments"}`:           1,
			`idemproxy_conflicts_total{reason="replay_scope",route="payments"}`:        1,
			`idemproxy_conflicts_total{reason="outcome_unknown",route="payments"}`:     1,
			`idemproxy_conflicts_total{reason="response_not_stored",route="payments"}`: 1,
			`idemproxy_rejects_total{reason="missing_key",route="payments"}`:           1,
			`idemproxy_rejects_total{reason="invalid_key",route="payments"}`:           1,
			`idemproxy_rejects_total{reason="missing_identity",route="payments"}`:      1,
			`idemproxy_rejects_total{reason="invalid_identity",route="payments"}`:      1,
			`idemproxy_rejects_total{reason="request_too_large",route="payments"}`:     1,
			`idemproxy_records_bytes_count`:                                            3,
			`idemproxy_in_flight{route="payments"}`:                                    0,
			`idemproxy_overhead_seconds_count{outcome="executed",route="payments"}`:    3,
			`idemproxy_overhead_seconds_count{outcome="replayed",route="payments"}`:    2,
			`idemproxy_upstream_duration_seconds_bucket{route="payments",le="+Inf"}`:   got[`idemproxy_upstream_duration_seconds_count{route="payments"}`],
			`idemproxy_store_failures_total{op="claim"}`:                               0,
			`idemproxy_store_duration_seconds_bucket{op="claim",le="+Inf"}`:            got[`idemproxy_store_duration_seconds_count{op="claim"}`],
		} {
			if got[series] != want {
				t.Errorf("%s is %v, want %v", series, got[series], want)
			}
		}
		checkFamilies(t, got)
	})
}

// everyOutcome has each thing happen that is counted, most of them once.
func everyOutcome(t *testing.T, p *proxy, up *upstream, g *gate) {
	t.Helper()
	account := []string{"X-Account: alice"}
	req := request{key: newKey(), body: "x", header: account}
	p.send(t, req).fresh(t, 201)
	p.send(t, req)
	p.send(t, req)
	other := req
	other.body = "y"
	p.send(t, other).refused(t, 422, "key_reuse")
	other = req
	other.header = append(slices.Clone(account), "Authorization: Bearer 0123456789abcdef")
	p.send(t, other).refused(t, 409, "replay_scope")

	up.answers(text(429, "slower"))
	p.send(t, request{key: newKey(), header: account}).fresh(t, 429)
	up.answers(text(200, strings.Repeat("x", 2000)))
	req.key = newKey()
	p.send(t, req).fresh(t, 200)
	p.send(t, req).refused(t, 409, "response_not_stored")

	up.answers(dropped())
	req.key = newKey()
	p.send(t, req).refused(t, 502, "upstream_failed")
	p.send(t, req).refused(t, 409, "outcome_unknown")
	never := newGate(t)
	up.answers(held(never, created))
	req.key = newKey()
	p.send(t, req).refused(t, 504, "upstream_timeout")

	up.answers(held(g, created))
	req.key = newKey()
	time.AfterFunc(100*time.Millisecond, g.open)
	running := p.begin(req)
	g.arrived(t)
	busy := p.send(t, req)
	running.wait(t)
	busy.refused(t, 409, "in_progress")

	p.send(t, request{header: account}).refused(t, 400, "missing_key")
	p.send(t, request{key: "a b", header: account}).refused(t, 400, "invalid_key")
	p.send(t, request{key: newKey()}).refused(t, 400, "missing_identity")
	p.send(t, request{key: newKey(), header: []string{"X-Account: a b"}}).refused(t, 400, "invalid_identity")
	p.send(t, request{key: newKey(), header: account, body: strings.Repeat("x", 2000)}).refused(t, 413, "request_too_large")
	up.answers(created)
	p.send(t, request{target: "/optional"}).fresh(t, 201)
}

// checkFamilies checks that every metric of the contract is there, but for those whose
// event did not happen.
func checkFamilies(t *testing.T, series map[string]float64) {
	t.Helper()
	for _, family := range []string{
		"idemproxy_requests_total{", "idemproxy_replays_total{", "idemproxy_conflicts_total{", "idemproxy_rejects_total{",
		"idemproxy_unknown_outcomes_total{", "idemproxy_store_duration_seconds_count{", "idemproxy_upstream_duration_seconds_count{",
		"idemproxy_overhead_seconds_count{", "idemproxy_in_flight{", "idemproxy_records_bytes_count", "idemproxy_build_info{",
		"go_goroutines", "process_resident_memory_bytes",
	} {
		found := false
		for name := range series {
			found = found || strings.HasPrefix(name, family)
		}
		if !found {
			t.Errorf("no metric %s", family)
		}
	}
	unknown := 0.0
	for name, value := range series {
		if strings.HasPrefix(name, `idemproxy_unknown_outcomes_total{`) && strings.Contains(name, `route="payments"`) {
			unknown += value
		}
	}
	if unknown != 2 {
		t.Errorf("%v unknown outcomes, want 2", unknown)
	}
}

// No label has anything that a caller chose.
func TestCallersMakeNoSeries(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	warm := func(n int) {
		for range n {
			word := unique("word")
			p.send(t, request{method: "GET", target: "/" + word + "?" + word + "=" + word})
			p.send(t, request{method: strings.ToUpper(word[:4]) + word[5:9], target: "/" + word})
			p.send(t, request{target: "/pay", key: word, body: word, header: []string{"Authorization: Basic " + word}})
			p.send(t, request{target: "/pay/?" + word, key: word + " "})
		}
	}
	warm(1)
	before := len(p.metrics(t))
	warm(5)
	if after := len(p.metrics(t)); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestOneLogLineForEachRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			w.Header().Set("Set-Cookie", "session=marker-of-the-answer")
			text(201, "marker-of-the-body")(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: `  - {name: payments, path: "/pay/{card}", identity_header: X-Account}`})
		p.secret("marker-of-the-answer", "marker-of-the-body", "4242424242424242", "marker-of-the-path")
		req := request{key: newKey(), target: "/pay/4242424242424242?token=marker-of-the-query", body: "marker-of-the-request", header: []string{"X-Account: marker-of-the-account", "Authorization: Bearer marker-of-the-credential", "Cookie: c=marker-of-the-cookie"}}
		first := p.send(t, req).fresh(t, 201)
		p.send(t, req).replays(t, first)
		other := req
		other.body += "2"
		p.send(t, other).refused(t, 422, "key_reuse")
		up.answers(dropped())
		req.key = newKey()
		p.send(t, req).refused(t, 502, "upstream_failed")
		p.send(t, request{method: "GET", target: "/marker-of-the-path"})
		p.stop()

		var lines []map[string]any
		for line := range strings.Lines(p.log.String()) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Errorf("a line that is no JSON: %q", line)
				continue
			}
			if entry["route"] == "payments" {
				lines = append(lines, entry)
			}
		}
		if len(lines) != 4 {
			t.Fatalf("%d lines for 4 requests:\n%s", len(lines), p.log)
		}
		for i, want := range []struct {
			outcome string
			status  float64
		}{{"executed", 201}, {"replayed", 201}, {"rejected", 422}, {"failed", 502}} {
			if lines[i]["outcome"] != want.outcome || lines[i]["status"] != want.status {
				t.Errorf("line %d is %v, want %v", i, lines[i], want)
			}
		}
		if hash, _ := lines[0]["key_hash"].(string); hash == "" || hash != lines[1]["key_hash"] || hash == lines[3]["key_hash"] {
			t.Errorf("the hash of the key doesn't tell keys apart: %v", lines)
		}
	})
}

func TestAccessLinesCanBeOff(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, log: "access: false, level: info", routes: payments})
	p.send(t, request{key: newKey()}).fresh(t, 201)
	p.stop()
	if strings.Contains(p.log.String(), "payments") {
		t.Errorf("it logged the request:\n%s", p.log)
	}
}

// At the most talkative level, at which all these tests run their proxies unless they say
// otherwise, the log has no secrets either; see proxy.checkLog.
func TestDebugLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	p := start(t, setup{store: memory(), upstream: up.url, routes: payments})
	req := request{key: newKey(), target: "/pay?token=marker-of-the-query", body: "marker-of-the-request", header: []string{"Authorization: Bearer marker-of-the-credential", "Cookie: session=marker-of-the-cookie"}}
	up.answers(func(w http.ResponseWriter, _ *received) {
		w.Header().Set("Set-Cookie", "session=marker-of-another-cookie; Path=/")
		_, _ = io.WriteString(w, "marker-of-the-answer")
	})
	p.send(t, req).fresh(t, 200)
	p.send(t, request{raw: "POST /pay?marker-of-a-malformed HTTP/1.1\r\nHost: x\r\nIdempotency-Key: marker\x00\r\n\r\n"})
	up.answers(hijacked("HTTP/1.1 marker-of-the-status-line\r\nmarker-of-a-header\r\n\r\n"))
	p.secret("marker-of-a-malformed", "marker-of-a-header")
	req.key = newKey()
	p.send(t, req).refused(t, 502, "upstream_failed")
	p.send(t, request{method: "GET", target: "/x?token=marker-of-the-query", header: []string{"Authorization: Bearer marker-of-the-credential"}})
}

// The passwords of a store that fails are in no log. URLs of other services may have none.
func TestDebugLogsHaveNoPasswords(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, created)
	nobody := local(freePort())
	for name, yaml := range map[string]string{
		"redis":    `type: redis, redis: {url: "redis://sidecar:marker-of-the-password@` + nobody + `/0"}`,
		"sentinel": `type: redis, redis: {master_name: m, addresses: ["` + nobody + `"], username: sidecar, password: marker-of-the-password}`,
		"postgres": `type: postgres, postgres: {url: "postgres://sidecar:marker-of-the-password@` + nobody + `/db"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, setup{
				store: storage{yaml: yaml}, upstream: up.url, unready: true,
				routes: `
  - {name: pay, path: /pay}
  - {name: passes, path: /passes, on_store_failure: pass-through}`,
			})
			p.send(t, request{key: newKey()}).refused(t, 503, "store_unavailable")
			p.send(t, request{key: newKey(), target: "/passes"}).fresh(t, 201)
			p.stop()
			if log := p.log.String(); !strings.Contains(log, "store_unavailable") {
				t.Errorf("it logged no trouble:\n%s", log)
			}
		})
	}
}
