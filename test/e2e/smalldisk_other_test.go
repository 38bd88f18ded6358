//go:build !linux

package e2e

import "testing"

// A smallDisk is a folder on a disk that can be filled, on Linux.
type smallDisk struct{ dir string }

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	t.Skip("no disk to fill on this system")
	return nil
}

func (*smallDisk) fill(*proxy) {}
func (*smallDisk) free(*proxy) {}
