package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const (
	languageGo      = "go"
	languagePython  = "python"
	languageAsyncio = "asyncio"
	languageTS      = "typescript"
	languageExec    = "exec"
)

// interpreters are the programs that languages need.
var interpreters = map[string]string{
	languageGo: "", languageExec: "", languagePython: "python3", languageAsyncio: "python3", languageTS: "node",
}

// lane is a scenario in one language: drivers in a group of their own, beside the same agents as all other languages.
type lane struct {
	cluster         *agentcluster.Cluster
	language, group string
	// overlap: the scenario kills or stops what would have ended the function in time.
	overlap bool
	// exitLate: the clients exit if the function doesn't return in time.
	exitLate bool

	// failed: a step has failed, so the next ones don't wait.
	failed  bool
	folder  string
	output  *os.File // the pipe of all drivers
	drivers map[string]*running
	closers []func()

	mu sync.Mutex
	// log has the lines of all drivers, in order. read is where a wait for a line of a driver continues.
	log     []string
	changed chan struct{}
	read    map[string]int
	// leading has the process of each driver whose function runs, and highest is their highest token.
	leading map[string]int
	highest uint64
	broken  error
}

// running is the process of a driver.
type running struct {
	*exec.Cmd

	input io.WriteCloser
	ended chan struct{}
}

func newLane(t *testing.T, cluster *agentcluster.Cluster, language, group string) *lane {
	t.Helper()
	l := &lane{
		cluster: cluster.In(group), language: language, group: group, folder: t.TempDir(), drivers: map[string]*running{},
		changed: make(chan struct{}), read: map[string]int{}, leading: map[string]int{},
	}
	from, to, err := os.Pipe()
	must.Succeed(t, err)
	l.output = to
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(from); lines.Scan(); {
			l.add(lines.Text())
		}
	})
	t.Cleanup(func() {
		for name := range maps.Clone(l.drivers) {
			l.kill(name)
		}
		for _, closer := range l.closers {
			closer()
		}
		to.Close()
		reader.Wait()
		from.Close()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(l.folder, "stderr"))
			t.Logf("---- %s:\n%s\n%s", language, strings.Join(l.log, "\n"), text)
		}
	})
	return l
}

// add handles a line of a driver, and checks that functions don't run at the same time.
func (l *lane) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, line)
	name, event, _ := strings.Cut(line, " ")
	kind, value, _ := strings.Cut(event, " ")
	switch kind {
	case "lead":
		var token uint64
		process := 0
		_, err := fmt.Sscan(value, &token, &process)
		switch {
		case err != nil:
			l.broken = err
		case token <= l.highest:
			l.broken = fmt.Errorf("%s%s leads with token %d after %d", safety.Violated, name, token, l.highest)
		case !l.overlap:
			for other, former := range l.leading {
				if runs(former) {
					l.broken = fmt.Errorf("%s%s leads, although the function of %s hasn't returned", safety.Violated, name, other)
				}
			}
		}
		l.highest, l.leading[name] = token, process
	case "done":
		delete(l.leading, name)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// runs reports whether a process can still do something. One that is ending can't: its files are closed, but on a busy
// machine it may take long until it is a zombie.
func runs(process int) bool {
	const ending = 0x4 // PF_EXITING of Linux' include/linux/sched.h
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		return false
	}
	_, afterName, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(afterName)
	if len(fields) < 7 {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err != nil || fields[0] != "Z" && flags&ending == 0
}

// await waits until a driver writes a line that begins with these words, and returns its rest. It skips lines before
// it.
func (l *lane) await(name, words string) (string, error) {
	timeout := time.After(testwait.Limit)
	for {
		if l.failed {
			return "", nil // An earlier step has reported it.
		}
		l.mu.Lock()
		broken, changed := l.broken, l.changed
		for ; l.read[name] < len(l.log); l.read[name]++ {
			if rest, ok := strings.CutPrefix(l.log[l.read[name]], name+" "+words); ok && broken == nil {
				l.read[name]++
				l.mu.Unlock()
				return strings.TrimSpace(rest), nil
			}
		}
		l.mu.Unlock()
		if broken != nil {
			l.failed = true
			return "", broken
		}
		select {
		case <-changed:
		case <-timeout:
			l.failed = true
			return "", fmt.Errorf("no line %q of %s within %s", words, name, testwait.Limit)
		}
	}
}

// awaitAll waits for lines of a driver, one after the other.
func (l *lane) awaitAll(name string, lines ...string) error {
	for _, words := range lines {
		if _, err := l.await(name, words); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a driver has written a line that begins with these words.
func (l *lane) has(name, words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.log {
		if strings.HasPrefix(line, name+" "+words) {
			return true
		}
	}
	return false
}

// start starts a driver beside the agent of the same name, whose first letter counts, and lets it take part.
func (l *lane) start(names ...string) error {
	for _, name := range names {
		if err := l.launch(name, "http://"+l.cluster.Agent(name[:1]).API); err != nil {
			return err
		}
		if err := l.tell(name, "run"); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a driver that uses the agent at this address.
func (l *lane) launch(name, address string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	arguments := map[string][]string{
		languageGo: {self, name, l.group},
		languageExec: {
			l.cluster.Agent("a").Binary(), "exec", "--group", l.group,
			"--prepare", "echo " + name + " elected 9; sleep 99", "--", self,
		},
		languagePython:  {"python3", "-S", "testdata/driver.py", name, l.group},
		languageAsyncio: {"python3", "-S", "testdata/driver.py", name, l.group},
		languageTS:      {"node", "testdata/driver.mjs", name, l.group},
	}[l.language]
	stderr, err := os.OpenFile(filepath.Join(l.folder, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer stderr.Close()
	r := &running{Cmd: exec.Command(arguments[0], arguments[1:]...), ended: make(chan struct{})}
	r.Env = append(os.Environ(), driverVariable+"="+l.language, nameVariable+"="+name, "CONCLAVE_AGENT="+address,
		"PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1",
		fmt.Sprintf("ASYNCIO=%t", l.language == languageAsyncio),
		fmt.Sprintf("EXIT_LATE=%t", l.exitLate))
	r.Stdout, r.Stderr = l.output, stderr
	// If the test is killed, so is the driver.
	r.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if r.input, err = r.StdinPipe(); err != nil {
		return err
	}
	if err := r.Start(); err != nil {
		return err
	}
	go func() {
		defer close(r.ended)
		_ = r.Wait() // Scenarios check the status where it matters.
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drivers[name] = r
	return nil
}

// tell sends commands to a driver. For exec, run is implied, and quit is SIGTERM.
func (l *lane) tell(name string, commands ...string) error {
	r := l.drivers[name]
	for _, command := range commands {
		switch {
		case l.language == languageExec && command == "run":
		case l.language == languageExec && command == "quit":
			if err := r.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
		default:
			if _, err := fmt.Fprintln(r.input, command); err != nil {
				return err
			}
		}
	}
	return nil
}

// signal sends a signal to the driver, which for exec is the wrapper.
func (l *lane) signal(name string, s syscall.Signal) error { return l.drivers[name].Process.Signal(s) }

// kill kills a driver. Its function must then have ended before another one runs.
func (l *lane) kill(name string) {
	r := l.drivers[name]
	_ = r.Process.Kill() // It may have ended.
	<-r.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.drivers, name)
}

// poll calls check until it returns nil. All languages poll at the same time, so the interval is long.
func (l *lane) poll(check func(context.Context) error) error {
	if l.failed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Limit)
	defer cancel()
	var err error
	l.failed = !testwait.Within(testwait.Limit, 50*time.Millisecond, func() bool {
		err = check(ctx)
		return err == nil
	})
	return err
}

// awaitEnd waits until the process of a driver has ended, and returns its status.
func (l *lane) awaitEnd(name string) (int, error) {
	select {
	case <-l.drivers[name].ended:
		return l.drivers[name].ProcessState.ExitCode(), nil
	case <-time.After(testwait.Limit):
		return 0, fmt.Errorf("%s hasn't ended within %s", name, testwait.Limit)
	}
}

// scene is a scenario in all languages that it is for.
type scene struct {
	t     *testing.T
	lanes []*lane
	*agentcluster.Cluster
}

// each does a step in all languages at the same time.
func (s *scene) each(step func(l *lane) error) {
	s.t.Helper()
	failures := make([]error, len(s.lanes))
	var steps sync.WaitGroup
	for i, l := range s.lanes {
		steps.Go(func() {
			if err := step(l); err != nil {
				failures[i] = fmt.Errorf("%s: %w", l.language, err)
			}
		})
	}
	steps.Wait()
	must.Succeed(s.t, errors.Join(failures...))
}

// do does something to the agents.
func (s *scene) do(_ time.Time, err error) {
	s.t.Helper()
	must.Succeed(s.t, err)
}

// repaired waits until all agents are connected again.
func (s *scene) repaired(err error) {
	s.t.Helper()
	must.Succeed(s.t, err)
	must.Succeed(s.t, s.AwaitConnected(testwait.Context(s.t)))
}

// languages returns the languages for which this machine has the interpreters, and leaves the others out.
func languages(t *testing.T) (found []string) {
	t.Helper()
	must.Succeed(t, program.DependOnFolder("../../clients"))
	must.Succeed(t, program.DependOnFolder("testdata"))
	for _, language := range []string{languageGo, languagePython, languageAsyncio, languageTS, languageExec} {
		if interpreter := interpreters[language]; interpreter != "" {
			if _, err := exec.LookPath(interpreter); err != nil {
				t.Run(language, func(t *testing.T) { need.Skip(t, interpreter) })
				continue
			}
		}
		found = append(found, language)
	}
	return found
}
