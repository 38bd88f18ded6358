package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A smallDisk is a folder on a disk that can be filled. Where we may mount one it is a
// disk in memory; otherwise it is full for a process whose files may not grow.
type smallDisk struct {
	t       *testing.T
	dir     string
	mounted bool
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Logf("no disk to mount (%v): the size of files is limited instead", err)
		return d
	}
	d.mounted = true
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves no room on the disk, for the process.
func (d *smallDisk) fill(p *proxy) {
	d.t.Helper()
	if !d.mounted {
		d.limit(p, 256<<10)
		return
	}
	f, err := os.Create(d.ballast())
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}

// free gives the room back.
func (d *smallDisk) free(p *proxy) {
	d.t.Helper()
	if !d.mounted {
		d.limit(p, unix.RLIM_INFINITY)
	} else if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *smallDisk) limit(p *proxy, size uint64) {
	d.t.Helper()
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil); err != nil {
		d.t.Fatal(err)
	}
}
