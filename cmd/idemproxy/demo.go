package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
	"idemproxy/internal/proxy"
)

func newDemo() *cobra.Command {
	var listen, api string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a sample payments API with the proxy in front of it",
		Long: `Start a sample payments API, which charges once for every request it sees, and the
proxy in front of it, and print commands to try. Nothing is left behind. With --api
only the sample API is started, as something to put behind a proxy of your own.`,
		Args: cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context(), func() { os.Exit(exitFailure) })
			defer stop()
			if api != "" {
				return serveSample(ctx, cmd.OutOrStdout(), api)
			}
			return demo(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), listen)
		}),
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "`address` of the proxy; if it is taken, a free one is used")
	cmd.Flags().StringVar(&api, "api", "", "only the sample API, at this `address`")
	cmd.MarkFlagsMutuallyExclusive("listen", "api")
	return cmd
}

// serveSample serves the sample API alone until ctx ends.
func serveSample(ctx context.Context, stdout io.Writer, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("start sample API: %w", err)
	}
	api := newSample(stdout)
	fmt.Fprintf(stdout, "The sample payments API listens on http://%s/payments.\n", l.Addr())
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxSlow)
		defer cancel()
		stopped <- api.Shutdown(grace)
	})
	if err := api.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve sample API: %w", err)
	}
	return <-stopped
}

func newSample(stdout io.Writer) *http.Server {
	return &http.Server{Handler: (&paymentsAPI{out: stdout}).handler(), ReadHeaderTimeout: 10 * time.Second}
}

// demo serves the sample API and the proxy until ctx ends.
func demo(ctx context.Context, stdout, stderr io.Writer, listen string) error {
	upstream, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start sample upstream: %w", err)
	}
	api := newSample(stdout)
	go api.Serve(upstream) //nolint:errcheck // it ends by Close only
	defer api.Close()

	cfg := demoConfig(freeAddress(ctx, listen), "http://"+upstream.Addr().String())
	log, _ := newLogger(cfg.Log, stderr)
	sv, err := wire(ctx, cfg, log, proxy.Operations{})
	if err != nil {
		return err
	}
	defer sv.close(log)
	if err := sv.proxy.Listen(); err != nil {
		return err
	}
	if cfg.Server.Listen != listen {
		fmt.Fprintf(stdout, "%s is taken or can't be used; the proxy listens on %s instead.\n\n", listen, sv.proxy.Addr())
	}
	introduce(stdout, sv.proxy.Addr().String(), sv.proxy.AdminAddr().String(), upstream.Addr().String())
	if err := sv.proxy.Serve(ctx); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "\nStopped.")
	return nil
}

// demoConfig has no file and takes nothing from the environment.
func demoConfig(listen, upstream string) *config.Config {
	cfg := config.Default()
	cfg.Server.Listen = listen
	cfg.Server.ShutdownGrace = 5 * time.Second
	cfg.Admin.Listen = "127.0.0.1:0"
	cfg.Upstream.URL = upstream
	cfg.Log = config.LogConfig{Level: config.LevelWarn, Format: config.FormatConsole}
	rule := cfg.Defaults
	rule.Name, rule.Path, rule.Methods = "payments", "/payments", []string{http.MethodPost}
	cfg.Routes = append(cfg.Routes, rule)
	return &cfg
}

// freeAddress is the address itself, or one with a free port if it can't be listened on.
func freeAddress(ctx context.Context, listen string) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return "127.0.0.1:0"
	}
	l.Close()
	return listen
}

// introduce prints what runs and what to try.
func introduce(w io.Writer, listen, admin, upstream string) {
	text := `idemproxy demo

  the proxy        PROXY/payments
  behind it        UPSTREAM/payments  (a sample payments API that charges for every POST it sees)
  its admin port   ADMIN  (/metrics, /healthz, /readyz)

Paste these into another terminal:

  1. Pay. The first answer comes from the API: 201, charge_no 1.
     curl -i PROXY/payments -H 'Idempotency-Key: order-1' -d '{"amount": 1999}'

  2. The same line again, as a retry would send it: the same answer, byte for byte, with
     X-Idempotent-Replay: true. The API saw nothing.
     curl -i PROXY/payments -H 'Idempotency-Key: order-1' -d '{"amount": 1999}'

  3. The same key for another payment: 422 key_reuse.
     curl -i PROXY/payments -H 'Idempotency-Key: order-1' -d '{"amount": 5}'

  4. A retry while the first is still running: 409 in_progress, then the first one's 201.
     curl -s 'PROXY/payments?slow=3s' -H 'Idempotency-Key: order-2' -d '{"amount": 700}' & sleep 1; curl -i 'PROXY/payments?slow=3s' -H 'Idempotency-Key: order-2' -d '{"amount": 700}'; wait

  5. No key: 400 missing_key.
     curl -i PROXY/payments -d '{"amount": 1}'

  6. Six requests to pay later the API has charged twice:
     curl PROXY/payments

Ctrl-C ends it.

`
	urls := strings.NewReplacer("PROXY", "http://"+listen, "UPSTREAM", "http://"+upstream, "ADMIN", "http://"+admin)
	fmt.Fprint(w, urls.Replace(text))
}
