package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

// A target is a store to be measured.
type target struct {
	store    dedup.Store
	server   *exec.Cmd // may be nil
	postgres string    // its URL, if it is one
}

func (t *target) close() {
	_ = t.store.Close()
	t.stop()
}

func (t *target) stop() {
	if t.server == nil {
		return
	}
	_ = t.server.Process.Signal(syscall.SIGINT) // both servers then end at once
	_ = t.server.Wait()
}

// names are the targets there are.
func names() []string {
	return []string{"memory", "file", "redis", "redis-everysec", "postgres"}
}

// open starts what a store needs, in the folder, and opens it.
func open(ctx context.Context, dir, name string) (*target, error) {
	cfg := store.DefaultConfig()
	cfg.Type, cfg.Timeout = name, 30*time.Second
	t := &target{}
	var err error
	switch name {
	case "memory":
		cfg.Memory.MaxEntries, cfg.Memory.MaxBytes = 1<<30, 1<<40
	case "file":
		cfg.File.Path = filepath.Join(dir, "idemproxy.db")
	case "redis":
		t.server, cfg.Redis.URL, err = startRedis(ctx, dir, "always")
	case "redis-everysec":
		cfg.Type = "redis"
		t.server, cfg.Redis.URL, err = startRedis(ctx, dir, "everysec")
	case "postgres":
		t.server, cfg.Postgres.URL, err = startPostgres(ctx, dir)
		t.postgres = cfg.Postgres.URL.Reveal()
	}
	if err == nil {
		t.store, err = store.Open(ctx, cfg)
	}
	if err == nil {
		err = ready(ctx, t.store)
	}
	if err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// fill keeps so many more records. PostgreSQL makes them itself, which is faster.
func (t *target) fill(ctx context.Context, n, size int) error {
	if t.postgres == "" || n <= 0 {
		return fill(ctx, t.store, n, size)
	}
	conn, err := pgx.Connect(ctx, t.postgres)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `INSERT INTO idempotency_keys (id, state, token, lease_until, expires_at, data)
		SELECT 'idem:' || translate(encode(sha256(gen_random_uuid()::text::bytea), 'base64'), '+/=', '-_'), 'd',
			'0123456789012345678901', now(), now() + random() * interval '1 day' + interval '1 day', decode(repeat('07', $2::int), 'hex')
		FROM generate_series(1, $1::int)`, n, size)
	if err == nil {
		_, err = conn.Exec(ctx, "VACUUM ANALYZE idempotency_keys")
	}
	return err
}

// ready waits until the store takes writes.
func ready(ctx context.Context, s dedup.Store) (err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = s.Ping(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("the server does not serve: %w", err)
}

func startRedis(ctx context.Context, dir, appendfsync string) (*exec.Cmd, store.Secret, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", appendfsync, "--appenddirname", appendfsync, "--maxmemory-policy", "noeviction")
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start redis-server: %w", err)
	}
	return cmd, store.Secret("redis://127.0.0.1:" + port), nil
}

// startPostgres makes a database with its defaults, which sync the disk, and starts its
// server.
func startPostgres(ctx context.Context, dir string) (*exec.Cmd, store.Secret, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	bin, err := postgresBin()
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "postgres")
	owner, err := postgresOwner(dir, data)
	if err != nil {
		return nil, "", err
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = data, &syscall.SysProcAttr{Credential: owner}
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	cmd := command("postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-c", "unix_socket_directories=", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	return cmd, store.Secret("postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"), nil
}

// postgresBin finds PostgreSQL's programs, which Debian keeps off PATH.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL: scripts/services.sh gets one")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// postgresOwner makes the folder of the data. PostgreSQL refuses to run as root, so root
// gives it to another user, and lets that one through.
func postgresOwner(dir, data string) (*syscall.Credential, error) {
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		credential := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return credential, errors.Join(os.Chmod(dir, 0o711), os.Chown(data, uid, gid))
	}
	return nil, errors.New("no user to run PostgreSQL as")
}

// freePort is a loopback port nobody listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
