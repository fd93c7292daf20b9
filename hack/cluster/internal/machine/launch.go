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

// Internal commands of this program: Boot runs the launcher, and the launcher runs the init.
const (
	LauncherCommand = "machine-launch"
	InitCommand     = "machine-init"
)

// File descriptors that the init inherits from the launcher. The listener exists only if the spec has a relay.
const (
	launcherGoneFD = 3
	listenerFD     = 4
)

// Boot starts the machine and returns when its init is running. The programs start after that. The executable is a copy of
// this program that exists as long as the machine. The launcher ends with this process: the next command clears the cgroup of a
// machine that an interrupted one has started, so no launcher may join it later.
func Boot(executable, specPath string) (Process, error) {
	runtime.LockOSThread() // The signal is sent when the thread ends.
	defer runtime.UnlockOSThread()
	command := exec.Command(executable, LauncherCommand, specPath)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return Process{}, fmt.Errorf("cannot boot the machine of %s: %w", specPath, err)
	}
	var process Process
	if err := json.Unmarshal(output, &process); err != nil {
		return Process{}, fmt.Errorf("cannot boot the machine of %s: cannot read its init process: %w", specPath, err)
	}
	return process, nil
}

// Launch runs the launcher. It is a separate process because it moves itself to the cgroup and the network namespace of the
// init, and only whole processes can move to a cgroup.
func Launch(specPath string) error {
	spec, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	// The end of this pipe notifies the init that the launcher has exited.
	gone, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot create a pipe: %w", err)
	}
	defer alive.Close()
	inherited := []*os.File{gone}
	if spec.Relay != nil {
		// The relay listens in the host's network, so create it before the move.
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
		return nil, fmt.Errorf("cannot listen for the host's connections: %w", err)
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the host's connections: %w", err)
	}
	defer listener.Close() // The file is a copy.
	file, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("cannot pass the listener of %s: %w", address, err)
	}
	return file, nil
}

func startInit(spec Spec, specPath string, inherited []*os.File) (Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return Process{}, fmt.Errorf("cannot open the log of %s: %w", spec.Name, err)
	}
	defer log.Close()
	executable, err := os.Executable()
	if err != nil {
		return Process{}, fmt.Errorf("cannot find this program: %w", err)
	}
	network, err := netns.GetFromPath(spec.Netns)
	if err != nil {
		return Process{}, fmt.Errorf("cannot open the network namespace %s: %w", spec.Netns, err)
	}
	// A child inherits the network namespace of the thread that starts it. The launcher exits soon, so the thread doesn't
	// have to return to its own.
	runtime.LockOSThread()
	if err := netns.Set(network); err != nil {
		return Process{}, fmt.Errorf("cannot enter the network namespace %s: %w", spec.Netns, err)
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
		return Process{}, fmt.Errorf("cannot start the init of %s: %w", spec.Name, err)
	}
	return Identify(command.Process.Pid)
}

// InitLog returns the log file of the init of a machine with this folder.
func InitLog(directory string) string { return filepath.Join(directory, "log", "init.log") }
