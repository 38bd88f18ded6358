package image

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"idemproxy/test/deploy/process"
)

// need finds a program, which a fresh machine gets from scripts/services.sh.
func need(t *testing.T, name string, elsewhere ...string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range elsewhere {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return slices.Max(found)
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: scripts/services.sh installs it", name)
	}
	t.Skipf("%s is missing: scripts/services.sh installs it", name)
	return ""
}

// startRedis starts one for this test and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	server, address := need(t, "redis-server"), process.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	c := background(t, nil, server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	c.await("Redis accepts connections", func() bool { return strings.Contains(c.said.String(), "Ready to accept connections") })
	return address
}

// startPostgres starts one for this test and returns its address.
func startPostgres(t *testing.T) string {
	t.Helper()
	initdb := need(t, "initdb", "/usr/lib/postgresql/*/bin/initdb")
	if path, err := filepath.EvalSymlinks(initdb); err == nil {
		initdb = path // PostgreSQL's other programs are beside it
	}
	address := process.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	dir, owner := unprivileged(t)
	data := filepath.Join(dir, "data")
	made := background(t, owner, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	if code := made.exit(); code != 0 {
		t.Fatalf("initdb: exit code %d\n%s", code, made.said.String())
	}
	c := background(t, owner, filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data, "-p", port, "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=32MB")
	c.await("PostgreSQL accepts connections", func() bool { return strings.Contains(c.said.String(), "ready to accept connections") })
	return address
}

// unprivileged is a new folder and its owner: PostgreSQL refuses to run as root.
func unprivileged(t *testing.T) (string, *syscall.Credential) {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	dir, err := os.MkdirTemp(scratch, "postgres-") //nolint:usetesting // another user must get into it
	if err = errors.Join(uidErr, gidErr, err); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// background starts a server of this machine, which ends with the test.
func background(t *testing.T, owner *syscall.Credential, name string, args ...string) *container {
	t.Helper()
	c := &container{t: t, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	c.cmd.Dir = scratch
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
	c.cmd.WaitDelay = 10 * time.Second // PostgreSQL's children hold its output a little longer
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGQUIT) // PostgreSQL: at once, with its children
		select {
		case <-c.ended:
		case <-time.After(patience):
			_ = c.cmd.Process.Kill()
			<-c.ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), c.said.String())
		}
	})
	return c
}
