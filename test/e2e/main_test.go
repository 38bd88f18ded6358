package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// suite is what all tests share.
var suite struct {
	binary   string          // the program, built
	redis    *redisServer    // nil on a machine without redis-server
	postgres *postgresServer // nil on a machine without PostgreSQL
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // these tests wait more than they compute
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	redis.SetLogger(quiet{})
	dir, err := os.MkdirTemp("", "idemproxy-e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if suite.binary, err = build(dir); err != nil {
		return fail(err)
	}
	suite.redis, err = startRedis(freePort())
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "":
		fmt.Fprintln(os.Stderr, "e2e: NO redis-server ON PATH: EVERY TEST ON REDIS IS SKIPPED")
	case err != nil:
		return fail(err)
	default:
		defer suite.redis.kill()
	}
	suite.postgres, err = startPostgres()
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "":
		fmt.Fprintln(os.Stderr, "e2e: NO PostgreSQL: EVERY TEST ON IT IS SKIPPED")
	case err != nil:
		return fail(err)
	default:
		defer suite.postgres.remove()
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

// build builds the program, with the race detector if there is a C compiler for it.
func build(dir string) (string, error) {
	binary := filepath.Join(dir, "idemproxy")
	args := []string{"build", "-o", binary}
	env := os.Environ()
	cc, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		return "", fmt.Errorf("run go env: %w", err)
	}
	if _, err := exec.LookPath(strings.Fields(string(cc) + " cc")[0]); err == nil {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	} else {
		fmt.Fprintln(os.Stderr, "e2e: NO C COMPILER: the program runs without the race detector")
	}
	cmd := exec.Command("go", append(args, "../../cmd/idemproxy")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return binary, nil
}
