package e2e

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisProcess is a redis-server of one test, with settings and files of its own.
type redisProcess struct {
	t    *testing.T
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startProcess starts one. It needs a redis-server as needRedis does.
func startProcess(t *testing.T, args ...string) *redisProcess {
	t.Helper()
	needRedis(t)
	s := &redisProcess{t: t, port: freePort(), dir: t.TempDir(), args: args}
	t.Cleanup(s.kill)
	s.start()
	return s
}

func (s *redisProcess) addr() string { return local(s.port) }

// start starts it, again if it ended, with what it has on disk and some more arguments. It
// returns when the server answers, be it that it is loading.
func (s *redisProcess) start(more ...string) {
	s.t.Helper()
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--logfile", filepath.Join(s.dir, "log"), "--repl-diskless-sync-delay", "0",
	}, s.args...)
	s.cmd = exec.Command("redis-server", append(args, more...)...)
	s.cmd.SysProcAttr = child()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "answering", func() bool {
		conn, err := net.DialTimeout("tcp", s.addr(), time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "PING\r\n")
		n, _ := conn.Read(make([]byte, 16))
		return n > 0
	})
}

// kill ends it as a crash does.
func (s *redisProcess) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// pause stops it without ending it: the kernel still accepts, nobody answers.
func (s *redisProcess) pause()  { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisProcess) resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

func (s *redisProcess) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// do runs a command that must succeed.
func (s *redisProcess) do(args ...any) any {
	s.t.Helper()
	v, err := s.client().Do(s.t.Context(), args...).Result()
	if err != nil {
		s.t.Fatalf("%v: %v", args[0], err)
	}
	return v
}

// replicaOf starts a replica that is in step with its master.
func replicaOf(t *testing.T, master *redisProcess) *redisProcess {
	t.Helper()
	s := startProcess(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", master.port))
	eventually(t, "in step with its master", func() bool {
		info, _ := s.client().Info(t.Context(), "replication").Result()
		return strings.Contains(info, "master_link_status:up")
	})
	return s
}
