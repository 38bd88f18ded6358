package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The second one
// calls abort.
func untilSignal(parent context.Context, abort func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel()
		if _, open := <-signals; open {
			abort()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}
