package proxy

import (
	"context"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
)

// maxWithdrawals bounds how many claims wait to be withdrawn, some kilobytes each. A claim
// beyond it, should the store have taken it, is held as an unknown outcome: wrong only on
// the safe side.
const maxWithdrawals = 10_000

// background is what goes on after a request was answered: ends of claims that the store
// did not take at once.
type background struct {
	log         *zap.Logger
	ctx         context.Context
	cancel      context.CancelFunc
	running     *tally
	withdrawals chan struct{}
	draining    context.Context // ends what is not worth waiting for
	drain       context.CancelFunc
}

func newBackground(log *zap.Logger) background {
	ctx, cancel := context.WithCancel(context.Background())
	draining, drain := context.WithCancel(ctx)
	return background{log, ctx, cancel, &tally{}, make(chan struct{}, maxWithdrawals), draining, drain}
}

// run runs f; its context ends when the proxy has no more time.
func (b background) run(f func(context.Context)) {
	b.running.Add(1)
	go func() {
		defer b.running.Done()
		defer b.rescue()
		f(b.ctx)
	}()
}

// rescue keeps what one request left to do from ending the process with all others.
func (b background) rescue() {
	if fault := recover(); fault != nil {
		logPanic(b.log, fault)
	}
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
