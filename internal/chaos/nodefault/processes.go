//go:build linux

package nodefault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes returns the processes of containers, which it finds by their IDs in the names of cgroups.
func processes(containers []string) (found []int, err error) {
	if err := CheckContainers(containers); err != nil {
		return nil, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // The process has ended.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && containsAny(string(text), containers) {
			found = append(found, pid)
		}
	}
	return found, nil
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// signal sends a signal to all processes of containers, also to those that they start meanwhile. It returns how many there were.
func signal(containers []string, number unix.Signal) (int, error) {
	find := func() ([]int, error) { return processes(containers) }
	send := func(process int) error { return signalProcess(process, containers, number) }
	if number == unix.SIGCONT {
		return signalFound(find, send)
	}
	return signalAll(find, send)
}

// signalAll repeats until no process is new: a process may start another one before it receives the signal.
func signalAll(find func() ([]int, error), send func(process int) error) (int, error) {
	signalled := map[int]bool{}
	for {
		before := len(signalled)
		_, err := signalFound(func() (found []int, err error) {
			found, err = find()
			return slices.DeleteFunc(found, func(process int) bool { return signalled[process] }), err
		}, func(process int) error {
			signalled[process] = true
			return send(process)
		})
		if err != nil {
			return 0, err
		}
		if len(signalled) == before {
			return before, nil
		}
	}
}

// signalFound signals the processes that run now. For processes that were stopped, that is enough: they haven't started others. To
// repeat it could take forever, because they start others afterwards.
func signalFound(find func() ([]int, error), send func(process int) error) (int, error) {
	found, err := find()
	if err != nil {
		return 0, err
	}
	for _, process := range found {
		if err := send(process); err != nil {
			return 0, err
		}
	}
	return len(found), nil
}

// signalProcess sends a signal to a process if it is still one of these containers. Its ID may be that of another process by now, on a
// node that others use, too. A file descriptor always means the same process.
func signalProcess(process int, containers []string, number unix.Signal) error {
	descriptor, err := unix.PidfdOpen(process, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	known := err == nil // Linux before 5.3 has no such descriptors.
	if known {
		defer unix.Close(descriptor)
	} else if !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("cannot find process %d: %w", process, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", process))
	if err != nil || !containsAny(string(text), containers) {
		return nil // The process has ended.
	}
	if known {
		err = unix.PidfdSendSignal(descriptor, number, nil, 0)
	} else {
		err = unix.Kill(process, number)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot send %s to process %d: %w", unix.SignalName(number), process, err)
	}
	return nil
}
