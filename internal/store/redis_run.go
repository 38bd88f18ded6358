package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

const (
	// maxRepeats is how often an operation is repeated after its first attempt failed.
	maxRepeats = 2
	// firstBackoff is the pause before the first repetition; each further one doubles it.
	firstBackoff = 5 * time.Millisecond
)

// onceCmd is a command that go-redis sends once: repeating is repeat's business, which
// has to know whether an attempt may have been applied.
type onceCmd struct{ *redis.Cmd }

// NoRetry is redis.Cmder's.
func (onceCmd) NoRetry() bool { return true }

// processor is what sends a command: a client, or one connection of it.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// do sends one command, whose key is args[keyAt], and waits for the reply.
func do(ctx context.Context, via processor, keyAt int8, args ...any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(keyAt)
	if err := via.Process(ctx, onceCmd{cmd}); err != nil {
		return nil, err // a batch that was given up may be writing to cmd
	}
	return cmd.Val(), nil
}

// eval runs a script: by its name, or with its text on a server that does not know it
// yet.
func eval(ctx context.Context, via processor, s redisScript, key string, args ...any) (any, error) {
	reply, err := do(ctx, via, 3, scriptArgs("evalsha", s.sha, key, args)...)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return do(ctx, via, 3, scriptArgs("eval", s.source, key, args)...)
	}
	return reply, err
}

func scriptArgs(command, script, key string, args []any) []any {
	return append([]any{command, script, 1, key}, args...)
}

// repeat runs an operation until it has an answer, at most 1+maxRepeats times and within
// the store's timeout. Every operation may be repeated, since it carries its token.
//
// An error wraps dedup.ErrNotApplied only if no attempt may have been applied: a
// repetition that was refused says nothing about an attempt whose reply was lost.
func (r *Redis) repeat(ctx context.Context, op func(context.Context) (any, error)) (any, error) {
	if err := stillOpen(ctx, false); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	maybeApplied := false
	for attempt := 0; ; attempt++ {
		reply, err := op(ctx)
		if err == nil {
			return reply, nil
		}
		maybeApplied = maybeApplied || !refused(err)
		if attempt == maxRepeats || !worthRepeating(err) || !pause(ctx, firstBackoff<<attempt) {
			return nil, redisError(err, maybeApplied)
		}
	}
}

// pause waits, and reports false if the context ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// redisError turns an error of go-redis into what dedup.Store promises.
func redisError(err error, maybeApplied bool) error {
	reply := serverReply(err)
	switch {
	case strings.HasPrefix(reply, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", dedup.ErrUnreadable, err)
	case maybeApplied:
		return err
	case strings.HasPrefix(reply, "OOM"):
		return notApplied(fmt.Errorf("%w: %w", dedup.ErrStoreFull, err))
	case errors.Is(err, redis.ErrClosed):
		return notApplied(dedup.ErrStoreClosed)
	default:
		return notApplied(err)
	}
}

// serverReply is the server's error reply, or empty if the error is not one.
func serverReply(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return reply.Error()
	}
	return ""
}

// refused reports whether the attempt was provably not applied: the server said so, or
// the command was never sent.
func refused(err error) bool {
	var file *fs.PathError // of a password that could not be read
	return serverReply(err) != "" || dialFailed(err) || errors.Is(err, errNotTaken) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) ||
		errors.As(err, &file)
}

// worthRepeating reports whether the next attempt may do better at once: the connection
// broke, or the server is not itself for a moment.
func worthRepeating(err error) bool {
	if reply := serverReply(err); reply != "" {
		for _, code := range []string{"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"} {
			if strings.HasPrefix(reply, code) {
				return true
			}
		}
		return false
	}
	return !dialFailed(err) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

// dialError marks what went wrong before there was a connection, TLS included.
type dialError struct{ error }

// Unwrap is errors.Unwrap's.
func (e dialError) Unwrap() error { return e.error }

// dialFailed reports whether there was no connection to send anything on. go-redis has no
// error of its own for Sentinels that are all away.
func dialFailed(err error) bool {
	return errors.As(err, new(dialError)) || strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable")
}
