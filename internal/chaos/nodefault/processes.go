//go:build linux

package nodefault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// minIDLength is shorter than the IDs of containers. A short ID could be a part of the names of other cgroups.
const minIDLength = 32

// processes returns the processes of containers, which it finds by their IDs in the names of cgroups.
func processes(containers []string) (found []int, err error) {
	for _, id := range containers {
		if len(id) < minIDLength {
			return nil, fmt.Errorf("%q isn't the ID of a container", id)
		}
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
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// signal sends a signal to all processes of containers, also to those that they start meanwhile. It returns how many there were.
func signal(containers []string, number unix.Signal) (int, error) {
	signalled := map[int]bool{}
	for {
		found, err := processes(containers)
		if err != nil {
			return 0, err
		}
		before := len(signalled)
		for _, pid := range found {
			if signalled[pid] {
				continue
			}
			signalled[pid] = true
			if err := unix.Kill(pid, number); err != nil && !errors.Is(err, unix.ESRCH) {
				return 0, fmt.Errorf("cannot send %s to process %d: %w", unix.SignalName(number), pid, err)
			}
		}
		if len(signalled) == before {
			return before, nil
		}
	}
}
