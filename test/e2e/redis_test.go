package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a redis-server process that keeps nothing on disk and evicts nothing.
type redisServer struct {
	port int
	dir  string
	cmd  *exec.Cmd
}

func startRedis(port int) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "idemproxy-e2e-redis-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{port: port, dir: dir}
	s.cmd = exec.Command(path, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	s.cmd.SysProcAttr = child()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: local(port)})
	defer client.Close()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			s.kill()
			return nil, fmt.Errorf("start redis-server: %w", err)
		}
	}
}

func (s *redisServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// client talks to the server about it.
func (s *redisServer) client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: local(s.port)})
	t.Cleanup(func() { c.Close() })
	return c
}

// needRedis skips a test on a machine without redis-server. In CI TestMain has failed
// already.
func needRedis(t *testing.T) *redisServer {
	t.Helper()
	if suite.redis == nil {
		t.Skip("no redis-server on PATH")
	}
	return suite.redis
}

// ownRedis starts a server for this test, to be maltreated.
func ownRedis(t *testing.T, port int) *redisServer {
	t.Helper()
	needRedis(t)
	s, err := startRedis(port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

// quiet keeps the tests' own clients from writing between the tests' lines.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// onlyKey is the only key with this prefix, besides what readiness probes write.
func onlyKey(t *testing.T, s *redisServer, prefix string) string {
	t.Helper()
	keys, err := s.client(t).Keys(context.Background(), prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == prefix+"ping" })
	if len(keys) != 1 {
		t.Fatalf("Redis has the keys %q, want one", keys)
	}
	return keys[0]
}
