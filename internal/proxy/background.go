package proxy

import (
	"context"
	"sync"

	"idemproxy/internal/dedup"
)

// maxWithdrawals bounds how many claims are withdrawn at once. A claim beyond it, should
// the store have taken it, is held as an unknown outcome: wrong only on the safe side.
const maxWithdrawals = 256

// background is what goes on after a request was answered: ends of claims that the store
// did not take at once.
type background struct {
	ctx         context.Context
	cancel      context.CancelFunc
	running     *sync.WaitGroup
	withdrawals chan struct{}
	draining    context.Context // ends what is not worth waiting for
	drain       context.CancelFunc
}

func newBackground() background {
	ctx, cancel := context.WithCancel(context.Background())
	draining, drain := context.WithCancel(ctx)
	return background{ctx, cancel, &sync.WaitGroup{}, make(chan struct{}, maxWithdrawals), draining, drain}
}

// run runs f; its context ends when the proxy has no more time.
func (b background) run(f func(context.Context)) {
	b.running.Go(func() { f(b.ctx) })
}

// withdraw takes back a claim that the store may have taken although it gave no answer.
func (b background) withdraw(c *dedup.Claim) {
	select {
	case b.withdrawals <- struct{}{}:
		b.run(func(context.Context) {
			defer func() { <-b.withdrawals }()
			_ = c.Withdraw(b.draining) // what can't be withdrawn is held as unknown when its lease is over
		})
	default:
	}
}

// wait waits for it to end, or for ctx; then the rest is cancelled. Withdrawals are not
// waited for: without them a key is held, which is wrong only on the safe side.
func (b background) wait(ctx context.Context) {
	b.drain()
	waitFor(ctx, b.running)
	b.cancel()
}

// waitFor waits for a group or for ctx. It reports whether the group ended.
func waitFor(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
