package agents

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// stallStderr connects the agent's stderr to a pipe, which nobody reads. fill fills it.
func stallStderr(t *testing.T, agent *agentcluster.Agent) (from *os.File, fill func()) {
	t.Helper()
	from, to, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { from.Close(); to.Close() })
	agent.Stderr = to
	return from, func() {
		// Another open file of the same pipe: the agent's must remain a blocking one.
		path := fmt.Sprintf("/proc/self/fd/%d", to.Fd())
		full, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		must.Succeed(t, err)
		defer unix.Close(full)
		for err == nil {
			_, err = unix.Write(full, []byte("x"))
		}
		if !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
}

// TestStalledStderrDoesNotDelayTheEnd ends an agent whose stderr is full: by a request, and
// by a signal for which the Go runtime prints a stack, as for a panic.
func TestStalledStderrDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGQUIT} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			agents := newSteadyGroup(t)
			agent := agents.Agent("c")
			_, fill := stallStderr(t, agent)
			agents.start()
			agents.awaitCoordinator()
			fill()
			agents.check(agent.End(signal))
			agents.check(agent.AwaitEnd())
		})
	}
}

// TestStackIsPrinted: a crash of the agent leaves its stack on stderr.
func TestStackIsPrinted(t *testing.T) {
	t.Parallel()
	agents := newSteadyGroup(t)
	from, _ := stallStderr(t, agents.Agent("c"))
	agents.start()
	agents.awaitCoordinator()
	agents.check(agents.Agent("c").End(unix.SIGQUIT))
	read := make(chan error, 1)
	go func() { read <- readUntil(from, "goroutine ") }()
	expect.Succeed(t, testwait.Receive(t, "the stack", read))
}

// readUntil reads from a pipe until a text arrives.
func readUntil(from *os.File, text string) error {
	var all strings.Builder
	buffer := make([]byte, 64<<10)
	for !strings.Contains(all.String(), text) {
		n, err := from.Read(buffer)
		if err != nil {
			return fmt.Errorf("%w after %.1000q", err, all.String())
		}
		all.Write(buffer[:n])
	}
	return nil
}
