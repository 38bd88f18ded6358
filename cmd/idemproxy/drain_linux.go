package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// drainSignals is told when `idemproxy drain` was run.
func drainSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	return signals
}

func forContainers() []*cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Send callers away from the idemproxy of this container, before it ends",
		Long: `Tell the idemproxy of this container (SIGUSR1 to process 1) that it will end: it is not
ready any more, and each answer tells its caller to leave the connection. It serves on until
SIGTERM. Kubernetes sends that to a sidecar when the application has ended, so this is what
the sidecar's preStop runs.`,
		Example: `  lifecycle: {preStop: {exec: {command: [/idemproxy, drain]}}}`,
		Args:    cobra.NoArgs,
		RunE:    running(func(*cobra.Command, []string) error { return drain(pid) }),
	}
	cmd.Flags().IntVar(&pid, "pid", 1, "`process` to tell")
	return []*cobra.Command{cmd}
}

// drain tells a process, if it is one of this program: others may end by that signal.
func drain(pid int) error {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return fmt.Errorf("find the program of process %d: %w", pid, err)
	}
	if !os.SameFile(own, theirs) || pid == os.Getpid() {
		return fmt.Errorf("process %d is not the idemproxy that serves; name it by --pid", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("tell process %d: %w", pid, err)
	}
	return nil
}
