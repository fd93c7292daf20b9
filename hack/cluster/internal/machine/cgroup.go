package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is the folder where Linux distributions mount the cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// Hierarchy is a tree of cgroups. With version 2 there is one; with version 1 there is one for each controller.
type Hierarchy struct {
	Mount   string // The mount point on the host.
	Options string // The mount options, such as "cpu,cpuacct". Empty with version 2.
}

// ErrNoCgroups is returned if the host has no cgroups.
var ErrNoCgroups = errors.New("no cgroups are mounted on " + cgroupRoot +
	": boot with systemd, or mount them (Debian: apt-get install cgroupfs-mount)")

// Hierarchies returns the mounted hierarchies, sorted by mount point.
func Hierarchies() ([]Hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	hierarchies := parseHierarchies(string(mounts))
	if len(hierarchies) == 0 {
		return nil, ErrNoCgroups
	}
	return hierarchies, nil
}

// parseHierarchies finds the hierarchies in a mountinfo file. As for containerd and kubelet, what is mounted on cgroupRoot
// decides: if it is version 2, others are single controllers of version 1 beside it, as VPN programs mount them. Otherwise,
// if version 1 is mounted, version 2 has no controllers.
func parseHierarchies(mountinfo string) []Hierarchy {
	var first, second []Hierarchy
	unified := false // Mounts on top of others follow them.
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		separator := slices.Index(fields, "-")
		if separator < 5 || len(fields) < separator+4 || !strings.HasPrefix(fields[4], cgroupRoot) {
			continue
		}
		kind := fields[separator+1]
		if fields[4] == cgroupRoot {
			unified = kind == "cgroup2"
		}
		switch kind {
		case "cgroup2":
			second = append(second, Hierarchy{Mount: fields[4]})
		case "cgroup":
			first = append(first, Hierarchy{Mount: fields[4], Options: controllers(fields[separator+3])})
		}
	}
	if unified {
		return []Hierarchy{{Mount: cgroupRoot}}
	}
	if len(first) > 0 {
		slices.SortFunc(first, func(a, b Hierarchy) int { return strings.Compare(a.Mount, b.Mount) })
		return first
	}
	return second
}

// controllers removes the options that don't identify the hierarchy.
func controllers(options string) string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "rw", "ro", "xattr", "noprefix", "clone_children":
		default:
			if !strings.HasPrefix(option, "release_agent=") {
				kept = append(kept, option)
			}
		}
	}
	return strings.Join(kept, ",")
}

// CreateCgroup creates the cgroup in each hierarchy, so that processes can join it.
func CreateCgroup(hierarchies []Hierarchy, cgroup string) error {
	for _, hierarchy := range hierarchies {
		directory := hierarchy.Mount
		for part := range strings.SplitSeq(cgroup, "/") {
			if err := delegate(hierarchy, directory); err != nil {
				return err
			}
			parent := directory
			directory = filepath.Join(directory, part)
			if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("cannot create the cgroup %s: %w (are the cgroups mounted read-only?)", directory, err)
			}
			if err := inheritCPUs(parent, directory); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables all controllers of a version 2 cgroup for its children.
func delegate(hierarchy Hierarchy, directory string) error {
	if hierarchy.Options != "" {
		return nil
	}
	return enableControllers(directory)
}

func enableControllers(directory string) error {
	available, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cannot read the controllers of the cgroup %s: %w", directory, err)
	}
	control := filepath.Join(directory, "cgroup.subtree_control")
	var refused error
	for controller := range strings.FieldsSeq(string(available)) {
		// Enable them one by one, so that one that fails doesn't prevent the others.
		refused = errors.Join(refused, os.WriteFile(control, []byte("+"+controller), 0))
	}
	enabled, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("cannot read the delegated controllers of the cgroup %s: %w", directory, err)
	}
	for _, needed := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(strings.Fields(string(enabled)), needed) {
			if refused == nil {
				refused = errors.New("the controller isn't available")
			}
			return fmt.Errorf("the cgroup %s cannot delegate the %s controller, which kubelet needs: %w", directory, needed, refused)
		}
	}
	return nil
}

// inheritCPUs copies the CPUs and memory nodes from the parent. With version 1 they are empty in a new cgroup, and no
// process can join it.
func inheritCPUs(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the CPUs of the cgroup %s: %w", parent, err)
		}
		file := filepath.Join(child, name)
		own, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Version 2 inherits them. The file exists only if the parent delegates the cpuset controller.
		}
		if err != nil {
			return fmt.Errorf("cannot read the CPUs of the cgroup %s: %w", child, err)
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		if err := os.WriteFile(file, inherited, 0); err != nil {
			return fmt.Errorf("cannot set the CPUs of the cgroup %s: %w", child, err)
		}
	}
	return nil
}

// JoinCgroup moves this process to a cgroup.
func JoinCgroup(hierarchies []Hierarchy, cgroup string) error {
	for _, hierarchy := range hierarchies {
		file := filepath.Join(hierarchy.Mount, cgroup, "cgroup.procs")
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return fmt.Errorf("cannot join the cgroup %s: %w", filepath.Dir(file), err)
		}
	}
	return nil
}

// ProcessesIn returns the host's process IDs of the processes in a cgroup and its descendants.
func ProcessesIn(hierarchies []Hierarchy, cgroup string) ([]int, error) {
	var pids []int
	for _, hierarchy := range hierarchies {
		err := filepath.WalkDir(filepath.Join(hierarchy.Mount, cgroup), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // The cgroup was removed meanwhile.
				}
				return err
			}
			if entry.Name() != "cgroup.procs" {
				return nil
			}
			found, err := readPIDs(path)
			pids = append(pids, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("cannot list the processes of the cgroup %s: %w", cgroup, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func readPIDs(path string) ([]int, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var pids []int
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		// 0 is a process in another PID namespace, which has no ID here.
		if pid, err := strconv.Atoi(scanner.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	return pids, nil
}

// EmptyCgroup kills all processes in the cgroup and its descendants. Only processes of machines join these cgroups.
func EmptyCgroup(hierarchies []Hierarchy, cgroup string) error {
	const waitMax = 10 * time.Second
	// A process may start another one meanwhile. When an init is killed, its whole machine exits, and the kernel lists a
	// process until it has exited.
	for deadline := time.Now().Add(waitMax); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		pids, err := ProcessesIn(hierarchies, cgroup)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			process, err := Identify(pid)
			if err != nil || !isIn(pid, cgroup) { // The process has exited, and another one may have its ID.
				continue
			}
			if err := process.Kill(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("cannot kill the processes in the cgroup %s: after %s there are still some", cgroup, waitMax)
}

// isIn reports whether a process is in the cgroup or a descendant.
func isIn(pid int, cgroup string) bool {
	// The lines contain paths, which may begin with those of the cgroups that contain this process.
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(content)) {
		if strings.Contains(strings.TrimSpace(line)+"/", "/"+cgroup+"/") {
			return true
		}
	}
	return false
}

// RemoveCgroup removes the cgroup and its descendants, whose processes must have exited. It retries, because the kernel
// may report an exited process for a moment.
func RemoveCgroup(hierarchies []Hierarchy, cgroup string) error {
	const waitMax = 5 * time.Second
	for _, hierarchy := range hierarchies {
		directory := filepath.Join(hierarchy.Mount, cgroup)
		deadline := time.Now().Add(waitMax)
		for {
			err := removeTree(directory)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("cannot remove the cgroup %s: %w", directory, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes the folders of a tree, children first. The files of a cgroup cannot be removed; they disappear with
// the folder.
func removeTree(directory string) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(directory); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// RemoveCgroupIfEmpty removes a cgroup that clusters share, if it has no children.
func RemoveCgroupIfEmpty(hierarchies []Hierarchy, cgroup string) {
	for _, hierarchy := range hierarchies {
		_ = unix.Rmdir(filepath.Join(hierarchy.Mount, cgroup)) // Fails if the cgroup has children and so is in use.
	}
}
