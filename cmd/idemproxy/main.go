// Command idemproxy is a reverse proxy that makes HTTP services safe to retry. It holds
// no logic: each command reads its settings, wires the packages below internal/
// together, and says how it went by its exit code.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
)

// version is stamped by the linker: -ldflags "-X main.version=v1.2.3".
var version = ""

// Exit codes.
const (
	exitFine    = 0
	exitFailure = 1 // something went wrong while running
	exitUsage   = 2 // the command line or the configuration is wrong
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes a command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteC()
	return report(stderr, command, err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "idemproxy",
		Short: "Make an HTTP service safe to retry",
		Long: `idemproxy stands in front of an HTTP service and makes it safe to retry: of all
requests that carry the same Idempotency-Key the service sees one, and every caller
gets that one's answer.

Try it:    idemproxy demo
Use it:    idemproxy serve --upstream http://127.0.0.1:3000

Exit codes: 0 fine, 1 failure while running, 2 wrong command line or configuration.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServe(), newDemo(), newValidate(), newExplain(), newHealthcheck(), newKeys(), newSchema(), newVersion())
	root.AddCommand(forContainers()...)
	root.AddCommand(forPackagers()...)
	return root
}

// A failure happened while a command ran; every other error is a wrong command line.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// A usage error is found by a command itself.
type usageError struct{ error }

// A told error is a wrong configuration that the command has printed in its own way.
type toldError struct{ error }

// running makes what a command does into what cobra runs: what goes wrong in it is a
// failure, unless it says otherwise.
func running(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(cmd, args)
		if usage := (usageError{}); err == nil || errors.As(err, &usage) {
			return err
		}
		return failure{err}
	}
}

// report says what went wrong, a line each, and returns the exit code for it.
func report(stderr io.Writer, command *cobra.Command, err error) int {
	var faults *config.Error
	var failed failure
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, new(toldError)):
		return exitUsage
	case errors.As(err, &faults):
		fmt.Fprintln(stderr, faults)
		return exitUsage
	case errors.As(err, &failed):
		fmt.Fprintln(stderr, "idemproxy: "+oneLine(err))
		return exitFailure
	default:
		fmt.Fprintf(stderr, "idemproxy: %s (see %s --help)\n", oneLine(err), command.CommandPath())
		return exitUsage
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
