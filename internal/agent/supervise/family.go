package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// family is what this process has started: one child, the main child, and its descendants. Because this process is
// their subreaper, a descendant whose parent ends becomes a child of this process, even if it is a daemon with a
// session of its own. So there is no descendant if there is no child.
type family struct {
	// changed receives a value when a child has ended or was stopped.
	changed chan struct{}

	mu sync.Mutex
	// main is the process ID of the main child, 0 once it was reaped. status is its status, -1 while it runs.
	main, status int
	// helper is the process ID of another child, 0 without one.
	helper int
	// spared are process groups that aren't killed: that of this process and that of its parent.
	spared []int
}

// newFamily makes this process the subreaper of its descendants, and reaps those that end.
func newFamily() (*family, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot become the subreaper of the program: %w", err)
	}
	if _, err := os.ReadFile("/proc/thread-self/children"); err != nil {
		return nil,
			fmt.Errorf("cannot find the processes of the program, for which Linux needs /proc and CONFIG_PROC_CHILDREN: %w", err)
	}
	f := &family{changed: make(chan struct{}, 1), spared: []int{unix.Getpgrp()}}
	if group, err := unix.Getpgid(unix.Getppid()); err == nil {
		f.spared = append(f.spared, group)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			f.reap()
			notify(f.changed)
		}
	}()
	return f, nil
}

func (f *family) start(path string, argv []string, attr *syscall.ProcAttr) error {
	f.mu.Lock() // So reap doesn't meet a child that it doesn't know.
	defer f.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err == nil {
		f.main, f.status = pid, -1
	}
	return err
}

const shell = "/bin/sh"

// startHelper starts a command of a shell beside the main child. There is one at a time.
func (f *family) startHelper(command string, env []string) error {
	f.killHelper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	f.mu.Lock() // as start
	defer f.mu.Unlock()
	f.helper, err = syscall.ForkExec(shell, []string{"sh", "-c", command}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{null.Fd(), 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	return err
}

// killHelper kills the helper and its process group.
func (f *family) killHelper() {
	f.mu.Lock() // as signalMain
	defer f.mu.Unlock()
	if f.helper != 0 {
		_ = syscall.Kill(-f.helper, syscall.SIGKILL)
	}
}

// mainStatus returns the exit status of the main child, 128 plus the number of the signal that has ended it, or has
// stopped it. It is -1 while the main child runs.
func (f *family) mainStatus() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// signalMain sends a signal to the process group of the main child, unless that has ended.
func (f *family) signalMain(s syscall.Signal) {
	f.mu.Lock() // So its number isn't used again meanwhile.
	defer f.mu.Unlock()
	if f.main != 0 {
		_ = syscall.Kill(-f.main, s) // It may have changed its group or user.
	}
}

// reap reaps all children that have ended. It returns whether there is no child any more.
func (f *family) reap() (none bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return errors.Is(err, syscall.ECHILD)
		case pid == 0:
			return false
		case pid == f.helper && !status.Stopped():
			f.helper = 0
		case pid == f.main:
			if f.status < 0 { // Otherwise, it was stopped before, and then killed.
				f.status = statusOf(status)
			}
			if !status.Stopped() {
				f.main = 0
			}
		}
	}
}

func statusOf(status syscall.WaitStatus) int {
	switch {
	case status.Exited():
		return status.ExitStatus()
	case status.Stopped():
		return stoppedStatus
	}
	return 128 + int(status.Signal())
}

// kill kills all descendants that it finds, from the top. One whose parent has ended meanwhile becomes a child of this
// process, so the caller repeats it until reap returns true. It doesn't rely on the guard: on a busy machine, it takes
// long until a killed guard ends.
func (f *family) kill() {
	f.mu.Lock() // So the number of a child isn't used again.
	defer f.mu.Unlock()
	for _, pid := range children("self") {
		below := children(strconv.Itoa(pid))
		f.killWithGroup(pid)
		f.killAll([]int{os.Getpid(), pid}, below)
	}
}

// killAll kills processes whose parent was the last one of a line of ancestors, and their descendants. A process whose
// parent has ended has another one of them as its parent.
func (f *family) killAll(ancestors, pids []int) {
	for _, pid := range pids {
		below := children(strconv.Itoa(pid))
		// Its parent may have reaped it, and its number be in use again.
		if slices.Contains(ancestors, parentOf(pid)) {
			f.killWithGroup(pid)
		}
		f.killAll(append(slices.Clone(ancestors), pid), below)
	}
}

// killWithGroup kills a process and its process group. A group gets the signal at once, so that a process in it can't
// escape by forking, or when its parent ends.
func (f *family) killWithGroup(pid int) {
	if group, err := unix.Getpgid(pid); err == nil && group > 1 && !slices.Contains(f.spared, group) {
		_ = unix.Kill(-group, unix.SIGKILL) // Only the result of reap counts.
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

func children(process string) (pids []int) {
	lists, _ := filepath.Glob("/proc/" + process + "/task/*/children") // The pattern is valid.
	for _, list := range lists {
		text, _ := os.ReadFile(list) // A thread may have ended; its children belong to another one then.
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // as above
	// The name of the program, in parentheses, may contain any character. The state follows.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// cgroup is a cgroup of version 2 for the program. The kernel kills everything in it at once, whatever its user. It is
// nil where this process may not create one, as in most containers: then only the parents of processes show what
// belongs to the program.
type cgroup struct {
	path string
	dir  *os.File
}

// newCgroup creates a cgroup for a tenure below that of this process, or returns nil. It isn't used again: Linux 6.18
// kills what is cloned into a cgroup in which everything has been killed before.
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
