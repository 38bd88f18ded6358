package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a process may take until it serves.
const startTimeout = 15 * time.Second

// A process is something the benchmark started and will stop.
type process struct {
	name   string
	addr   string // where it serves
	cmd    *exec.Cmd
	stdin  io.Closer // closing it ends the processes that are this program again
	stdout io.Reader // of those
	log    string    // file with what it wrote
	done   chan struct{}
}

// start runs a command until stop, or until ctx is over. Its output goes to a file,
// except the standard output of this program's own processes, which tell their address.
func start(ctx context.Context, dir, name string, own bool, command ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	p.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	if own {
		p.cmd.Stdout = nil
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, log.Close()
}

// reap waits for the process in the background, so that others see when it ends.
func (p *process) reap() {
	go func() {
		_ = p.cmd.Wait() // an ended process is found by done; why it ended is in its log
		close(p.done)
	}()
}

// startOwn runs this program again, as a server that prints its address.
func startOwn(ctx context.Context, dir, name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	p, err := start(ctx, dir, name, true, append([]string{self}, args...)...)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	p.reap()
	if err != nil {
		return nil, p.failed(fmt.Errorf("it told no address: %w", err))
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// startRedis runs redis-server without persistence.
func startRedis(ctx context.Context, dir string) (*process, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	p, err := start(ctx, dir, "redis", false, "redis-server", "--bind", "127.0.0.1", "--port", port,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--dir", dir)
	if err != nil {
		return nil, err
	}
	p.addr = addr
	p.reap()
	return p, p.await(ctx, func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// startProxy runs idemproxy for one variant.
func startProxy(ctx context.Context, dir, binary string, v variant, upstream, redis string) (*process, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	// In a folder of its own: each proxy watches that of its file, and would notice the others' logs.
	file := filepath.Join(dir, v.name, "idemproxy.yaml")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(file, []byte(v.config(listen, admin, upstream, redis)), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	p, err := start(ctx, dir, v.name, false, binary, "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	p.addr = listen
	p.reap()
	return p, p.await(ctx, func() error {
		answer, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %d", answer.StatusCode)
		}
		return nil
	})
}

// await asks until the process serves, has ended, or took too long.
func (p *process) await(ctx context.Context, serves func() error) error {
	for deadline := time.Now().Add(startTimeout); ; {
		err := serves()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return p.failed(err)
		}
		select {
		case <-p.done:
			return p.failed(errors.New("it ended"))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// failed says that the process failed, with the end of what it wrote.
func (p *process) failed(err error) error {
	text, _ := os.ReadFile(p.log) // without its log the error is still one
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s: %w; its last lines:\n%s", p.name, err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if p.stdin != nil {
		_ = p.stdin.Close() // it may have ended already
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// processorTime is what the process has used so far, its threads and the kernel for it,
// to a hundredth of a second.
func (p *process) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.name, err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2) // USER_HZ is 100 on Linux
}

// memory is the resident memory of the process in bytes.
func (p *process) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("memory of %s: no VmRSS", p.name)
}

// freeAddress is a loopback address nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
