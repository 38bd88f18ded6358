package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

// redisSilence is how long a subscription may hear nothing before the server is asked
// whether it is still there.
const redisSilence = 15 * time.Second

// Watch is dedup.Store's. All watches of a process share one subscription, which begins
// with the first of them, to one channel: what is published there are the keys of claims
// that somebody waits for, when they end.
func (r *Redis) Watch(id dedup.ID) (<-chan struct{}, func()) { return r.watchers.watch(id) }

// WarnOfWatch sets what is called when watches don't come into force, as when this user
// may not subscribe: once, until they have been in force again. Waiting requests then ask
// now and then.
func (r *Redis) WarnOfWatch(warn func(error)) { r.watchers.warnBy(warn) }

// channel is where the ends of claims are published.
func (r *Redis) channel() string { return r.prefix + "ended" }

func (r *Redis) listen() { r.watchers.keepListening(r.life, r.subscribe) }

// subscribe listens on one connection, outside the pool.
func (r *Redis) subscribe(ctx context.Context) error {
	sub := r.client.Subscribe(ctx, r.channel())
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	asked := false
	for {
		heard, err := sub.ReceiveTimeout(ctx, redisSilence)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !asked:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		asked = false
		switch m := heard.(type) {
		case *redis.Subscription:
			r.watchers.comeIntoForce()
		case *redis.Message:
			r.watchers.wake(dedup.ID(strings.TrimPrefix(m.Payload, r.prefix)))
		}
	}
}
