package machine

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The commands of this program that aren't for people: Boot runs the launcher, and the launcher the init.
const (
	LauncherCommand = "machine-launch"
	InitCommand     = "machine-init"
)

// File descriptors that the launcher leaves to the init. The listener is there only if the spec has a relay.
const (
	launcherGoneFD = 3
	listenerFD     = 4
)

// Boot starts the machine, and returns when its init runs; the programs come up after that. The executable is this
// program; it must be where it will still be found when the machine is looked at later.
func Boot(executable, specPath string) (Process, error) {
	command := exec.Command(executable, LauncherCommand, specPath)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return Process{}, fmt.Errorf("boot the machine of %s: %w", specPath, err)
	}
	var process Process
	if err := json.Unmarshal(output, &process); err != nil {
		return Process{}, fmt.Errorf("boot the machine of %s: read the process of its init: %w", specPath, err)
	}
	return process, nil
}

// Launch is what the launcher does. It is a process of its own, because it moves itself to where the init shall be: to
// another cgroup, which only a whole process can move to, and to another network.
func Launch(specPath string) error {
	spec, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	// The init finds out that the launcher has left the cgroup by the end of this pipe.
	gone, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer alive.Close()
	inherited := []*os.File{gone}
	if spec.Relay != nil {
		// Before the move: this one shall listen in the network of the host.
		listener, err := listen(spec.Relay.Listen)
		if err != nil {
			return err
		}
		inherited = append(inherited, listener)
	}
	hierarchies, err := Hierarchies()
	if err != nil {
		return err
	}
	if err := JoinCgroup(hierarchies, spec.Cgroup); err != nil {
		return err
	}
	process, err := startInit(spec, specPath, inherited)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(process)
}

func listen(address string) (*os.File, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the host's requests: %w", err)
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, fmt.Errorf("listen for the host's requests: %w", err)
	}
	defer listener.Close() // The file is a copy.
	file, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("hand over the listener of %s: %w", address, err)
	}
	return file, nil
}

func startInit(spec Spec, specPath string, inherited []*os.File) (Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("open the log of %s: %w", spec.Name, err)
	}
	defer log.Close()
	executable, err := os.Executable()
	if err != nil {
		return Process{}, fmt.Errorf("find this program: %w", err)
	}
	network, err := netns.GetFromPath(spec.Netns)
	if err != nil {
		return Process{}, fmt.Errorf("open the network namespace %s: %w", spec.Netns, err)
	}
	// A child gets the network of the thread that starts it. The launcher ends soon, so the thread needn't come back.
	runtime.LockOSThread()
	if err := netns.Set(network); err != nil {
		return Process{}, fmt.Errorf("enter the network namespace %s: %w", spec.Netns, err)
	}
	command := exec.Command(executable, InitCommand, specPath)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = inherited
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
		Setsid:     true,
	}
	if err := command.Start(); err != nil {
		return Process{}, fmt.Errorf("start the init of %s: %w", spec.Name, err)
	}
	return Identify(command.Process.Pid)
}

// InitLog is where the init of a machine with this folder logs.
func InitLog(directory string) string { return filepath.Join(directory, "log", "init.log") }
