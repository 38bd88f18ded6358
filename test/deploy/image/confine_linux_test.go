package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// confineVariable holds a confinement, in JSON, for this program started once more.
const confineVariable = "IDEMPROXY_TEST_CONFINE"

// A confinement is what a container runtime is asked for. Its process is in namespaces of
// its own already, as root; it ends as the program in the image.
type confinement struct {
	// Root is the image's content, which becomes a file system that can't be written.
	Root string
	// State is mounted at /var/lib/idemproxy, to be written; empty for none.
	State string
	// Config is mounted over the configuration in the image; empty for none.
	Config string
	// Network is the process whose network is shared; 0 for what this process has.
	Network int
	// Loopback brings up the loopback device of a new network.
	Loopback bool
	// User is the user and the group.
	User int
	Args []string
	Env  []string
}

// confineIfAsked does not come back where this process is to become a container.
func confineIfAsked() {
	asked := os.Getenv(confineVariable)
	if asked == "" {
		return
	}
	runtime.LockOSThread() // namespaces, capabilities and exec are a thread's
	var c confinement
	err := json.Unmarshal([]byte(asked), &c)
	if err == nil {
		err = c.enter()
	}
	fmt.Fprintln(os.Stderr, "confine:", err)
	os.Exit(125)
}

func (c confinement) enter() error {
	if err := c.join(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := c.mount(); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/")); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := c.surrender(); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	return fmt.Errorf("exec %s: %w", c.Args[0], unix.Exec(c.Args[0], c.Args, c.Env))
}

func (c confinement) join() error {
	if c.Network != 0 {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.Network))
		if err != nil {
			return err
		}
		defer ns.Close()
		return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	}
	if !c.Loopback {
		return nil
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// mount makes the root what a runtime makes of it with --read-only: nothing of it can be
// written but what is mounted there.
func (c confinement) mount() error {
	const confined = unix.MS_NOSUID | unix.MS_NODEV
	bind := func(from, to string, flags uintptr) error {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|confined|flags, "")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	proc := filepath.Join(c.Root, "proc") // where runtimes, too, make the folder themselves
	if err := os.MkdirAll(proc, 0o555); err != nil {
		return err
	}
	if err := bind(c.Root, c.Root, unix.MS_RDONLY); err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", confined|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if c.State != "" {
		if err := bind(c.State, c.Root+"/var/lib/idemproxy", unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	if c.Config != "" {
		return bind(c.Config, c.Root+"/etc/idemproxy/idemproxy.yaml", unix.MS_RDONLY)
	}
	return nil
}

// surrender becomes the user, without any capability and any way to get one.
func (c confinement) surrender() error {
	for capability := uintptr(0); ; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // past the last one that this kernel knows
		} else if err != nil {
			return err
		}
	}
	return errors.Join(
		syscall.Setgroups(nil), syscall.Setgid(c.User), syscall.Setuid(c.User),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		// Ends with the tests. To change the user has undone what the parent asked for.
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0),
	)
}
