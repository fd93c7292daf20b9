package singleton

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// running is a run of conclave-agent exec with a shell script.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	output string
	ended  chan struct{}
}

// single starts an agent that is the only member of its group.
func single(t *testing.T, timing agentcluster.Timing) *env {
	t.Helper()
	e := &env{t: t, file: filepath.Join(t.TempDir(), "file")}
	e.Cluster = agentcluster.Start(t, agentcluster.Options{Agents: 1, Group: agentcluster.Group{
		Timing: timing, Application: agentcluster.Application{Session: "Required"},
	}})
	must.Succeed(t, e.Start())
	must.Succeed(t, e.AwaitConnected(testwait.Context(t)))
	return e
}

// run starts exec with arguments. prepare may change the command.
func (e *env) run(prepare func(*exec.Cmd), arguments ...string) *running {
	e.t.Helper()
	r := &running{t: e.t, output: filepath.Join(e.t.TempDir(), "output"), ended: make(chan struct{})}
	output, err := os.Create(r.output)
	must.Succeed(e.t, err)
	defer output.Close()
	r.cmd = e.command("a", arguments...)
	r.cmd.Stdout, r.cmd.Stderr = output, output
	if prepare != nil {
		prepare(r.cmd)
	}
	must.Succeed(e.t, r.cmd.Start())
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // The status counts.
	}()
	e.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if e.t.Failed() {
			e.t.Logf("output: %s", r.text())
		}
	})
	return r
}

func (r *running) text() string {
	text := must.ReadFile(r.t, r.output)
	return string(text)
}

func (r *running) awaitOutput(want string) {
	r.t.Helper()
	testwait.Until(r.t, fmt.Sprintf("the output contains %q", want),
		func() bool { return strings.Contains(r.text(), want) })
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	must.Succeed(r.t, r.cmd.Process.Signal(s))
}

// checkEnd waits for the end, and compares the exit status.
func (r *running) checkEnd(want int) {
	r.t.Helper()
	testwait.Receive(r.t, "the end of exec", r.ended)
	expect.Equalf(r.t, r.cmd.ProcessState.ExitCode(), want, "exit status")
}

func TestStatusOfTheProgram(t *testing.T) {
	e := single(t, agentcluster.Timing{})
	for script, want := range map[string]int{
		"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9, "kill -STOP $$": 128 + 19, "kill -TERM $$": 128 + 15,
	} {
		t.Run(script, func(t *testing.T) {
			e.t = t
			e.run(nil, "--", "sh", "-c", script).checkEnd(want)
		})
	}
}

func TestEnvironmentAndSignals(t *testing.T) {
	e := single(t, agentcluster.Timing{})
	// Otherwise the program ignores it where nohup runs the tests.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGHUP)
	defer signal.Stop(ended)
	r := e.run(nil, "--", "sh", "-c",
		`for s in HUP USR1 USR2 INT; do trap "echo got $s" $s; done; trap 'echo got TERM; exit 3' TERM
		echo "started as $CONCLAVE_MEMBER of $CONCLAVE_GROUP with $CONCLAVE_TOKEN in $CONCLAVE_TERM"
		while :; do sleep 0.02; done`)
	r.awaitOutput("started")
	leader, err := e.Leader(testwait.Context(t), "a")
	must.Succeed(t, err)
	r.awaitOutput(fmt.Sprintf("started as a of ledger with %d in %d\n", leader.Token, leader.Term))
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGINT, syscall.SIGTERM} {
		r.signal(s)
		r.awaitOutput("got " + strings.TrimPrefix(unix.SignalName(s), "SIG"))
	}
	r.checkEnd(3)
}

// TestWaitsForTheAgent: exec waits as long as there is no agent, and ends at a signal.
func TestWaitsForTheAgent(t *testing.T) {
	e := single(t, agentcluster.Timing{})
	_, err := e.Agent("a").Kill()
	must.Succeed(t, err)
	must.Succeed(t, e.Agent("a").AwaitEnd())
	waits := e.run(nil, "--", "echo", "hello")
	waits.awaitOutput("no session with agent")
	ends := e.run(nil, "--", "echo", "hello")
	ends.awaitOutput("no session with agent")
	ends.signal(syscall.SIGTERM)
	ends.checkEnd(0)
	must.Succeed(t, e.Agent("a").Start())
	waits.awaitOutput("hello")
	waits.checkEnd(0)
}

func TestRefusals(t *testing.T) {
	e := single(t, agentcluster.Timing{DrainMillis: new(int32(200))})
	notExecutable := filepath.Join(t.TempDir(), "program")
	must.Succeed(t, os.WriteFile(notExecutable, nil, 0o600))
	for name, c := range map[string]struct {
		arguments []string
		status    int
		want      string
	}{
		"no command": {
			nil, 2, "error: exec requires a command, as in: conclave-agent exec --group ledger -- COMMAND ARGUMENT...",
		},
		"no group": {
			[]string{"--group", "", "--", "true"},
			2,
			"error: exec requires --group, the name of the group whose coordinator runs the command",
		},
		"another group": {
			[]string{"--group", "x", "--", "true"},
			1,
			`error: cannot join group x: the agent responded with status 404: group ` +
				`"x" not found: GET /v1/groups lists the groups of this agent`,
		},
		"not found": {
			[]string{"--", "/none/x"}, 127, "error: exec: \"/none/x\": stat /none/x: no such file or directory",
		},
		"not executable": {[]string{"--", notExecutable}, 126, "error: exec: \"" + notExecutable + "\": permission denied"},
		"too little time": {
			[]string{"--", "true"},
			1,
			"error: the group's drainMillis must be at least leaseMillis for this command, got 200 and 500",
		},
		"unknown flag": {
			[]string{"--unknown"}, 2, "error: unknown flag: --unknown; for the flags, run: conclave-agent exec --help",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			r := e.run(nil, c.arguments...)
			r.checkEnd(c.status)
			expect.Equalf(t, r.text(), c.want+"\n", "text")
		})
	}
}

// TestHandOverWaitsForTheProgram: the office is handed over when everything has ended, although the program ignores
// SIGTERM.
func TestHandOverWaitsForTheProgram(t *testing.T) {
	const drain = 1500 * time.Millisecond
	e := newEnv(t, agentcluster.Group{Timing: agentcluster.Timing{DrainMillis: new(int32(drain.Milliseconds()))}})
	e.deaf = true
	for _, name := range e.Names() {
		e.startWrapper(name)
	}
	token := e.awaitProgram(0)
	leader := e.members[token]
	start := time.Now()
	e.stepDown(leader)
	expect.AtLeastf(t, time.Since(start), drain/2, "time until it handed over, after the program")
	e.awaitProgram(token)
	if older := e.olderRun(); (older != "" || e.overlaps > 0) && len(e.lateKills()) == 0 {
		t.Error(safety.Violated, older, e.firstOverlap)
	}
}

// TestAgentHangsDuringHandOver: the lease then ends before the drain timeout.
func TestAgentHangsDuringHandOver(t *testing.T) {
	e := newEnv(t, agentcluster.Group{Timing: agentcluster.Timing{DrainMillis: new(int32(30_000))}})
	e.deaf = true
	for _, name := range e.Names() {
		e.startWrapper(name)
	}
	token := e.awaitProgram(0)
	leader := e.members[token]
	ctx, cancel := context.WithCancel(testwait.Context(t))
	requested := make(chan struct{})
	go func() {
		defer close(requested)
		_, _ = e.StepDown(ctx, leader, "") // It doesn't succeed: the agent hangs.
	}()
	testwait.NoError(t, func() error {
		state, err := e.Leader(ctx, leader)
		if err == nil && state.Leading {
			err = errors.New("the hand-over hasn't begun")
		}
		return err
	})
	_, err := e.Agent(leader).Stop()
	must.Succeed(t, err)
	e.awaitProgram(token)
	if older := e.olderRun(); (older != "" || e.overlaps > 0) && len(e.lateKills()) == 0 {
		t.Error(safety.Violated, older, e.firstOverlap)
	}
	cancel()
	<-requested
}

// TestDaemonsThatMultiplyAreKilled: a program starts daemons faster than a list of its processes can be read.
func TestDaemonsThatMultiplyAreKilled(t *testing.T) {
	for name, hide := range map[string]bool{"with cgroups, if possible": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			if hide {
				agentcluster.NeedPartitions(t) // It needs the same rights.
			}
			e := single(t, agentcluster.Timing{DrainMillis: new(int32(1000))})
			e.hideCgroups = hide
			marker := fmt.Sprintf("1000.%d", time.Now().UnixNano())
			r := e.run(nil, "--", "sh", "-c", "trap '' TERM; while :; do (setsid sleep "+marker+" &); done")
			count := func() int { return len(processes(t, marker)) }
			testwait.Until(t, "there are many daemons", func() bool { return count() > 100 })
			r.signal(syscall.SIGTERM)
			r.checkEnd(128 + 9)
			expect.AtMostf(t, count(), 0, "daemons that are left")
		})
	}
}

// processes returns the processes with a text in their command lines.
func processes(t *testing.T, text string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Succeed(t, err)
	for _, path := range paths {
		line, _ := os.ReadFile(path) // It may have ended.
		if strings.Contains(string(line), text) {
			found = append(found, path)
		}
	}
	return found
}

// TestFirstProcessOfAContainer: it must reap orphans, and the kernel doesn't end it by signals that it doesn't handle.
func TestFirstProcessOfAContainer(t *testing.T) {
	need.Root(t, "creates a PID namespace")
	e := single(t, agentcluster.Timing{})
	r := e.run(func(c *exec.Cmd) {
		c.SysProcAttr.Cloneflags, c.SysProcAttr.Unshareflags = syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, 0
		c.Args = append([]string{"sh", "-c", `mount -t proc none /proc && exec "$0" "$@"`}, c.Args...)
		path, err := exec.LookPath("sh")
		must.Succeed(t, err)
		c.Path = path
	}, "--", "sh", "-c", `
		for i in 1 2 3 4 5; do (setsid true &); done
		setsid sh -c '(sleep 1000 &) ; exit'
		sleep 0.3
		echo "zombies: $(cat /proc/[0-9]*/stat | grep -c ' Z ')"
		trap 'exit 4' TERM
		while :; do sleep 0.02; done`)
	r.awaitOutput("zombies: 0")
	r.signal(syscall.SIGTERM)
	r.checkEnd(4)
}

// TestTerminal: Ctrl-C is for the program only, which is in the foreground, and the terminal is returned.
func TestTerminal(t *testing.T) {
	e := single(t, agentcluster.Timing{})
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Succeed(t, err)
	defer terminal.Close()
	raw, err := terminal.SyscallConn()
	must.Succeed(t, err)
	var number int
	must.Succeed(t, errors.Join(raw.Control(func(fd uintptr) {
		err = errors.Join(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		if err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}), err))
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must.Succeed(t, err)
	defer other.Close()
	r := e.run(func(c *exec.Cmd) {
		c.Stdin = other
		c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	}, "--", "sh", "-c", `trap 'echo got INT; count=$((count+1))' INT; echo ready; while read -r line; do echo "read `+
		`$line"; done; echo "count $count"; exit 6`)
	r.awaitOutput("ready")
	_, err = terminal.WriteString("hello\n")
	must.Succeed(t, err)
	r.awaitOutput("read hello")
	_, err = terminal.WriteString("\x03")
	must.Succeed(t, err)
	r.awaitOutput("got INT")
	_, err = terminal.WriteString("\x04")
	must.Succeed(t, err)
	r.awaitOutput("count 1")
	r.checkEnd(6)
}
