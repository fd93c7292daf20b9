// Package examples runs each example against real agents, and takes the role
// from it in all the ways there are.
package examples

import (
	"bufio"
	"context"
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
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// soon is how long a test waits for what must happen.
const soon = 30 * time.Second

func TestMain(m *testing.M) { agentcluster.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestExamplesLead(t *testing.T) {
	for name, example := range map[string]struct {
		command func(*testing.T) string
		session string
	}{
		"go":      {compiled, "Required"},
		"python":  {script("python3", "python/worker.py"), "Required"},
		"session": {script("curl", "shell/session.sh"), "Required"},
		"guard":   {script("curl", "shell/guard.sh"), "Optional"},
	} {
		t.Run(name, func(t *testing.T) {
			command := example.command(t)
			stable := 0
			agents := agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
				Preemption:  &agentcluster.Preemption{Policy: "Never", StableSeconds: &stable},
				Application: &agentcluster.Application{Session: example.session},
			}})
			must(t, agents.Start())
			workers := map[string]*worker{}
			for _, name := range agents.Names() {
				workers[name] = work(t, command, agents.Agent(name).API)
			}

			first, token := leading(t, workers, 0)
			handOver(t, agents, first)
			second, token := leading(t, workers, token)
			stopped(t, workers[first], example.session)

			// An agent that stands still can't confirm that it leads, nor say that it doesn't.
			_, err := agents.Agent(second).Stop()
			must(t, err)
			third, token := leading(t, workers, token)
			stopped(t, workers[second], example.session)
			must(t, agents.Agent(second).Continue())

			if example.session != "Required" {
				return
			}
			must(t, workers[third].command.Process.Signal(syscall.SIGTERM))
			select {
			case <-workers[third].ended:
			case <-time.After(soon):
				t.Fatal("it doesn't end when it is told to")
			}
			if code := workers[third].command.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			leading(t, workers, token)
		})
	}
}

func compiled(t *testing.T) string {
	t.Helper()
	if err := program.DependOnProgram(t.Context(), "..", "./examples/go"); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "worker")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return binary
}

// script is one that needs a program. Without it, it isn't tested, except in CI.
func script(needs, path string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if _, err := exec.LookPath(needs); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("CI must not skip tests: %v", err)
			}
			t.Skip(err)
		}
		if err := program.DependOnFolder(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// worker is an example that runs until the test ends.
type worker struct {
	command *exec.Cmd
	ended   chan struct{}

	mu    sync.Mutex
	lines []string
}

func work(t *testing.T, command, api string) *worker {
	t.Helper()
	w := &worker{command: exec.CommandContext(t.Context(), command, "ledger"), ended: make(chan struct{})}
	w.command.Env = append(os.Environ(), "CONCLAVE_AGENT=http://"+api)
	// It ends with all that it started, as in a container.
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := w.command.StdoutPipe()
	must(t, err)
	w.command.Stderr = w.command.Stdout
	must(t, w.command.Start())
	go func() {
		defer close(w.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.mu.Lock()
			w.lines = append(w.lines, lines.Text())
			w.mu.Unlock()
		}
		_ = w.command.Wait() // How it ended is looked at where that matters.
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-w.command.Process.Pid, syscall.SIGKILL)
		<-w.ended
		if t.Failed() {
			t.Logf("%s at %s: %s", command, api, strings.Join(w.said(), "\n"))
		}
	})
	return w
}

func (w *worker) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}

var works = regexp.MustCompile(`^works with token (\d+)$`)

// token is the one that it worked with last, 0 if it hasn't.
func (w *worker) token(t *testing.T) (last uint64) {
	t.Helper()
	for _, line := range w.said() {
		if match := works.FindStringSubmatch(line); match != nil {
			token, err := strconv.ParseUint(match[1], 10, 64)
			must(t, err)
			last = token
		}
	}
	return last
}

// leading waits for a worker that works with a token above another.
func leading(t *testing.T, workers map[string]*worker, above uint64) (name string, token uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, agentcluster.Await(ctx, func(context.Context) error {
		for name = range workers {
			if token = workers[name].token(t); token > above {
				return nil
			}
		}
		return fmt.Errorf("nobody works with a token above %d", above)
	}))
	return name, token
}

// stopped checks that a worker whose tenure is over has said its last.
func stopped(t *testing.T, w *worker, session string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, agentcluster.Await(ctx, func(context.Context) error {
		if session == "Required" && !strings.Contains(strings.Join(w.said(), "\n"), "\nstops") {
			return fmt.Errorf("it didn't stop")
		}
		return nil
	}))
	worked := strings.Count(strings.Join(w.said(), "\n"), "works")
	time.Sleep(time.Second) // Five steps. That nothing happens can't be waited for.
	if went := strings.Count(strings.Join(w.said(), "\n"), "works"); went != worked {
		t.Fatalf("it went on: %d steps, then %d", worked, went)
	}
}

func handOver(t *testing.T, agents *agentcluster.Cluster, from string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, agentcluster.Await(ctx, func(ctx context.Context) error {
		_, err := agents.StepDown(ctx, from, "")
		return err
	}))
}

func TestAgentFile(t *testing.T) {
	if _, err := config.Load("agent.yaml"); err != nil {
		t.Fatal(err)
	}
}
