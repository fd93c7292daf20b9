package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup is a cgroup of version 2 for the program. The kernel kills everything in it at once, whatever its user. It is nil where
// this process may not create one, as in most containers: then only the parents of processes show what belongs to the program.
type cgroup struct {
	path string
	dir  *os.File
}

// newCgroup creates a cgroup for a tenure below that of this process, or returns nil. It isn't used again: Linux 6.18 kills what is
// cloned into a cgroup in which everything has been killed before.
func newCgroup(token uint64) *cgroup {
	parent := ownCgroup()
	if parent == "" {
		return nil
	}
	path := filepath.Join(parent, fmt.Sprintf("conclave-exec-%d-%d", os.Getpid(), token))
	if os.Mkdir(path, 0o755) != nil {
		return nil
	}
	g := openCgroup(path)
	if g == nil {
		_ = os.Remove(path) // It is empty.
	}
	return g
}

// openCgroup returns a cgroup, or nil if this process may not use it.
func openCgroup(path string) *cgroup {
	if unix.Access(filepath.Join(path, "cgroup.kill"), unix.W_OK) != nil { // Linux has it since 5.14.
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	return &cgroup{path: path, dir: dir}
}

// kill kills everything in the cgroup. The caller kills its descendants in any case.
func (g *cgroup) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the cgroup, unless there is something in it.
func (g *cgroup) remove() {
	if g != nil {
		_ = os.Remove(g.path)
		_ = g.dir.Close()
	}
}

// ownCgroup returns the directory of this process's cgroup of version 2, or "".
func ownCgroup() string {
	groups, _ := os.ReadFile("/proc/self/cgroup") // Without /proc, there is none.
	_, own, found := strings.Cut("\n"+string(groups), "\n0::")
	if !found {
		return ""
	}
	own, _, _ = strings.Cut(own, "\n")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for mount := range strings.Lines(string(mounts)) {
		// 36 35 0:30 ROOT MOUNTPOINT OPTIONS OPTIONAL... - TYPE SOURCE OPTIONS
		before, after, _ := strings.Cut(mount, " - ")
		fields := strings.Fields(before)
		if len(fields) > 4 && fields[3] == "/" && strings.HasPrefix(after, "cgroup2 ") {
			return filepath.Join(fields[4], own)
		}
	}
	return ""
}
