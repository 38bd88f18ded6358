package storetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// StartPgBouncer starts a PgBouncer in transaction mode in front of the server, with few
// connections to it and none of the startup parameters it does not know, waits until it
// listens, and kills it when the test ends. It returns the URL. Without pgbouncer the test
// is skipped, or fails where the environment has CI set.
func StartPgBouncer(t testing.TB, server *PostgresServer) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path = "/usr/sbin/pgbouncer"; !exists(path) {
			const missing = "no pgbouncer: scripts/services.sh says how to get one"
			if os.Getenv("CI") != "" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
	}
	port := freePort(t)
	conf := filepath.Join(server.dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\n"+
		"listen_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\npool_mode = transaction\n"+
		"default_pool_size = 3\nunix_socket_dir =\n", server.port, port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := server.command("pgbouncer", conf)
	cmd.Path = path
	if err := cmd.Start(); err != nil {
		t.Fatalf("start pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(startDeadline); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return server.URLAt(addr)
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
