package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"idemproxy/internal/store/storetest"
)

// TestMain lets the scripts run the program itself, and some helpers.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"idemproxy": main,
		"await":     awaitMain,
		"exits":     exitsMain,
		"request":   requestMain,
		"until":     untilMain,
		"upstream":  upstreamMain,
	})
}

func TestScripts(t *testing.T) { runScripts(t, "testdata", nil) }

// The commands for keys do what they say, on each kind of server, and through the control
// listener on the stores in the process.
func TestKeysScripts(t *testing.T) {
	control := func(variables map[string]string) map[string]string {
		variables["IDEMPROXY_CONTROL_LISTEN"], variables["IDEMPROXY_CONTROL_TOKEN_FILE"] = "$CONTROL", "$WORK/control-token"
		return variables
	}
	t.Run("memory", func(t *testing.T) {
		runScripts(t, "testdata/keys", control(map[string]string{"IDEMPROXY_STORE_TYPE": "memory"}))
	})
	t.Run("file", func(t *testing.T) {
		runScripts(t, "testdata/keys", control(map[string]string{"IDEMPROXY_STORE_TYPE": "file", "IDEMPROXY_STORE_FILE_PATH": "$WORK/store.db"}))
	})
	t.Run("redis", func(t *testing.T) {
		url := storetest.StartRedis(t).URL()
		runScripts(t, "testdata/keys", map[string]string{"IDEMPROXY_STORE_TYPE": "redis", "IDEMPROXY_STORE_REDIS_URL": url})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.StartPostgres(t).URL()
		runScripts(t, "testdata/keys", map[string]string{"IDEMPROXY_STORE_TYPE": "postgres", "IDEMPROXY_STORE_POSTGRES_URL": url})
	})
}

func runScripts(t *testing.T, dir string, variables map[string]string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"PROXY", "ADMIN", "CONTROL", "UPSTREAM", "NOBODY"} {
				env.Setenv(name, freePort(t))
			}
			if err := os.WriteFile(filepath.Join(env.WorkDir, "control-token"), []byte("token-of-the-control-listener"), 0o600); err != nil {
				return err
			}
			for name, value := range variables {
				env.Setenv(name, os.Expand(value, env.Getenv))
			}
			env.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's second at every exit
			return nil
		},
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// exitsMain: exits CODE COMMAND… runs a command and fails unless it exits with CODE.
func exitsMain() {
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run()
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != os.Args[1] {
		fmt.Fprintf(os.Stderr, "exit code %s, want %s\n", got, os.Args[1])
		os.Exit(1)
	}
}

// awaitMain: await FILE TEXT returns once the text stands in the file.
func awaitMain() {
	for range 2000 {
		if text, _ := os.ReadFile(os.Args[1]); strings.Contains(string(text), os.Args[2]) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, os.Args[1]+" never holds "+os.Args[2])
	os.Exit(1)
}

// upstreamMain: upstream ADDRESS serves the sample payments API.
func upstreamMain() {
	server := http.Server{Addr: os.Args[1], Handler: (&paymentsAPI{out: os.Stdout}).handler(), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// untilMain: until TEXT COMMAND… runs a command again and again until it prints the text.
func untilMain() {
	var out []byte
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out, _ = exec.Command(os.Args[2], os.Args[3:]...).CombinedOutput()
		if strings.Contains(string(out), os.Args[1]) {
			fmt.Printf("%s", out)
			return
		}
	}
	fmt.Fprintf(os.Stderr, "it never prints %s, but %s\n", os.Args[1], out)
	os.Exit(1)
}

// requestMain: request METHOD URL [KEY [BODY [HEADER…]]] prints status, whether it was a
// replay, and the body. It waits until somebody listens.
func requestMain() {
	args := slices.Concat(os.Args[1:], []string{"", ""})
	var err error
	for range 400 {
		var answer *http.Response
		if answer, err = request(args[0], args[1], args[2], args[3], os.Args[min(5, len(os.Args)):]); err == nil {
			fmt.Printf("%d replay=%s ", answer.StatusCode, answer.Header.Get("X-Idempotent-Replay"))
			_, _ = io.Copy(os.Stdout, answer.Body)
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func request(method, url, key, body string, headers []string) (*http.Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(req)
}
