package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
)

func newHealthcheck() *cobra.Command {
	var (
		s       settings
		target  string
		ready   bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running idemproxy whether it is well, for containers without a shell",
		Long: `Ask a running idemproxy on its admin port whether it lives (/healthz) or is ready
(/readyz). The port is that of the configuration (--config, ` + configVariable + `), of
IDEMPROXY_ADMIN_LISTEN, or the default.

Exit codes: 0 yes, 1 no.`,
		Example: "  HEALTHCHECK CMD [\"/idemproxy\", \"healthcheck\"]",
		Args:    cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			if target == "" {
				var err error
				if target, err = probeURL(s.path(), ready); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return probe(ctx, target)
		}),
	}
	s.addConfig(cmd)
	cmd.Flags().StringVar(&target, "url", "", "`URL` to ask instead of the configured admin port")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, not only whether it lives")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "how long to wait for an answer")
	cmd.MarkFlagsMutuallyExclusive("url", "ready")
	return cmd
}

// probeURL is where the admin listener of a configuration answers probes. A listener on
// all addresses is asked on loopback. Faults elsewhere in the file don't matter: the proxy
// that refused to load them goes on by what it had, and is well.
func probeURL(file string, ready bool) (string, error) {
	cfg, err := config.Load(config.Sources{File: file})
	if faults := (*config.Error)(nil); errors.As(err, &faults) {
		fault := faults.In("admin")
		if faults.Understood == nil {
			fault = &faults.Faults[0]
		}
		if fault != nil {
			return "", fmt.Errorf("the configuration is wrong, so that the admin port is not known; validate it, or give --url: %s", fault)
		}
		cfg = faults.Understood
	} else if err != nil {
		return "", err
	}
	if cfg.Admin.Listen == "" {
		return "", errors.New("admin.listen is empty: there is nobody to ask")
	}
	u := url.URL{Scheme: "http", Host: reachable(cfg.Admin.Listen), Path: "/healthz"}
	if ready {
		u.Path = "/readyz"
	}
	return u.String(), nil
}

// reachable is where a listen address that is valid can be reached from this machine.
func reachable(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// probe fails unless the answer is 200.
func probe(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not well: %s answers %d", target, answer.StatusCode)
	}
	return nil
}
