package proxy

import (
	"context"

	"idemproxy/internal/dedup"
)

// maxWithdrawals bounds how many claims wait to be withdrawn, some kilobytes each. A claim
// beyond it, should the store have taken it, is held as an unknown outcome: wrong only on
// the safe side.
const maxWithdrawals = 10_000

// background is what goes on after a request was answered: ends of claims that the store
// did not take at once.
type background struct {
	ctx         context.Context
	cancel      context.CancelFunc
	running     *tally
	withdrawals chan struct{}
	draining    context.Context // ends what is not worth waiting for
	drain       context.CancelFunc
}

func newBackground() background {
	ctx, cancel := context.WithCancel(context.Background())
	draining, drain := context.WithCancel(ctx)
	return background{ctx, cancel, &tally{}, make(chan struct{}, maxWithdrawals), draining, drain}
}

// run runs f; its context ends when the proxy has no more time.
func (b background) run(f func(context.Context)) {
	b.running.Add(1)
	go func() {
		defer b.running.Done()
		f(b.ctx)
	}()
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
	b.running.wait(ctx)
	b.cancel()
}
