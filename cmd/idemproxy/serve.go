package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"idemproxy/internal/config"
	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
	"idemproxy/internal/proxy"
	"idemproxy/internal/store"
)

func newServe() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve in front of a service",
		Long: `Serve in front of a service, as a configuration file says, or with --upstream alone:
then every POST, PUT, PATCH and DELETE that carries an Idempotency-Key is guarded, on a
store in memory.

Every setting can also be given by the environment (IDEMPROXY_UPSTREAM_URL for
upstream.url). A flag goes before the environment, the environment before the file.

SIGHUP, or a change of the file: routes, limits, log.level and log.access are taken up;
what else has changed needs a restart, and the log names it. A wrong file is refused.

SIGTERM or SIGINT: not ready any more, let running requests end and record their
answers, exit 0. A second signal ends it at once. SIGUSR1 (idemproxy drain): not ready any
more, and serving until then.`,
		Example: `  idemproxy serve --config /etc/idemproxy.yaml
  idemproxy serve --upstream http://127.0.0.1:3000`,
		Args: cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context(), func() { os.Exit(exitFailure) })
			defer stop()
			on, unwatched := s.watch(ctx)
			cfg, err := s.load()
			if err != nil {
				return err
			}
			log, level := newLogger(cfg.Log, cmd.ErrOrStderr())
			if unwatched != nil {
				log.Warn("changes of the configuration's file are noticed late; SIGHUP loads it at once", zap.Error(unwatched))
			}
			return serve(ctx, cfg, &reloader{settings: &s, level: level, log: log, started: cfg, loaded: cfg}, on)
		}),
	}
	s.addConfig(cmd)
	s.addOverrides(cmd)
	return cmd
}

// serve wires everything together and serves until ctx ends.
func serve(ctx context.Context, cfg *config.Config, again *reloader, on occasions) error {
	log := again.log
	for _, warning := range cfg.Warnings(os.Environ()) {
		log.Warn(warning.Message, zap.String("setting", warning.Path), zap.Stringer("at", warning.Origin))
	}
	sv, err := wire(ctx, cfg, log, again.operations())
	if err != nil {
		return err
	}
	defer sv.close(log)
	again.metrics, again.proxy = sv.metrics, sv.proxy
	watch := eviction{log: log, required: cfg.Store.Redis.RequireNoeviction, every: 10 * time.Second}
	if err := watch.check(ctx, sv.store); err != nil {
		return err
	}
	if err := sv.proxy.Listen(); err != nil {
		return err
	}
	sv.introduce(cfg, log)
	audit := trail{keys: dedup.Keys{Store: sv.store}, metrics: sv.metrics, log: log, every: 5 * time.Second}
	go audit.follow(ctx)
	go again.run(ctx, on)
	if err := sv.proxy.Serve(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// A service is everything that serves.
type service struct {
	store   dedup.Store
	proxy   *proxy.Proxy
	metrics *metrics.Metrics
}

// wire opens the store and makes the proxy; it binds no address.
func wire(ctx context.Context, cfg *config.Config, log *zap.Logger, can proxy.Operations) (*service, error) {
	m := metrics.New(versionText())
	opened, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return nil, err
	}
	sv := &service{store: store.Observed(opened, m), metrics: m}
	warnOfWatch(sv.store, log)
	sv.proxy, err = proxy.New(proxy.Options{
		Server:     cfg.Server,
		Admin:      cfg.Admin,
		Control:    cfg.Control,
		Operations: can,
		Upstream:   cfg.Upstream,
		Limits:     cfg.Limits,
		Tracing:    cfg.Tracing,
		Version:    versionText(),
		Routes:     cfg.Routes,
		Store:      sv.store,
		Metrics:    m,
		Log:        log,
		AccessLog:  cfg.Log.Access,
		Replica:    replicaName(),
	})
	if err != nil {
		sv.close(log)
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	return sv, nil
}

// introduce logs what serves, and where.
func (sv *service) introduce(cfg *config.Config, log *zap.Logger) {
	fields := []zap.Field{
		zap.String("version", versionText()),
		zap.Stringer("listen", sv.proxy.Addr()),
		zap.String("upstream", cfg.Upstream.URL),
		zap.String("store", cfg.Store.Type),
		zap.Int("routes", len(cfg.Routes)),
	}
	if admin := sv.proxy.AdminAddr(); admin != nil {
		fields = append(fields, zap.Stringer("admin", admin))
	}
	if control := sv.proxy.ControlAddr(); control != nil {
		fields = append(fields, zap.Stringer("control", control))
	}
	log.Info("serving", fields...)
}

func (sv *service) close(log *zap.Logger) {
	if err := sv.store.Close(); err != nil {
		log.Warn("close store", zap.Error(err))
	}
}

// replicaName is what Kubernetes calls this pod, or else what the machine is called.
func replicaName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, _ := os.Hostname() // without a name a claim tells only its route
	return name
}
