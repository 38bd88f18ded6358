package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"idemproxy/internal/metrics"
)

// controlStatus is what goes on in this process.
type controlStatus struct {
	Version  string        `json:"version"`
	Go       string        `json:"go"`
	Replica  string        `json:"replica,omitempty"`
	Started  time.Time     `json:"started"`
	Uptime   int64         `json:"uptime_seconds"`
	Draining bool          `json:"draining"`
	LogLevel string        `json:"log_level"`
	ReadOnly bool          `json:"read_only"`      // there is no token: nothing can be changed
	Passed   int64         `json:"passed_through"` // requests that no route matches
	Routes   []routeStatus `json:"routes"`
}

// routeStatus is a rule that is in force, and what came of its requests since the process
// began.
type routeStatus struct {
	Name    string   `json:"name"`
	Mode    string   `json:"mode"`
	Methods []string `json:"methods"`
	Host    string   `json:"host,omitempty"`
	Path    string   `json:"path"`
	naming
	metrics.Counts
	Settings any `json:"settings"`
}

func (c *control) status(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	o := &c.p.options
	counts, err := o.Metrics.Counts()
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	s := controlStatus{
		Version: o.Version, Go: runtime.Version(), Replica: o.Replica,
		Started: c.began.UTC().Truncate(time.Millisecond), Uptime: int64(time.Since(c.began).Seconds()),
		Draining: c.p.draining.Load(), LogLevel: o.Operations.Level.String(), ReadOnly: c.token == nil,
		Passed: counts[""].Requests[outcomePassedThrough], Routes: []routeStatus{},
	}
	for _, rt := range c.p.rules.Load().routes.all {
		s.Routes = append(s.Routes, routeStatus{
			Name: rt.rule.Name, Mode: string(rt.rule.Mode), Methods: rt.rule.Methods, Host: rt.rule.Host, Path: rt.rule.Path,
			naming: namingOf(rt.rule), Counts: counts[rt.rule.Name], Settings: o.Operations.Settings(rt.rule.Name),
		})
	}
	return s, nil
}

// drain makes the replica not ready, so that no more requests are led to it. It serves on
// until it is told to end.
func (c *control) drain(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	c.p.Drain(c.keys(r).By)
	return map[string]bool{"draining": true}, nil
}

func (c *control) reload(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	result, faults := c.p.options.Operations.Reload(c.keys(r).By)
	if len(faults) > 0 {
		return map[string]any{"result": result, "faults": faults},
			&controlError{http.StatusUnprocessableEntity, "config_refused", "The new configuration was refused; the old one stays in force."}
	}
	return map[string]string{"result": result}, nil
}

// logLevels are the levels that log.level has.
func logLevels() []zapcore.Level {
	return []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel}
}

type levelBody struct {
	Level *zapcore.Level `json:"level"`
}

func (c *control) logLevel(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	level := c.p.options.Operations.Level.Level()
	return levelBody{&level}, nil
}

// setLogLevel counts until the next one, a restart, or a reload that changes log.level.
func (c *control) setLogLevel(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	var body levelBody
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&body); err != nil || body.Level == nil || !slices.Contains(logLevels(), *body.Level) {
		return nil, errBadRequest(`The body must be {"level": "debug"}, or info, warn or error.`)
	}
	c.p.options.Operations.Level.SetLevel(*body.Level)
	c.p.log.Warn("an operator set the log's level", zap.Stringer("to", *body.Level), zap.String("by", c.keys(r).By))
	return body, nil
}
