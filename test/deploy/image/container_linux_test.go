package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"idemproxy/test/deploy/process"
)

// patience bounds every wait; a busy machine takes seconds for what takes milliseconds.
const patience = time.Minute

// needRoot skips, or fails in CI, where containers can't be made.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	const message = "NOT TESTED: whether the image's content runs. That needs root, for a file system of its own"
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	fmt.Fprintln(os.Stderr, message)
	t.Skip(message)
}

// A container is the image's content, running.
type container struct {
	t     *testing.T
	cmd   *exec.Cmd
	said  process.Output
	ended chan struct{}
}

// start starts the image as a runtime does: with its entry point, its command where no
// arguments are given, its user and its environment. The network is the machine's, unless
// c says otherwise.
func start(t *testing.T, c confinement, args ...string) *container {
	t.Helper()
	needRoot(t)
	config := configuration(t)
	uid, _, _ := strings.Cut(config.User, ":")
	var err error
	if c.User, err = strconv.Atoi(uid); err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 {
		args = config.Cmd
	}
	if c.Args == nil {
		c.Args = config.Entrypoint
	}
	c.Args = append(c.Args[:len(c.Args):len(c.Args)], args...)
	c.Env = append(config.Env[:len(config.Env):len(config.Env)], c.Env...)
	c.Root = content(t).image
	asked, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	started := &container{t: t, cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	started.cmd.Env = []string{confineVariable + "=" + string(asked)}
	started.cmd.Stdout, started.cmd.Stderr = &started.said, &started.said
	started.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	if c.Loopback {
		started.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if err := started.cmd.Start(); err != nil {
		t.Fatalf("start a container: %v", err)
	}
	go func() {
		_ = started.cmd.Wait()
		close(started.ended)
	}()
	t.Cleanup(func() {
		_ = started.cmd.Process.Kill()
		<-started.ended
		if t.Failed() {
			t.Logf("%q said:\n%s", args, started.said.String())
		}
	})
	return started
}

// exit waits for its end and returns its exit code.
func (c *container) exit() int {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Fatal("it does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

// stop ends it as a runtime does.
func (c *container) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if code := c.exit(); code != 0 {
		c.t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

// await waits until something holds of a running container.
func (c *container) await(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
		select {
		case <-c.ended:
			c.t.Fatalf("it ended (%v) before: %s", c.cmd.ProcessState, what)
		default:
		}
	}
	c.t.Fatalf("not within %v: %s", patience, what)
}

// status is a line of what the kernel says of its process.
func (c *container) status(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	c.t.Fatalf("no %s", name)
	return ""
}

// answers reports whether a GET is answered with 200.
func answers(url string) func() bool {
	return func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
}

// volume is a new folder that belongs to the image's user.
func volume(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "volume-") //nolint:usetesting // other users must get into it
	if err != nil {
		t.Fatal(err)
	}
	// As runtimes give a new volume the owner that the folder has in the image.
	info, err := os.Stat(content(t).image + "/var/lib/idemproxy")
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := errors.Join(os.Chown(dir, int(owner.Uid), int(owner.Gid)), os.Chmod(dir, info.Mode().Perm())); err != nil {
		t.Fatal(err)
	}
	return dir
}
