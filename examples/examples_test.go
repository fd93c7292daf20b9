// Package examples tests each example with real agents. It ends the example's tenure by a
// handover, by stopping its agent, and by stopping the example.
package examples

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestMain(m *testing.M) { agentcluster.Main(m) }

func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		command func(*testing.T) string
		session string
	}{
		"go":     {buildGo, "Required"},
		"python": {scriptCommand("python3", "python/worker.py"), "Required"},
		"exec":   {scriptCommand("sh", "shell/exec.sh"), "Required"},
		"guard":  {scriptCommand("curl", "shell/guard.sh"), "Optional"},
	} {
		t.Run(name, func(t *testing.T) {
			command := example.command(t)
			agents := agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
				Preemption:  agentcluster.Preemption{Policy: "Never", StableMillis: new(int32)},
				Application: agentcluster.Application{Session: example.session},
			}})
			must.Succeed(t, agents.Start())
			workers := map[string]*worker{}
			for _, name := range agents.Names() {
				workers[name] = startWorker(t, command, agents.Agent(name))
			}

			first, token := awaitWorker(t, workers, 0)
			handOver(t, agents, first)
			second, token := awaitWorker(t, workers, token)
			checkStopped(t, workers[first], example.session)

			// A stopped agent doesn't respond.
			_, err := agents.Agent(second).Stop()
			must.Succeed(t, err)
			third, token := awaitWorker(t, workers, token)
			checkStopped(t, workers[second], example.session)
			must.Succeed(t, agents.Agent(second).Continue())

			if example.session != "Required" {
				return
			}
			must.Succeed(t, workers[third].command.Process.Signal(syscall.SIGTERM))
			select {
			case <-workers[third].stopped:
			case <-time.After(testwait.Limit):
				t.Fatalf("the example hasn't stopped within %s after SIGTERM", testwait.Limit)
			}
			must.Equalf(t, workers[third].command.ProcessState.ExitCode(), 0, "exit code")
			awaitWorker(t, workers, token)
		})
	}
}

func buildGo(t *testing.T) string {
	t.Helper()
	must.Succeed(t, program.DependOnProgram(t.Context(), "..", "./examples/worker"))
	binary := filepath.Join(t.TempDir(), "worker")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"./worker").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return binary
}

// scriptCommand returns a script that requires another program. Without that program, the
// test is skipped, except in CI.
func scriptCommand(requires, path string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if _, err := exec.LookPath(requires); err != nil {
			need.Skip(t, requires)
		}
		must.Succeed(t, program.DependOnFolder(filepath.Dir(path)))
		must.Succeed(t, program.DependOnFolder("../clients/python"))
		return path
	}
}

// worker is a running example.
type worker struct {
	command *exec.Cmd
	stopped chan struct{}

	mu    sync.Mutex
	lines []string
}

func startWorker(t *testing.T, command string, agent *agentcluster.Agent) *worker {
	t.Helper()
	w := &worker{command: exec.CommandContext(t.Context(), command, "ledger"), stopped: make(chan struct{})}
	w.command.Env = append(os.Environ(), "CONCLAVE_AGENT=http://"+agent.API, "PYTHONDONTWRITEBYTECODE=1",
		"PATH="+filepath.Dir(agent.Binary())+":"+os.Getenv("PATH"))
	// A process group, so that the cleanup kills its children, too, as in a container.
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := w.command.StdoutPipe()
	must.Succeed(t, err)
	w.command.Stderr = w.command.Stdout
	must.Succeed(t, w.command.Start())
	go func() {
		defer close(w.stopped)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.mu.Lock()
			w.lines = append(w.lines, lines.Text())
			w.mu.Unlock()
		}
		_ = w.command.Wait() // Tests check the exit code where it matters.
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-w.command.Process.Pid, syscall.SIGKILL)
		<-w.stopped
		if t.Failed() {
			t.Logf("%s at %s: %s", command, agent.API, strings.Join(w.output(), "\n"))
		}
	})
	return w
}

func (w *worker) output() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}

var workLine = regexp.MustCompile(`^(?:ledger: )?works with token (\d+)$`)

// lastToken returns the token of the last step, or 0.
func (w *worker) lastToken(t *testing.T) (last uint64) {
	t.Helper()
	for _, line := range w.output() {
		if match := workLine.FindStringSubmatch(line); match != nil {
			token, err := strconv.ParseUint(match[1], 10, 64)
			must.Succeed(t, err)
			last = token
		}
	}
	return last
}

// awaitWorker waits for a worker that works with a higher token.
func awaitWorker(t *testing.T, workers map[string]*worker, above uint64) (name string, token uint64) {
	t.Helper()
	ctx := testwait.Context(t)
	must.Succeed(t, agentcluster.Await(ctx, func(context.Context) error {
		for name = range workers {
			if token = workers[name].lastToken(t); token > above {
				return nil
			}
		}
		return fmt.Errorf("no worker has a token above %d", above)
	}))
	return name, token
}

// checkStopped checks that a worker has stopped after its tenure.
func checkStopped(t *testing.T, w *worker, session string) {
	t.Helper()
	ctx := testwait.Context(t)
	must.Succeed(t, agentcluster.Await(ctx, func(context.Context) error {
		if session == "Required" && !strings.Contains(strings.Join(w.output(), "\n"), "stops") {
			return errors.New("the worker hasn't stopped")
		}
		return nil
	}))
	before := strings.Count(strings.Join(w.output(), "\n"), "works")
	time.Sleep(time.Second) // A worker that hasn't stopped executes five steps in this time.
	must.Equalf(t, strings.Count(strings.Join(w.output(), "\n"), "works"), before, "worker continued: steps")
}

func handOver(t *testing.T, agents *agentcluster.Cluster, from string) {
	t.Helper()
	ctx := testwait.Context(t)
	must.Succeed(t, agentcluster.Await(ctx, func(ctx context.Context) error {
		_, err := agents.StepDown(ctx, from, "")
		return err
	}))
}

func TestAgentConfigurationIsValid(t *testing.T) {
	if _, err := config.Load("agent.yaml"); err != nil {
		t.Fatal(err)
	}
}
