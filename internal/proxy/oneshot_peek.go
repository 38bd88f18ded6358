//go:build linux || darwin || freebsd || netbsd || openbsd

package proxy

import (
	"errors"
	"syscall"
)

// quietSocket reports whether a socket is open and has nothing to read. It doesn't wait.
func quietSocket(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK)
	}
}
