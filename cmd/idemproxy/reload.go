package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"go.uber.org/zap"

	"idemproxy/internal/config"
	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
	"idemproxy/internal/proxy"
)

// A reloader loads the configuration again while the program serves, and puts in force
// what can change then.
type reloader struct {
	settings *settings
	level    zap.AtomicLevel
	log      *zap.Logger
	metrics  *metrics.Metrics
	proxy    *proxy.Proxy

	mu      sync.Mutex
	started *config.Config // what needs a restart is still as it was here
	loaded  *config.Config // the last that was not refused
}

// occasions are what a running proxy is told from outside, but for its end.
type occasions struct {
	hangups chan os.Signal
	changes <-chan struct{} // of the file
	drains  <-chan os.Signal
}

// watch begins to note occasions, so that none is missed while the program starts. It
// goes on until ctx ends.
func (s *settings) watch(ctx context.Context) (occasions, error) {
	on := occasions{hangups: make(chan os.Signal, 1), drains: drainSignals()}
	signal.Notify(on.hangups, syscall.SIGHUP)
	if s.path() == "" {
		return on, nil
	}
	var err error
	on.changes, err = config.Watch(ctx, s.path())
	return on, err
}

// run acts on every occasion until ctx ends.
func (r *reloader) run(ctx context.Context, on occasions) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-on.hangups:
			_, _ = r.reload("SIGHUP") // it has logged and counted what went wrong
		case <-on.changes:
			_, _ = r.reload("the file changed")
		case <-on.drains:
			r.proxy.Drain("SIGUSR1")
		}
	}
}

// reload loads the configuration again, and logs and counts how that went. On an error
// nothing has changed.
func (r *reloader) reload(why string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := metrics.ReloadRefused
	next, err := r.settings.load()
	if err == nil {
		result, err = r.apply(next, why)
	}
	if err != nil {
		r.log.Error("the new configuration was refused; the old one stays in force", zap.String("because", why), zap.Strings("faults", faultsOf(err)))
	}
	r.metrics.ConfigReload(result)
	return result, err
}

// apply puts a configuration in force, as far as that can be done without a restart.
func (r *reloader) apply(next *config.Config, why string) (result string, err error) {
	changed := r.loaded.Changes(next)
	// A file that was cut off is still YAML.
	if len(next.Routes) == 0 && len(r.loaded.Routes) > 0 && next.Origin("routes") == "default" {
		return metrics.ReloadRefused, errors.New("it has no routes any more, so that nothing would be guarded; if that is meant, say routes: []")
	}
	if slices.ContainsFunc(changed, config.Reloadable) {
		if err := r.proxy.Reload(proxy.Reloadable{Routes: next.Routes, Limits: next.Limits, AccessLog: next.Log.Access}); err != nil {
			return metrics.ReloadRefused, err
		}
	}
	if slices.Contains(changed, "log.level") { // otherwise a level that was set by hand stays
		r.level.SetLevel(levelOf(next.Log))
	}
	r.loaded = next
	result = metrics.ReloadUnchanged
	if len(changed) > 0 {
		result = metrics.ReloadOK
	}
	r.log.Info("configuration loaded again", zap.String("because", why), zap.String("result", result), zap.Strings("changed", few(changed)), zap.Int("routes", len(next.Routes)))
	for _, w := range next.Warnings(os.Environ()) {
		r.log.Warn(w.Message, zap.String("setting", w.Path), zap.Stringer("at", w.Origin))
	}
	if restart := slices.DeleteFunc(r.started.Changes(next), config.Reloadable); len(restart) > 0 {
		r.log.Warn("changed settings that need a restart: " + strings.Join(few(restart), ", "))
	}
	return result, nil
}

// operations are what the control listener can ask for.
func (r *reloader) operations() proxy.Operations {
	return proxy.Operations{
		Level: r.level,
		Reload: func(why string) (string, []string) {
			result, err := r.reload(why)
			if err != nil {
				return result, faultsOf(err)
			}
			return result, nil
		},
		Settings: func(route string) any {
			r.mu.Lock()
			defer r.mu.Unlock()
			named := func(rule dedup.Rule) bool { return rule.Name == route }
			if i := slices.IndexFunc(r.loaded.Routes, named); i >= 0 {
				return r.loaded.RouteSettings(i)
			}
			return nil
		},
	}
}

// faultsOf are the lines of what is wrong with a configuration.
func faultsOf(err error) []string {
	var all *config.Error
	if !errors.As(err, &all) {
		return []string{oneLine(err)}
	}
	lines := make([]string, len(all.Faults))
	for i, f := range all.Faults {
		lines[i] = f.String()
	}
	return lines
}

// few shortens a list to what a log line should hold.
func few(paths []string) []string {
	const most = 20
	if len(paths) <= most {
		return paths
	}
	return append(slices.Clone(paths[:most]), fmt.Sprintf("and %d more", len(paths)-most))
}
