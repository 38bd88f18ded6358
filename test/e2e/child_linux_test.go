package e2e

import "syscall"

// child makes a process end with the tests, also when those are killed.
func child() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
