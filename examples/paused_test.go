package examples

import (
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// TestPausedExampleIsReplaced stops the process of an example, which keeps its session open.
// When it continues, it must not work any more.
func TestPausedExampleIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		command func(*testing.T) string
		mode    string
		// interval is that at which the example renews.
		interval time.Duration
	}{
		"go":           {buildGo, "Majority", lease / 4},
		"go, no lease": {buildGo, "Available", time.Second},
		"python":       {scriptCommand("python3", "python/worker.py"), "Strict", lease / 4},
	} {
		t.Run(name, func(t *testing.T) {
			command := c.command(t)
			stable := 0
			agents := agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
				Safety:      &agentcluster.Safety{Mode: c.mode, LeaseMillis: int(lease.Milliseconds())},
				Preemption:  &agentcluster.Preemption{Policy: "Never", StableSeconds: &stable},
				Application: &agentcluster.Application{Session: "Required"},
			}})
			must(t, agents.Start())
			workers := map[string]*worker{}
			for _, name := range agents.Names() {
				workers[name] = startWorker(t, command, agents.Agent(name))
			}
			first, token := awaitWorker(t, workers, 0)
			time.Sleep(3 * c.interval) // until it has renewed
			stopped := time.Now()
			signalWorker(t, workers[first], syscall.SIGSTOP)
			_, next := awaitWorker(t, workers, token)
			// Four intervals or a lease, and some time for the busy machine.
			if took, limit := time.Since(stopped), max(lease, 4*c.interval)+2*time.Second; took > limit {
				t.Errorf("another worker works after %s, want at most %s", took, limit)
			}
			signalWorker(t, workers[first], syscall.SIGCONT)
			checkStopped(t, workers[first], "Required")
			if last := workers[first].lastToken(t); last >= next {
				t.Errorf("the first worker works with token %d, although it was replaced with token %d", last, next)
			}
		})
	}
}

// lease is that of the groups in TestPausedExampleIsReplaced.
const lease = time.Second

// signalWorker sends a signal to a worker and its children.
func signalWorker(t *testing.T, w *worker, signal syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(-w.command.Process.Pid, signal))
}
