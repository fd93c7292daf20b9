// Package singleton tests that the program of conclave-agent exec runs only while its agent leads, with real agents and
// faults.
package singleton

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// The program under test is this test program with these variables. It appends lines to a file, which checks nothing.
const (
	roleVariable = "SINGLETON_ROLE"
	fileVariable = "SINGLETON_FILE"
	deafVariable = "SINGLETON_DEAF"
)

// The roles of the program's processes. The daemon has a session of its own, and its parent has ended.
const (
	roleMain    = "main"
	roleChild   = "child"
	roleForks   = "forks"
	roleDaemon  = "daemon"
	writeEvery  = 3 * time.Millisecond
	programFail = 99
)

var roles = []string{roleMain, roleChild, roleDaemon}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runProgram(role))
	}
	agentcluster.Main(m)
}

// runProgram is a program that knows nothing of elections, but writes its token so that the test can check the order.
// Only the main process ends after SIGTERM.
func runProgram(role string) int {
	start := func(role string, setsid bool) error {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), roleVariable+"="+role)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		return child.Start()
	}
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_WRONLY, 0)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch role {
	case roleMain:
		for _, next := range []error{start(roleChild, false), start(roleForks, true)} {
			if next != nil {
				err = next
			}
		}
	case roleForks:
		err = start(roleDaemon, true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return programFail
	}
	if role == roleForks {
		return 0
	}
	line := fmt.Appendf(nil, "%s %s %s %d\n", os.Getenv("CONCLAVE_TOKEN"), os.Getenv("CONCLAVE_MEMBER"), role, os.Getpid())
	for again := time.NewTicker(writeEvery); ; {
		select {
		case <-again.C:
			if _, err := file.Write(line); err != nil {
				return programFail
			}
		case <-term:
			if role == roleMain && os.Getenv(deafVariable) == "" {
				return 0
			}
		}
	}
}

// env is three agents with a wrapper each, whose programs append to one file.
type env struct {
	*agentcluster.Cluster

	t    *testing.T
	file string
	// deaf: programs ignore SIGTERM. hideCgroups: wrappers can't create a cgroup. Both are about wrappers that start from
	// now on.
	deaf, hideCgroups bool

	wrappers map[string]*exec.Cmd
	ended    map[string]chan struct{}

	// offset is where the check of the file continues. highest is the highest token before it, and overlaps counts the
	// lines with a lower one.
	offset          int64
	highest         uint64
	lines, overlaps int
	firstOverlap    string
	// seen are the processes that have written, by token and role, and members who led with a token.
	seen    map[uint64]map[string]int
	members map[uint64]string
}

func newEnv(t *testing.T, group agentcluster.Group) *env {
	t.Helper()
	e := &env{
		t: t, file: filepath.Join(t.TempDir(), "file"), wrappers: map[string]*exec.Cmd{}, ended: map[string]chan struct{}{},
		seen: map[uint64]map[string]int{}, members: map[uint64]string{},
	}
	must.Succeed(t, os.WriteFile(e.file, nil, 0o600))
	group.Preemption = agentcluster.Preemption{Policy: "Never"}
	group.Application = agentcluster.Application{Session: "Required"}
	e.Cluster = agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: group})
	must.Succeed(t, e.Start())
	must.Succeed(t, e.AwaitConnected(testwait.Context(t)))
	return e
}

// command returns the command for a program beside an agent.
func (e *env) command(name string, arguments ...string) *exec.Cmd {
	e.t.Helper()
	log, err := os.OpenFile(e.file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(e.t, err)
	e.t.Cleanup(func() { log.Close() })
	arguments = append([]string{e.Agent(name).Binary(), "exec", "--group", "ledger"}, arguments...)
	// If the test is killed, so is the wrapper; the guard kills the program.
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if e.hideCgroups {
		attr.Unshareflags = syscall.CLONE_NEWNS
		arguments = append([]string{"sh", "-c", `mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"`}, arguments...)
	}
	c := exec.Command(arguments[0], arguments[1:]...)
	c.Env = append(os.Environ(), "CONCLAVE_AGENT=http://"+e.Agent(name).API, fileVariable+"="+e.file)
	if e.deaf {
		c.Env = append(c.Env, deafVariable+"=true")
	}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = attr
	return c
}

// startWrapper starts the wrapper beside an agent, which restarts its program.
func (e *env) startWrapper(name string) {
	e.t.Helper()
	c := e.command(name, "--restart", "--", "/proc/self/exe")
	program, err := os.Executable()
	must.Succeed(e.t, err)
	c.Args[len(c.Args)-1] = program
	c.Env = append(c.Env, roleVariable+"="+roleMain)
	must.Succeed(e.t, c.Start())
	ended := make(chan struct{})
	e.wrappers[name], e.ended[name] = c, ended
	go func() {
		defer close(ended)
		_ = c.Wait() // Tests kill it.
	}()
	e.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if e.t.Failed() && e.wrappers[name] == c {
			text, _ := os.ReadFile(e.file + ".log")
			e.t.Logf("---- end of the log of the wrappers\n%s", text[max(0, len(text)-3000):])
		}
	})
}

// read checks the new lines of the file. Lines are in the order of the writes.
func (e *env) read() error {
	file, err := os.Open(e.file)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	text := make([]byte, info.Size()-e.offset)
	if _, err := file.ReadAt(text, e.offset); err != nil && len(text) > 0 {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	e.offset += int64(len(text))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return fmt.Errorf("got line %q, want TOKEN MEMBER ROLE PID", line)
		}
		token, err := strconv.ParseUint(fields[0], 10, 64)
		pid, pidErr := strconv.Atoi(fields[3])
		if err := errors.Join(err, pidErr); err != nil {
			return err
		}
		e.lines++
		if token < e.highest {
			e.overlaps++
			if e.overlaps == 1 {
				e.firstOverlap = fmt.Sprintf("%s wrote with token %d after a write with token %d",
					strings.Join(fields[1:], " "), token, e.highest)
			}
		}
		e.highest = max(e.highest, token)
		if e.seen[token] == nil {
			e.seen[token] = map[string]int{}
		}
		e.seen[token][fields[2]], e.members[token] = pid, fields[1]
	}
	return nil
}

// awaitProgram waits until all processes of a program with a higher token have written. It returns the token.
func (e *env) awaitProgram(above uint64) (token uint64) {
	e.t.Helper()
	testwait.NoError(e.t, func() error {
		if err := e.read(); err != nil {
			return err
		}
		if e.highest <= above || len(e.seen[e.highest]) < len(roles) {
			return fmt.Errorf("no program with a token above %d, only %v with %d", above, e.seen[e.highest], e.highest)
		}
		return nil
	})
	return e.highest
}

// stepDown makes an agent hand over to any other one whose wrapper is ready.
func (e *env) stepDown(name string) {
	e.t.Helper()
	must.Succeed(e.t, agentcluster.Await(testwait.Context(e.t), func(ctx context.Context) error {
		_, err := e.StepDown(ctx, name, "")
		return err
	}))
}

// awaitWrites waits until a process has written again.
func (e *env) awaitWrites() {
	e.t.Helper()
	must.Succeed(e.t, e.read())
	before := e.lines
	testwait.NoError(e.t, func() error {
		if err := e.read(); err != nil || e.lines < before+len(roles) {
			return errors.Join(errors.New("no further lines"), err)
		}
		return nil
	})
}

// olderRun describes a process that runs with an outdated token, "" if there is none.
func (e *env) olderRun() string {
	for token, processes := range e.seen {
		for role, pid := range processes {
			if token < e.highest && runsWith(pid, token) {
				return fmt.Sprintf("the %s of %s, process %d, runs with token %d, although another program runs with %d",
					role, e.members[token], pid, token, e.highest)
			}
		}
	}
	return ""
}

// runsWith reports whether a process has this token, and hasn't ended.
func runsWith(pid int, token uint64) bool {
	environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // It is empty for a process that has ended.
	return bytes.Contains(environment, fmt.Appendf(nil, "CONCLAVE_TOKEN=%d\x00", token))
}

// guard returns the process ID of the guard beside an agent, or 0.
func (e *env) guard(name string) int {
	e.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.wrappers[name].Process.Pid))
	must.Succeed(e.t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // The thread may have ended.
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return pid
		}
	}
	return 0
}
