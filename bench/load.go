package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// rampTime is how long each variant runs before it is measured, in each round: its
// connections to the upstream may have been idle for too long since the last.
const rampTime = 300 * time.Millisecond

// A load is the callers of one variant.
type load struct {
	variant  variant
	proxy    *process
	upstream *process
	callers  []*caller
}

// figures are what one variant did in one round.
type figures struct {
	requests  int
	rate      float64 // requests a second
	p50, p99  time.Duration
	processor time.Duration // of the proxy, a request
}

// newLoad prepares the callers of a variant; run and number make its keys unique.
func newLoad(v variant, number, callers int, run string, proxy, upstream *process) *load {
	l := &load{variant: v, proxy: proxy, upstream: upstream}
	for i := range callers {
		l.callers = append(l.callers, newCaller(v.path(), fmt.Sprintf("%s-%02d%03d-", run, number, i)))
	}
	return l
}

// run loads the proxy for d and returns the figures, or the first fault.
func (l *load) run(ctx context.Context, d time.Duration) (figures, error) {
	f, err := l.round(ctx, d)
	if err != nil {
		return f, l.proxy.failed(err)
	}
	return f, nil
}

func (l *load) round(ctx context.Context, d time.Duration) (figures, error) {
	defer l.each(func(c *caller) error { c.close(); return nil })
	bodies, err := l.prepare(time.Now().Add(d + 30*time.Second))
	if err != nil {
		return figures{}, err
	}
	executions, err := l.executions(ctx)
	if err != nil {
		return figures{}, err
	}
	ramp, err := l.measure(ctx, rampTime, bodies)
	if err != nil {
		return figures{}, err
	}
	f, err := l.measure(ctx, d, bodies)
	if err != nil {
		return figures{}, err
	}
	if l.variant.kind == unique {
		if err := l.each(repeatLast); err != nil {
			return figures{}, fmt.Errorf("repeating a key: %w", err)
		}
	}
	after, err := l.executions(ctx)
	if err != nil {
		return figures{}, err
	}
	expected := ramp.requests + f.requests
	if l.variant.kind == replay {
		expected = 0
	}
	if after-executions != expected {
		return figures{}, fmt.Errorf("the upstream executed %d requests instead of %d", after-executions, expected)
	}
	return f, nil
}

// prepare connects the callers and, for replays, has each one's request recorded; it
// returns the bodies recorded, by caller.
func (l *load) prepare(deadline time.Time) (map[*caller][]byte, error) {
	var mu sync.Mutex
	bodies := make(map[*caller][]byte)
	return bodies, l.each(func(c *caller) error {
		if err := c.connect(l.proxy.addr, deadline); err != nil {
			return err
		}
		if l.variant.kind != replay {
			return nil
		}
		c.newKey()
		if err := errors.Join(c.exchange(), c.check(false, nil)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		bodies[c] = slices.Clone(c.answer.body)
		return nil
	})
}

// measure has every caller send its requests for d.
func (l *load) measure(ctx context.Context, d time.Duration, bodies map[*caller][]byte) (figures, error) {
	before, err := l.proxy.processorTime()
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	end := start.Add(d)
	err = l.each(func(c *caller) error {
		body := bodies[c]
		c.latencies = c.latencies[:0]
		for sent := time.Now(); sent.Before(end) && ctx.Err() == nil; {
			if body == nil {
				c.newKey()
			}
			if err := c.exchange(); err != nil {
				return err
			}
			now := time.Now()
			if err := c.check(body != nil, body); err != nil {
				return err
			}
			c.latencies = append(c.latencies, now.Sub(sent))
			sent = now
		}
		return ctx.Err()
	})
	took := time.Since(start)
	if err != nil {
		return figures{}, err
	}
	after, err := l.proxy.processorTime()
	if err != nil {
		return figures{}, err
	}
	return l.figures(took, after-before), nil
}

func (l *load) figures(took, processor time.Duration) figures {
	var all []time.Duration
	for _, c := range l.callers {
		all = append(all, c.latencies...)
	}
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return figures{}
	}
	return figures{
		requests:  n,
		rate:      float64(n) / took.Seconds(),
		p50:       all[n/2],
		p99:       all[n*99/100],
		processor: processor / time.Duration(n),
	}
}

// repeatLast sends the last request again, which must be a replay of the last answer.
func repeatLast(c *caller) error {
	body := slices.Clone(c.answer.body)
	if err := c.exchange(); err != nil {
		return err
	}
	return c.check(true, body)
}

// each does something with every caller at once.
func (l *load) each(do func(*caller) error) error {
	errs := make([]error, len(l.callers))
	var group sync.WaitGroup
	for i, c := range l.callers {
		group.Go(func() { errs[i] = do(c) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err // one is enough: they are all alike
		}
	}
	return nil
}

// executions is how many payments the upstream has made so far.
func (l *load) executions(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.upstream.addr+"/executions", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("count executions: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("count executions: %w", err)
	}
	return strconv.Atoi(string(text))
}
