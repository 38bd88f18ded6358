package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// onEachWaitStore runs a test on every kind of store, in parallel.
func onEachWaitStore(t *testing.T, test func(t *testing.T, s storage)) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) storage{
		"memory": func(*testing.T) storage { return memory() },
		"redis":  sharedRedis, "postgres": waitPostgres,
		"file": func(t *testing.T) storage {
			return storage{yaml: fmt.Sprintf("type: file, timeout: 5s, file: {path: %q}", filepath.Join(t.TempDir(), "store.db"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// onEachSharedStore is the same for stores that several processes share.
func onEachSharedStore(t *testing.T, test func(t *testing.T, s storage)) {
	onEachWaitStore(t, func(t *testing.T, s storage) {
		if s.shared {
			test(t, s)
		}
	})
}

// waitPostgres is a store on a PostgreSQL of its own.
func waitPostgres(t *testing.T) storage {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("no PostgreSQL: scripts/services.sh says how to get one")
		}
		t.Skip("no PostgreSQL: scripts/services.sh says how to get one")
	}
	dir, err := os.MkdirTemp("/tmp", "idempg") //nolint:usetesting // its owner may not come into the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := child()
	if u, err := user.Lookup("postgres"); err == nil && os.Getuid() == 0 { // it refuses to run as root
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(slices.Max(found), name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	if out, err := run("initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-N", "--locale=C").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	port := freePort()
	server := run("postgres", "-D", dir+"/data", "-p", itoa(port), "-k", dir, "-h", "127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	eventually(t, "PostgreSQL answering", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			_ = conn.Close(ctx)
		}
		return err == nil
	})
	return storage{yaml: fmt.Sprintf("type: postgres, timeout: 5s, postgres: {url: %q}", url), shared: true}
}
