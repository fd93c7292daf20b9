package network

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveAfterIPNetns removes a network after something on this machine has used "ip netns" for the first time, which mounts
// /run/netns over itself. It runs in a mount namespace of its own.
func TestRemoveAfterIPNetns(t *testing.T) {
	if os.Getenv("CONCLAVE_OWN_MOUNTS") == "" {
		if os.Geteuid() != 0 {
			if os.Getenv("CI") == "true" {
				t.Fatal("CI must not skip tests: run them as root")
			}
			t.Skip("not root")
		}
		child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		child.Env = append(os.Environ(), "CONCLAVE_OWN_MOUNTS=true")
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if output, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return
	}
	require(t, "hide /run", unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	n := Network{Cluster: "test"}
	require(t, "create the switch", n.CreateSwitch())
	const folder = "/run/netns"
	require(t, "create "+folder, os.MkdirAll(folder, 0o755))
	require(t, "mount "+folder, unix.Mount(folder, folder, "none", unix.MS_BIND|unix.MS_REC, ""))
	require(t, "remove the network", n.Remove())
	if _, err := os.Stat(Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat %s: got %v, want that it doesn't exist", Dir, err)
	}
}

func require(t *testing.T, action string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("cannot %s: %v", action, err)
	}
}
