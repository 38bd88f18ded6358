package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A storage is a store that a proxy can be given.
type storage struct {
	kind   string // memory, file, redis or postgres
	prefix string // of its keys
	yaml   string // the store section
	addr   string // of its server, if it has one
	shared bool   // by several processes
}

func memory() storage { return storage{kind: "memory", yaml: "type: memory"} }

// ownFile stands for a file of its own for each proxy, since only one process at a time
// can have one; write makes the path.
const ownFile = "%OWN FILE%"

func file() storage { return fileAt(ownFile) }

func fileAt(path string) storage {
	return storage{kind: "file", yaml: fmt.Sprintf("type: file, timeout: 5s, file: {path: %q}", path)}
}

// sharedRedis and sharedPostgres are stores on the servers that all tests share.
func sharedRedis(t *testing.T) storage {
	t.Helper()
	return redisVia(local(needRedis(t).port), 5*time.Second)
}

func sharedPostgres(t *testing.T) storage {
	t.Helper()
	return postgresVia(needPostgres(t).addr(), 5*time.Second)
}

// redisVia is a store at this address of a Redis, with a prefix of its own.
func redisVia(addr string, timeout time.Duration, more ...string) storage {
	s := storage{kind: "redis", prefix: unique("e2e") + ":", shared: true}
	return s.via(addr, timeout, more...)
}

// postgresVia is the same at this address of a PostgreSQL.
func postgresVia(addr string, timeout time.Duration, more ...string) storage {
	s := storage{kind: "postgres", prefix: unique("e2e") + ":", shared: true}
	return s.via(addr, timeout, more...)
}

// via is the same store by another way, with more settings in its section.
func (s storage) via(addr string, timeout time.Duration, more ...string) storage {
	url := "redis://" + addr
	if s.kind == "postgres" {
		url = postgresURL(addr)
	}
	settings := append([]string{fmt.Sprintf("url: %q", url)}, more...)
	s.addr = addr
	s.yaml = fmt.Sprintf("type: %s, key_prefix: %q, timeout: %v, %s: {%s}", s.kind, s.prefix, timeout, s.kind, strings.Join(settings, ", "))
	return s
}

// eachStore runs a test on every store, in parallel.
func eachStore(t *testing.T, test func(t *testing.T, s storage)) {
	t.Helper()
	onStores(t, test, "memory", "file", "redis", "postgres")
}

// eachLasting runs a test on every store that outlives the process.
func eachLasting(t *testing.T, test func(t *testing.T, s storage)) {
	t.Helper()
	onStores(t, test, "file", "redis", "postgres")
}

// eachShared runs a test on every store that several processes can share.
func eachShared(t *testing.T, test func(t *testing.T, s storage)) {
	t.Helper()
	onStores(t, test, "redis", "postgres")
}

func onStores(t *testing.T, test func(t *testing.T, s storage), kinds ...string) {
	t.Helper()
	t.Parallel()
	open := map[string]func(*testing.T) storage{
		"memory": func(*testing.T) storage { return memory() },
		"file":   func(*testing.T) storage { return file() },
		"redis":  sharedRedis, "postgres": sharedPostgres,
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open[kind](t))
		})
	}
}
