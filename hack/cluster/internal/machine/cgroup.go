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

// cgroupRoot is where every Linux mounts its cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// Hierarchy is a tree of cgroups: the only one there is with version 2, or one for each controller with version 1.
type Hierarchy struct {
	Mount   string // Where the host mounted it.
	Options string // What to mount it with again, such as "cpu,cpuacct"; empty with version 2.
}

// ErrNoCgroups says that there are no cgroups to give to machines.
var ErrNoCgroups = errors.New("no cgroups are mounted on " + cgroupRoot +
	": boot with systemd, or mount them (Debian: apt-get install cgroupfs-mount)")

// Hierarchies lists those that the host has mounted, in the order of their mount points.
func Hierarchies() ([]Hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	hierarchies := parseHierarchies(string(mounts))
	if len(hierarchies) == 0 {
		return nil, ErrNoCgroups
	}
	return hierarchies, nil
}

// parseHierarchies picks the cgroups out of a mountinfo. Where version 1 is mounted, a version 2 beside it has no
// controllers, and is left alone.
func parseHierarchies(mountinfo string) []Hierarchy {
	var first, second []Hierarchy
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		separator := slices.Index(fields, "-")
		if separator < 5 || len(fields) < separator+4 || !strings.HasPrefix(fields[4], cgroupRoot) {
			continue
		}
		switch fields[separator+1] {
		case "cgroup2":
			second = append(second, Hierarchy{Mount: fields[4]})
		case "cgroup":
			first = append(first, Hierarchy{Mount: fields[4], Options: controllers(fields[separator+3])})
		}
	}
	if len(first) > 0 {
		slices.SortFunc(first, func(a, b Hierarchy) int { return strings.Compare(a.Mount, b.Mount) })
		return first
	}
	return second
}

// controllers strips the options that say nothing about which hierarchy it is.
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

// MakeCgroup makes the cgroup in each hierarchy, so that processes can join it.
func MakeCgroup(hierarchies []Hierarchy, cgroup string) error {
	for _, hierarchy := range hierarchies {
		directory := hierarchy.Mount
		for part := range strings.SplitSeq(cgroup, "/") {
			if err := delegate(hierarchy, directory); err != nil {
				return err
			}
			parent := directory
			directory = filepath.Join(directory, part)
			if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make the cgroup %s: %w (are the cgroups mounted read-only?)", directory, err)
			}
			if err := inheritCPUs(parent, directory); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets the children of a version 2 cgroup have every controller that it has itself.
func delegate(hierarchy Hierarchy, directory string) error {
	if hierarchy.Options != "" {
		return nil
	}
	return enableControllers(directory)
}

func enableControllers(directory string) error {
	available, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of the cgroup %s: %w", directory, err)
	}
	control := filepath.Join(directory, "cgroup.subtree_control")
	var refused error
	for controller := range strings.FieldsSeq(string(available)) {
		// One at a time: a controller that can't be had shouldn't cost the others.
		refused = errors.Join(refused, os.WriteFile(control, []byte("+"+controller), 0))
	}
	enabled, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("read what the cgroup %s delegates: %w", directory, err)
	}
	for _, needed := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(strings.Fields(string(enabled)), needed) {
			if refused == nil {
				refused = errors.New("it hasn't got it")
			}
			return fmt.Errorf("the cgroup %s can't delegate the %s controller, which kubelet needs: %w", directory, needed, refused)
		}
	}
	return nil
}

// inheritCPUs copies what version 1 leaves empty in a new cgroup, and without which no process can join it.
func inheritCPUs(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the CPUs of the cgroup %s: %w", parent, err)
		}
		file := filepath.Join(child, name)
		own, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Version 2 inherits by itself, and has the file only where its parent delegates the CPUs.
		}
		if err != nil {
			return fmt.Errorf("read the CPUs of the cgroup %s: %w", child, err)
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		if err := os.WriteFile(file, inherited, 0); err != nil {
			return fmt.Errorf("give the cgroup %s its CPUs: %w", child, err)
		}
	}
	return nil
}

// JoinCgroup moves this process.
func JoinCgroup(hierarchies []Hierarchy, cgroup string) error {
	for _, hierarchy := range hierarchies {
		file := filepath.Join(hierarchy.Mount, cgroup, "cgroup.procs")
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return fmt.Errorf("join the cgroup %s: %w", filepath.Dir(file), err)
		}
	}
	return nil
}

// ProcessesIn lists the processes in a cgroup and all below it, as the host numbers them.
func ProcessesIn(hierarchies []Hierarchy, cgroup string) ([]int, error) {
	var pids []int
	for _, hierarchy := range hierarchies {
		err := filepath.WalkDir(filepath.Join(hierarchy.Mount, cgroup), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // It went away while we looked.
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
			return nil, fmt.Errorf("list the processes of the cgroup %s: %w", cgroup, err)
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
		// 0 is a process that can't be seen from here; -1 and the like don't occur.
		if pid, err := strconv.Atoi(scanner.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	return pids, nil
}

// EmptyCgroup kills what is in the cgroup and all below it. Only machines ever get into a cgroup of ours.
func EmptyCgroup(hierarchies []Hierarchy, cgroup string) error {
	const rounds = 10 // A process may start another while we look. An init that is killed can't, and takes all with it.
	for range rounds {
		pids, err := ProcessesIn(hierarchies, cgroup)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			process, gone := Identify(pid)
			if gone != nil {
				continue
			}
			if err := process.Kill(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("processes keep appearing in the cgroup %s", cgroup)
}

// RemoveCgroup removes the cgroup and all below it. The processes must be gone; the kernel may take a moment to see that.
func RemoveCgroup(hierarchies []Hierarchy, cgroup string) error {
	const patience = 5 * time.Second
	for _, hierarchy := range hierarchies {
		directory := filepath.Join(hierarchy.Mount, cgroup)
		deadline := time.Now().Add(patience)
		for {
			err := removeTree(directory)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove the cgroup %s: %w", directory, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes folders only, from the inside out: the files of a cgroup go with it, and can't be removed.
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

// RemoveCgroupIfEmpty removes a cgroup that other clusters may share, unless one does.
func RemoveCgroupIfEmpty(hierarchies []Hierarchy, cgroup string) {
	for _, hierarchy := range hierarchies {
		_ = unix.Rmdir(filepath.Join(hierarchy.Mount, cgroup)) // Refused while it has children: then it is in use.
	}
}
