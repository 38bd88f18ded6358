//go:build !linux

package e2e

import "syscall"

func child() *syscall.SysProcAttr { return nil }
