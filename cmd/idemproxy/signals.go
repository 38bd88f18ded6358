package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The second one
// calls abort. Stop ends the context and lets signals do what they do by themselves.
func untilSignal(parent context.Context, abort func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	stopped := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for _, act := range []func(){cancel, abort} {
			select {
			case <-signals:
				act()
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		cancel()
	}
}
