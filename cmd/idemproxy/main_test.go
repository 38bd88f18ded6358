package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the scripts run the program itself, and four helpers.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"idemproxy": main,
		"await":     awaitMain,
		"exits":     exitsMain,
		"request":   requestMain,
		"upstream":  upstreamMain,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"PROXY", "ADMIN", "UPSTREAM", "NOBODY"} {
				env.Setenv(name, freePort(t))
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

// requestMain: request METHOD URL [KEY [BODY]] prints status, whether it was a replay,
// and the body. It waits until somebody listens.
func requestMain() {
	args := slices.Concat(os.Args[1:], []string{"", ""})
	var err error
	for range 400 {
		var answer *http.Response
		if answer, err = request(args[0], args[1], args[2], args[3]); err == nil {
			fmt.Printf("%d replay=%s ", answer.StatusCode, answer.Header.Get("X-Idempotent-Replay"))
			_, _ = io.Copy(os.Stdout, answer.Body)
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func request(method, url, key, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return http.DefaultTransport.RoundTrip(req)
}
