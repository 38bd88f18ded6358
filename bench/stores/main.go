// Command stores measures the stores without a proxy around them: how long a claim, its
// completion and a replay take, and how many of them a second there are, by one caller and
// by many, with few and with many records alive.
//
// It starts real servers itself (redis-server, PostgreSQL, each syncing its disk as a
// careful operator has it) and knows the stores by their one interface. It is no test:
// nothing passes or fails by time, but an operation that fails or finds something else
// than it should ends the run.
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
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are what the command line says.
type options struct {
	stores  []string
	callers []int
	live    []int // records alive when it is measured, ascending
	time    time.Duration
	size    int
	dir     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var stores, callers, live string
	flags := flag.NewFlagSet("stores", flag.ContinueOnError)
	flags.StringVar(&stores, "stores", strings.Join(names(), ","), "which to measure")
	flags.StringVar(&callers, "callers", "1,64", "callers at a time")
	flags.StringVar(&live, "live", "0,100000", "records alive when it is measured; 1000000 takes minutes and gigabytes")
	flags.DurationVar(&o.time, "time", time.Second, "time of one measurement")
	flags.IntVar(&o.size, "size", 512, "bytes of a record")
	flags.StringVar(&o.dir, "dir", "", "where files go (default: the system's folder for temporary ones)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.stores = strings.Split(stores, ",")
	for _, name := range o.stores {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("-stores: no %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	var err1, err2 error
	o.callers, err1 = numbers(callers, 1)
	o.live, err2 = numbers(live, 0)
	switch {
	case err1 != nil || err2 != nil:
		return o, fmt.Errorf("-callers, -live: %w", errors.Join(err1, err2))
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.time <= 0 || o.time > time.Minute || o.size < 0:
		return o, errors.New("-time must be at most 1m, -size not negative")
	}
	return o, nil
}

// numbers reads a list of numbers, ascending.
func numbers(list string, least int) (all []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no number of at least %d", word, least)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "idemproxy-stores-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(out, "%s, %s %s/%s, %d processors, load %.4s; records of %d bytes, %v a measurement.\n\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load, o.size, o.time)
	fmt.Fprintln(out, "Operations a second, p50 and p99; a claim, its completion with a record, a replay of it.")
	w := tabwriter.NewWriter(out, 10, 0, 2, ' ', 0)
	fmt.Fprint(w, "store\tlive records\tcallers\tclaim/s\tp50\tp99\tcomplete/s\tp50\tp99\treplay/s\tp50\tp99\t\n")
	for _, name := range o.stores {
		if err := measureStore(ctx, o, dir, name, w); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// measureStore prints a line for each number of records and of callers.
func measureStore(ctx context.Context, o options, dir, name string, out io.Writer) error {
	s, err := open(ctx, dir, name)
	if err != nil {
		return err
	}
	defer s.close()
	alive := 0
	for _, live := range o.live {
		if err := s.fill(ctx, live-alive, o.size); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		alive = max(alive, live)
		for _, callers := range o.callers {
			f, err := measure(ctx, s.store, callers, o.time, o.size)
			if err != nil {
				return err
			}
			alive += f.claim.n
			fmt.Fprintf(out, "%s\t%d\t%d\t%v%v%v\n", name, live, callers, f.claim, f.complete, f.replay)
		}
	}
	return nil
}
