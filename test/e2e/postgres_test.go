package e2e

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/jackc/pgx/v5"
)

// A postgresServer is a PostgreSQL with its data in a folder of its own. It does not sync
// its disk: it is fast, and survives being killed but no power cut.
type postgresServer struct {
	bin   string // the folder of initdb and postgres
	dir   string
	port  int
	owner *syscall.Credential // PostgreSQL refuses to run as root
	cmd   *exec.Cmd
	ended chan struct{}
}

// startPostgres makes one. Its error is exec.ErrNotFound on a machine without PostgreSQL.
func startPostgres(settings ...string) (*postgresServer, error) {
	initdb := func(s *postgresServer) *exec.Cmd {
		return s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	}
	return newPostgres(initdb, settings...)
}

// newPostgres starts a server on data that a command makes.
func newPostgres(prepare func(*postgresServer) *exec.Cmd, settings ...string) (*postgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "idemproxy-e2e-postgres-") // its owner may not come into the tests' own
	if err != nil {
		return nil, err
	}
	s := &postgresServer{bin: bin, dir: dir, port: freePort()}
	if err = s.prepare(prepare); err == nil {
		err = s.run(settings...)
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
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
		return "", fmt.Errorf("initdb: %w", exec.ErrNotFound)
	}
	return filepath.Dir(slices.Max(found)), nil
}

// prepare makes the data of a new server.
func (s *postgresServer) prepare(how func(*postgresServer) *exec.Cmd) error {
	if os.Getuid() == 0 {
		if err := s.disown(); err != nil {
			return err
		}
	}
	cmd := how(s)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
	}
	return nil
}

// disown gives the folder to an ordinary user, as whom the server runs.
func (s *postgresServer) disown() error {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(s.dir, uid, gid)
	}
	return errors.New("no user to run it as")
}

func (s *postgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *postgresServer) addr() string { return local(s.port) }

// postgresURL is the URL of a server of ours, or of a way to it.
func postgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

func (s *postgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = child()
	cmd.SysProcAttr.Credential = s.owner
	return cmd
}

// run starts the server with these settings and waits until it answers.
func (s *postgresServer) run(settings ...string) error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1"}
	for _, setting := range append([]string{
		"unix_socket_directories=", "fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=500",
	}, settings...) {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd, s.ended = s.command("postgres", args...), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	return s.await()
}

func (s *postgresServer) await() (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = s.ask(func(context.Context, *pgx.Conn) error { return nil }); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			end = time.Time{}
		default:
		}
	}
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("%w\n%s", err, tail(string(text), 4000))
}

// ask does something with a connection to the server.
func (s *postgresServer) ask(do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, postgresURL(s.addr()))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(ctx, conn)
}

// exec runs SQL that must succeed.
func (s *postgresServer) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	err := s.ask(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// texts runs SQL that answers one text in each row.
func (s *postgresServer) texts(t *testing.T, sql string, args ...any) (all []string) {
	t.Helper()
	err := s.ask(func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// end tells the server to end, and waits.
func (s *postgresServer) end(how syscall.Signal) {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(how)
	<-s.ended
	s.cmd = nil
}

// remove ends the server, and nothing is left of it.
func (s *postgresServer) remove() {
	s.end(syscall.SIGQUIT)
	os.RemoveAll(s.dir)
}

// processes are the server's: PostgreSQL has one for each connection, in sessions of their
// own, so that no signal reaches them all.
func (s *postgresServer) processes() []int {
	parent := s.cmd.Process.Pid
	all := []int{parent}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, _ := os.ReadFile(file)
		head, rest, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(head)
			all = append(all, pid)
		}
	}
	return all
}

// needPostgres skips a test on a machine without PostgreSQL. In CI TestMain has failed
// already.
func needPostgres(t *testing.T) *postgresServer {
	t.Helper()
	if suite.postgres == nil {
		t.Skip("no PostgreSQL: scripts/services.sh says how to get one")
	}
	return suite.postgres
}

// A postgresProcess is a PostgreSQL of one test, to be maltreated.
type postgresProcess struct {
	*postgresServer
	t *testing.T
}

func startPostgresProcess(t *testing.T, settings ...string) *postgresProcess {
	t.Helper()
	needPostgres(t)
	s, err := startPostgres(settings...)
	return ownPostgres(t, s, err)
}

// standbyOf starts a standby that has everything before its primary says that it is done.
func standbyOf(t *testing.T, primary *postgresProcess) *postgresProcess {
	t.Helper()
	copied := func(s *postgresServer) *exec.Cmd {
		return s.command("pg_basebackup", "-D", s.data(), "-R", "-c", "fast", "-h", "127.0.0.1", "-p", strconv.Itoa(primary.port), "-U", "postgres")
	}
	s, err := newPostgres(copied)
	standby := ownPostgres(t, s, err)
	primary.exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.exec(t, "SELECT pg_reload_conf()")
	eventually(t, "in step with its primary", func() bool {
		return len(primary.texts(t, "SELECT application_name FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')")) == 1
	})
	return standby
}

// ownPostgres makes a server one of this test.
func ownPostgres(t *testing.T, s *postgresServer, err error) *postgresProcess {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := &postgresProcess{s, t}
	t.Cleanup(func() {
		p.resume()
		s.remove()
	})
	return p
}

func (p *postgresProcess) start(settings ...string) {
	p.t.Helper()
	if err := p.run(settings...); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends all its processes at once, as a crash does.
func (p *postgresProcess) kill() { p.end(syscall.SIGQUIT) }

// pause stops it without ending it: the kernel still accepts, nobody answers.
func (p *postgresProcess) pause()  { p.signal(syscall.SIGSTOP) }
func (p *postgresProcess) resume() { p.signal(syscall.SIGCONT) }

func (p *postgresProcess) signal(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	for _, pid := range p.processes() {
		_ = syscall.Kill(pid, s)
	}
}

// A server is one of a store, of one test.
type server interface {
	addr() string
	kill()
	start(settings ...string)
	pause()
	resume()
}

// eachServer runs a test on every store that has a server, with a server of its own that
// forgets nothing when it is killed.
func eachServer(t *testing.T, timeout time.Duration, test func(t *testing.T, s storage, srv server)) {
	t.Helper()
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		srv := startProcess(t, durable...)
		test(t, redisVia(srv.addr(), timeout), srv)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		srv := startPostgresProcess(t)
		test(t, postgresVia(srv.addr(), timeout), srv)
	})
}
