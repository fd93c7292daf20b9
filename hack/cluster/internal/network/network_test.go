package network

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inOwnMounts runs the test in a mount namespace of its own with an empty /run. It returns false in the parent process.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv("CONCLAVE_OWN_MOUNTS") != "" {
		require(t, "hide /run", unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
		return true
	}
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
	return false
}

// TestRemoveAfterIPNetns removes a network after something on this machine has used "ip netns" for the first time, which mounts
// /run/netns over itself.
func TestRemoveAfterIPNetns(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
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

// TestCreateSwitchAfterInterruption creates a switch after each step at which an earlier creation may have been killed.
func TestCreateSwitchAfterInterruption(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	n := Network{Cluster: "test"}
	name := n.namespace(switchName)
	for step, prepare := range map[string]func() error{
		"only the file exists": func() error {
			return errors.Join(os.MkdirAll(Dir, 0o755), os.WriteFile(filepath.Join(Dir, name), nil, 0o600))
		},
		"the namespace has no bridge": func() error { return createNamespace(name) },
		"the bridge isn't enabled": func() error {
			return errors.Join(n.CreateSwitch(), disableBridge(name))
		},
	} {
		t.Run(step, func(t *testing.T) {
			require(t, "prepare", prepare())
			if hasSwitch(name) {
				t.Fatal("the switch is complete already")
			}
			require(t, "create the switch", n.CreateSwitch())
			if !hasSwitch(name) {
				t.Error("the switch is incomplete")
			}
			require(t, "remove the network", n.Remove())
		})
	}
}

func disableBridge(name string) error {
	handle, err := open(name)
	if err != nil {
		return err
	}
	defer handle.Close()
	bridge, err := handle.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	return handle.LinkSetDown(bridge)
}

func require(t *testing.T, action string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("cannot %s: %v", action, err)
	}
}
