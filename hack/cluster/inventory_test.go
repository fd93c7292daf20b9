package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/hack/cluster/internal/lifecycle"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/network"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// inventory lists the network namespaces, mounts, processes and cgroups of some clusters, and the kernel settings that nodes
// might change, and the folders of the clusters. It excludes other clusters on this machine.
type inventory struct {
	namespaces, mounts, processes, cgroups, settings, folders []string
}

func takeInventory(t *testing.T, purposes ...string) inventory {
	t.Helper()
	found := inventory{settings: settings(t)}
	for _, purpose := range purposes {
		cluster := clusterName(t, purpose)
		found.namespaces = append(found.namespaces, containing(names(t, network.Dir), cluster)...)
		found.mounts = append(found.mounts, containing(mounts(t), cluster)...)
		found.processes = append(found.processes, processesOf(t, "/"+cluster+"/")...)
		found.cgroups = append(found.cgroups, containing(cgroups(t), cluster)...)
		found.folders = append(found.folders, containing(names(t, stateFolder), cluster)...)
	}
	return found
}

func containing(all []string, part string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return !strings.Contains(name, part) })
}

func requireSameInventory(t *testing.T, before, after inventory) {
	t.Helper()
	for _, kind := range []struct {
		name          string
		before, after []string
	}{
		{"network namespaces", before.namespaces, after.namespaces},
		{"mounts", before.mounts, after.mounts},
		{"processes", before.processes, after.processes},
		{"cgroups", before.cgroups, after.cgroups},
		{"kernel settings", before.settings, after.settings},
		{"folders", before.folders, after.folders},
	} {
		if !slices.Equal(kind.before, kind.after) {
			t.Errorf("%s changed from\n%q\nto\n%q", kind.name, kind.before, kind.after)
		}
	}
	for _, cgroup := range cgroups(t) {
		// The common parent is removed with the last cluster.
		if filepath.Base(cgroup) == "conclave" && !slices.ContainsFunc(cgroups(t), func(name string) bool { return filepath.Dir(name) == cgroup }) {
			t.Errorf("the empty cgroup %s still exists", cgroup)
		}
	}
}

func names(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// mounts returns the mount points. Other fields of mountinfo change over time.
func mounts(t *testing.T) []string {
	t.Helper()
	content := must.ReadFile(t, "/proc/self/mountinfo")
	var found []string
	for line := range strings.Lines(string(content)) {
		found = append(found, strings.Fields(line)[4])
	}
	return found
}

// processesOf returns the command lines of processes whose cgroup contains part, and of machines' init processes whose
// command line does.
func processesOf(t *testing.T, part string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	must.Succeed(t, err)
	var found []string
	for _, file := range files {
		cgroup, _ := os.ReadFile(file) // The process may have exited.
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if strings.Contains(string(cgroup), part) || strings.Contains(string(line), part) && strings.Contains(string(line), machine.InitCommand) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func cgroups(t *testing.T) []string {
	t.Helper()
	hierarchies, err := machine.Hierarchies()
	must.Succeed(t, err)
	var found []string
	for _, hierarchy := range hierarchies {
		_ = filepath.WalkDir(filepath.Join(hierarchy.Mount, "conclave"), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

// settings returns kernel settings that kubelet and kube-proxy change if they can.
func settings(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max", "net/bridge/bridge-nf-call-iptables",
	} {
		content, err := os.ReadFile("/proc/sys/" + name)
		if err == nil {
			found = append(found, name+" "+strings.TrimSpace(string(content)))
		}
	}
	return found
}

// switchOff kills the cluster's machines, similar to a power failure, without using the command.
func switchOff(h *harness) {
	h.t.Helper()
	content := must.ReadFile(h.t, filepath.Join(h.directory(), "state.json"))
	var state lifecycle.State
	if err := json.Unmarshal(content, &state); err != nil || len(state.Machines) != 4 {
		h.t.Fatalf("got %d machines (%v), want 4", len(state.Machines), err)
	}
	for _, member := range state.Machines {
		must.Succeed(h.t, member.Init.Kill())
	}
}
