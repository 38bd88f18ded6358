package storetest

import (
	"context"
	"fmt"
	"net"
	"net/url"
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

// PostgresServer is a real PostgreSQL of one test, with its data and its socket in a
// folder of its own. The test fails if the server does not do as told.
type PostgresServer struct {
	t     testing.TB
	bin   string // the folder of initdb and postgres
	dir   string
	port  int
	owner *syscall.Credential // PostgreSQL refuses to run as root
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartPostgres makes a database cluster, starts its server with further settings, such as
// "max_connections=20", waits until it answers, and kills it when the test ends. Without
// PostgreSQL the test is skipped, or fails where the environment has CI set.
//
// The server does not sync its disk: it is fast, and survives Kill but no power cut.
func StartPostgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	s := &PostgresServer{t: t, bin: postgresBin(t), port: freePort(t)}
	dir, err := os.MkdirTemp("/tmp", "idempg") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	s.owner = unprivileged(t)
	s.Own(dir)
	out, err := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Restart(settings...)
	return s
}

// postgresBin finds PostgreSQL's programs, which Debian keeps off PATH.
func postgresBin(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		const missing = "no PostgreSQL: scripts/services.sh says how to get one"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return filepath.Dir(slices.Max(found))
}

// unprivileged is whom the server runs as if we are root: the user of Debian's package, or
// nobody.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("no user to run PostgreSQL as")
	return nil
}

// Own gives a folder to the user as whom the server runs.
func (s *PostgresServer) Own(dir string) {
	s.t.Helper()
	if s.owner == nil {
		return
	}
	if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *PostgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// Addr is the host:port the server listens on, the same after a restart.
func (s *PostgresServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's postgres:// URL over TCP; it asks for no password.
func (s *PostgresServer) URL() string { return s.URLAt(s.Addr()) }

// URLAt is URL with another host:port, that of a Shim or a pooler.
func (s *PostgresServer) URLAt(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// SocketURL is the URL over the server's Unix socket.
func (s *PostgresServer) SocketURL() string {
	return fmt.Sprintf("postgres:///postgres?user=postgres&port=%d&host=%s", s.port, url.QueryEscape(s.dir))
}

// Exec runs SQL, several statements too, and fails the test if that fails.
func (s *PostgresServer) Exec(sql string, args ...any) {
	s.t.Helper()
	s.with(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Query runs SQL that answers one number.
func (s *PostgresServer) Query(sql string, args ...any) (n int64) {
	s.t.Helper()
	s.with(func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(&n) })
	return n
}

// Text runs SQL that answers one text.
func (s *PostgresServer) Text(sql string, args ...any) (text string) {
	s.t.Helper()
	s.with(func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(&text) })
	return text
}

func (s *PostgresServer) with(do func(context.Context, *pgx.Conn) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err == nil {
		defer conn.Close(ctx)
		err = do(ctx, conn)
	}
	if err != nil {
		s.t.Fatalf("ask PostgreSQL: %v", err)
	}
}

// Kill ends the server and its children at once, as a crash does. Without a server it does
// nothing.
func (s *PostgresServer) Kill() { s.end(syscall.SIGQUIT) }

// Stop ends the server's connections and the server, as an operator does.
func (s *PostgresServer) Stop() { s.end(syscall.SIGINT) }

// Restart stops the server, if it runs, and starts it on the same port with these
// settings. It waits until it answers.
func (s *PostgresServer) Restart(settings ...string) {
	s.t.Helper()
	s.Stop()
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-h", "127.0.0.1"}
	for _, setting := range append([]string{"fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=100"}, settings...) {
		args = append(args, "-c", setting)
	}
	s.cmd = s.command("postgres", args...)
	log, err := os.Create(filepath.Join(s.dir, "postgres.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start PostgreSQL: %v", err)
	}
	ended := make(chan struct{})
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd)
	s.ended = ended
	s.awaitAnswer()
}

func (s *PostgresServer) awaitAnswer() {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(startDeadline); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.URL()); err == nil {
			_ = conn.Close(ctx)
			cancel()
			return
		}
		cancel()
		select {
		case <-s.ended:
			deadline = time.Now()
		case <-time.After(20 * time.Millisecond):
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "postgres.log"))
	s.t.Fatalf("start PostgreSQL: %v\n%s", err, log)
}

func (s *PostgresServer) end(how syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(how)
	select {
	case <-s.ended:
		s.cmd = nil
	case <-time.After(startDeadline):
		s.t.Errorf("PostgreSQL did not end after %v", how)
	}
}
