// Command bench compares idemproxy with a bare httputil.ReverseProxy in front of the
// same upstream: requests a second, latency, processor time and idle memory, each as a
// ratio to the bare proxy. It builds and runs the real binary and knows it only by its
// command line, its configuration and HTTP.
//
// Every process is a separate one: the upstream, the bare proxy, one idemproxy for each
// variant (so that no variant profits from another's heap), and redis-server; this
// program is the load. The variants take turns in rounds, and a ratio is the median of
// the ratios within one round, so that a machine that is busy for a while does not
// favour anyone. Each round also checks what it measured: statuses, replay headers,
// bytes, and how often the upstream executed something; a fault ends the run.
//
// It is no test: nothing passes or fails by time. It needs Linux's /proc for processor
// time and memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	callers int
	rounds  int
	time    time.Duration // of one variant in one round
	only    []string      // names of variants; empty means all
	proxy   string        // an idemproxy binary; empty means build one
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] { // what this program starts itself as
		case "upstream":
			return serve(newUpstream(), os.Stdin, out)
		case "bare":
			return serve(newBareProxy(args[1]), os.Stdin, out)
		}
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen, err := choose(variants(), o.only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idemproxy-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	b := &bench{options: o, dir: dir, out: out}
	err = b.run(ctx, chosen)
	b.stop()
	if err != nil {
		return fmt.Errorf("%w (logs and configurations: %s)", err, dir)
	}
	return os.RemoveAll(dir)
}

func parse(args []string) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.callers, "callers", 64, "callers at a time, each with one connection")
	flags.IntVar(&o.rounds, "rounds", 12, "rounds in which the variants take turns")
	flags.DurationVar(&o.time, "time", time.Second, "time of one variant in one round")
	flags.StringVar(&only, "only", "", "comma-separated variants to run beside bare: "+strings.Join(names(variants()), ", "))
	flags.StringVar(&o.proxy, "proxy", "", "the idemproxy binary to measure (default: build one)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.callers < 1 || o.callers > 999:
		return o, errors.New("-callers must be 1 to 999")
	case o.rounds < 1:
		return o, errors.New("-rounds must be at least 1")
	case o.time <= 0 || o.time > 30*time.Second:
		return o, errors.New("-time must be at most 30s: records live for a minute")
	}
	return o, nil
}

// choose returns the bare proxy and the named variants, or all of them.
func choose(all []variant, only []string) ([]variant, error) {
	if len(only) == 0 {
		return all, nil
	}
	for _, name := range only {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("-only: no variant %q; there are %s", name, strings.Join(names(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(v variant) bool {
		return v.kind != bareProxy && !slices.Contains(only, v.name)
	}), nil
}

func names(all []variant) []string {
	var n []string
	for _, v := range all {
		n = append(n, v.name)
	}
	return n
}

// machine describes where the figures come from.
func machine() string {
	return fmt.Sprintf("%s %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// busy warns of a machine that has other things to do: a minute's average of those that
// wanted a processor. It returns nothing on a quiet machine.
func busy() string {
	var average float64
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	if _, err := fmt.Sscan(string(text), &average); err != nil || average < float64(runtime.NumCPU())/2 {
		return ""
	}
	return fmt.Sprintf("The machine was BUSY with other things (load %.1f on %d processors): "+
		"requests/s and latencies say little, only CPU a request does.\n", average, runtime.NumCPU())
}
