package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// bench is one run: what was started and what came out.
type bench struct {
	options
	dir string
	out io.Writer

	processes []*process
	loads     []*load
	rows      []row
}

// run compares the variants.
func (b *bench) run(ctx context.Context, chosen []variant) error {
	warning := busy()
	if err := b.start(ctx, chosen); err != nil {
		return err
	}
	if err := sleep(ctx, time.Second); err != nil { // until they are idle
		return err
	}
	for _, l := range b.loads {
		idle, err := l.proxy.memory()
		if err != nil {
			return err
		}
		b.rows = append(b.rows, row{variant: l.variant, idle: idle})
	}
	if err := b.rounds(ctx); err != nil {
		return err
	}
	return report(b.out, b.options, warning, b.rows)
}

// start runs the upstream, Redis and a proxy for each variant.
func (b *bench) start(ctx context.Context, chosen []variant) error {
	upstream, err := b.started(startOwn(ctx, b.dir, "upstream", "upstream"))
	if err != nil {
		return err
	}
	redis, chosen, err := b.redis(ctx, chosen)
	if err != nil {
		return err
	}
	binary, err := b.build(ctx, chosen)
	if err != nil {
		return err
	}
	run := rand.Text()[:8]
	for i, v := range chosen {
		var proxy *process
		if v.kind == bareProxy {
			proxy, err = b.started(startOwn(ctx, b.dir, v.name, "bare", upstream.addr))
		} else {
			proxy, err = b.started(startProxy(ctx, b.dir, binary, v, upstream.addr, redis))
		}
		if err != nil {
			return err
		}
		b.loads = append(b.loads, newLoad(v, i, b.callers, run, proxy, upstream))
	}
	return nil
}

// redis runs redis-server if a variant needs it, and returns its address. Where there
// is none, it says so and leaves those variants out.
func (b *bench) redis(ctx context.Context, chosen []variant) (addr string, left []variant, err error) {
	needs := func(v variant) bool { return v.store == "redis" }
	if !slices.ContainsFunc(chosen, needs) {
		return "", chosen, nil
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Fprintln(b.out, "There is no redis-server on this machine: the variants on Redis are LEFT OUT.")
		return "", slices.DeleteFunc(chosen, needs), nil
	}
	p, err := b.started(startRedis(ctx, b.dir))
	if err != nil {
		return "", nil, err
	}
	return p.addr, chosen, nil
}

// build returns the binary to measure, built as `make build` does.
func (b *bench) build(ctx context.Context, chosen []variant) (string, error) {
	if !slices.ContainsFunc(chosen, func(v variant) bool { return v.kind != bareProxy }) {
		return "", nil
	}
	if b.proxy != "" {
		return filepath.Abs(b.proxy)
	}
	binary := filepath.Join(b.dir, "idemproxy")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "idemproxy/cmd/idemproxy")
	command.Env = append(command.Environ(), "CGO_ENABLED=0")
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build idemproxy: %w\n%s", err, text)
	}
	return binary, nil
}

// started remembers a process to stop it in the end, whether or not it came up.
func (b *bench) started(p *process, err error) (*process, error) {
	if p != nil {
		b.processes = append(b.processes, p)
	}
	return p, err
}

// rounds has the variants take turns, each round in another order, after a short one
// that warms them up and does not count.
func (b *bench) rounds(ctx context.Context) error {
	for _, l := range b.loads {
		if _, err := l.run(ctx, min(b.time, time.Second)); err != nil {
			return err
		}
	}
	for round := range b.options.rounds {
		for i := range b.loads {
			at := (i + round) % len(b.loads)
			f, err := b.loads[at].run(ctx, b.time)
			if err != nil {
				return err
			}
			if f.requests == 0 {
				return errors.New("no request was answered: -time is too short")
			}
			b.rows[at].rounds = append(b.rows[at].rounds, f)
		}
		fmt.Fprintf(b.out, "round %d of %d\n", round+1, b.options.rounds)
	}
	return nil
}

// stop ends what was started, the last first.
func (b *bench) stop() {
	for _, p := range slices.Backward(b.processes) {
		p.stop()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
