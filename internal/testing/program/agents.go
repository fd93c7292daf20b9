package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is the agent of a pod, seen as a process of this machine. Pods are
// processes of this machine where the cluster's nodes are.
type Process struct {
	PID int
	Pod string
}

// Agents returns the agents that run in the cluster of this name. It skips processes that exit meanwhile.
func Agents(cluster string) (found []Process) {
	folders, _ := filepath.Glob("/proc/[0-9]*") // The pattern is valid.
	for _, folder := range folders {
		if name, _ := os.ReadFile(filepath.Join(folder, "comm")); string(name) != "agent\n" {
			continue // Most processes end here: a machine with a cluster has hundreds, and tests call this many times a second.
		}
		cgroups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || !bytes.Contains(cgroups, []byte("/"+cluster+"/")) {
			continue
		}
		// Kubelet's probes run the same binary with another argument. During exec, the command line is empty, so the process
		// could be either; skip it.
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		arguments := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if len(line) == 0 || len(arguments) > 1 && arguments[1] != "pod" {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join(folder, "environ"))
		for variable := range strings.SplitSeq(string(environment), "\x00") {
			if pod, ok := strings.CutPrefix(variable, "POD_NAME="); ok {
				found = append(found, Process{pid, pod})
			}
		}
	}
	return found
}
