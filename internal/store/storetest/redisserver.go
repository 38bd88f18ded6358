package storetest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startDeadline is how long a redis-server may take to listen or to end.
const startDeadline = 10 * time.Second

// RedisServer is a real redis-server of one test, on a port of its own, with its files in
// the test's own folder. The test fails if the server does not do as told.
type RedisServer struct {
	t      testing.TB
	dir    string
	port   int
	path   string
	conf   []string // configuration file, if any: redis-server wants it first
	args   []string
	client *redis.Client
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
}

// StartRedis starts the redis-server on PATH with further arguments, such as
// "--maxmemory", "10mb", waits until it listens, and kills it when the test ends. Without
// a redis-server the test is skipped, or fails where the environment has CI set.
func StartRedis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	s := newRedisServer(t, args)
	s.launch()
	return s
}

// StartSentinel starts a Sentinel that watches the master under a name and makes a
// replica the master as soon as the master is away for half a second.
func StartSentinel(t testing.TB, name string, master *RedisServer) *RedisServer {
	t.Helper()
	s := newRedisServer(t, []string{"--sentinel"})
	conf := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\ndir %s\nlogfile %s/redis.log\nsentinel monitor %s 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds %s 500\nsentinel failover-timeout %s 3000\n",
		s.port, s.dir, s.dir, name, master.port, name, name)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.conf = []string{conf}
	s.launch()
	return s
}

func newRedisServer(t testing.TB, args []string) *RedisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		const missing = "no redis-server on PATH: scripts/services.sh says how to get one"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	s := &RedisServer{t: t, dir: t.TempDir(), port: freePort(t), path: path, args: args}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 4})
	t.Cleanup(func() {
		_ = s.client.Close()
		s.Kill()
	})
	return s
}

// Addr is the host:port the server listens on, the same after a restart.
func (s *RedisServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the port of Addr.
func (s *RedisServer) Port() int { return s.port }

// URL is the server's redis:// URL.
func (s *RedisServer) URL() string { return "redis://" + s.Addr() }

// Client returns a client for assertions. It is closed when the test ends.
func (s *RedisServer) Client() *redis.Client { return s.client }

// Kill ends the server by SIGKILL, as a crash does. Without a server it does nothing.
func (s *RedisServer) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server by SIGTERM, as an operator does.
func (s *RedisServer) Stop() { s.end(syscall.SIGTERM) }

// Restart stops the server, if it runs, and starts it again on the same port, with what
// it had saved and some more arguments. It waits until the server listens, which is
// before it has loaded its data.
func (s *RedisServer) Restart(args ...string) {
	s.t.Helper()
	s.Stop()
	s.args = append(s.args, args...)
	s.launch()
}

// Pause stops the server's process without ending it: it accepts and never answers.
func (s *RedisServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *RedisServer) Resume() { s.signal(syscall.SIGCONT) }

func (s *RedisServer) launch() {
	s.t.Helper()
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--logfile", filepath.Join(s.dir, "redis.log"), "--save", "", "--repl-diskless-sync-delay", "0",
	}, s.args...)
	if s.conf != nil {
		args = slices.Concat(s.conf, s.args)
	}
	s.cmd = exec.Command(s.path, args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start redis-server: %v", err)
	}
	ended := make(chan struct{})
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd)
	s.ended = ended
	if err := s.awaitListening(); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
		s.t.Fatalf("start redis-server: %v\n%s", err, log)
	}
}

func (s *RedisServer) awaitListening() error {
	for deadline := time.Now().Add(startDeadline); time.Now().Before(deadline); {
		select {
		case <-s.ended:
			return fmt.Errorf("it ended at once")
		case <-time.After(5 * time.Millisecond):
		}
		if s.answers() {
			return nil
		}
	}
	return fmt.Errorf("it does not listen on %s after %v", s.Addr(), startDeadline)
}

// answers reports whether the server says anything, be it that it is still loading. It
// does not ask by a client: go-redis would stop dialling for a second after some failures.
func (s *RedisServer) answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "PING\r\n")
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}

func (s *RedisServer) end(how syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // a paused process does not hear SIGTERM
	_ = s.cmd.Process.Signal(how)
	select {
	case <-s.ended:
		s.cmd = nil
	case <-time.After(startDeadline):
		s.t.Errorf("redis-server did not end after %v", how)
	}
}

func (s *RedisServer) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("send %v to redis-server: %v", sig, err)
	}
}

// freePort returns a TCP port nobody listens on at the moment.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
