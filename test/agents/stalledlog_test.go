package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
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

// TestStalledStderrBlocksNothing fills the pipe at the coordinator's stderr and makes it
// step down: it responds, its application is asked to stop, and another process takes
// over. The lost log lines are counted, and the log continues when the pipe is read.
func TestStalledStderrBlocksNothing(t *testing.T) {
	t.Parallel()
	ctx, agents := testContext(t), newCluster(t)
	from, fill := stallStderr(t, agents.Agent("c"))
	must.Succeed(t, agents.Start())
	must.Succeed(t, agents.AwaitConnected(ctx))
	coordinate(ctx, t, agents, "c")
	stop := holdSession(ctx, t, agents, "c")
	fill()
	if _, err := agents.StepDown(ctx, "c", "b"); err != nil {
		t.Fatalf("cannot step down: %v", err)
	}
	if successor := testwait.Receive(t, "the request to stop", stop); successor != "b" {
		t.Errorf("got successor %q, want b", successor)
	}
	if status, body := getAgent(ctx, t, agents, "c", "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: got %d %s, want 200", status, body)
	}
	// A file with many errors results in a long line. Several of them exceed the queue.
	version := uint32(1)
	testwait.Until(t, "a dropped line is counted", func() bool {
		version++
		err := agents.WriteConfig("c", func(f *agentcluster.File) {
			f.Groups[0].Version = version
			f.Groups[0].Members = slices.Repeat([]agentcluster.Member{{Name: strings.Repeat("X", 60), Address: "x"}}, 500)
		})
		must.Succeed(t, err)
		_, body := getAgent(ctx, t, agents, "c", "/metrics")
		return !strings.Contains(body, "\nconclave_log_lines_dropped_total 0\n")
	})
	read := make(chan error, 1)
	go func() { read <- readUntil(from, "dropped log lines") }()
	if err := testwait.Receive(t, "the line about dropped lines", read); err != nil {
		t.Error(err)
	}
}

// holdSession opens a session that confirms each request to stop. The channel receives the
// successor of the first one.
func holdSession(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, name string) <-chan string {
	t.Helper()
	stop, open := make(chan string, 1), make(chan struct{})
	session := ""
	go func() {
		err := agents.Session(ctx, name, func(e agentcluster.SessionEvent) {
			switch e.Kind {
			case "session":
				session = e.Session
				close(open)
			case "stop":
				select {
				case stop <- e.Successor:
				default: // It isn't the first one.
				}
				if err := agents.Stopped(ctx, name, session, e.Term); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil && ctx.Err() == nil {
			t.Log("session ended:", err)
		}
	}()
	testwait.Receive(t, "the session", open)
	return stop
}

// TestStalledStderrDoesNotDelayTheEnd ends an agent whose stderr is full: by a request, and
// by a signal for which the Go runtime prints a stack, as for a panic.
func TestStalledStderrDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGQUIT} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			ctx, agents := testContext(t), newCluster(t)
			agent := agents.Agent("c")
			_, fill := stallStderr(t, agent)
			must.Succeed(t, agents.Start())
			if _, err := agents.AwaitCoordinator(ctx); err != nil {
				t.Fatal(err)
			}
			fill()
			must.Succeed(t, agent.End(signal))
			must.Succeed(t, agent.AwaitEnd())
		})
	}
}

// TestStackIsPrinted: a crash of the agent leaves its stack on stderr.
func TestStackIsPrinted(t *testing.T) {
	t.Parallel()
	ctx, agents := testContext(t), newCluster(t)
	from, _ := stallStderr(t, agents.Agent("c"))
	must.Succeed(t, agents.Start())
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, agents.Agent("c").End(unix.SIGQUIT))
	read := make(chan error, 1)
	go func() { read <- readUntil(from, "goroutine ") }()
	if err := testwait.Receive(t, "the stack", read); err != nil {
		t.Error(err)
	}
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

// getAgent sends a request to an agent's local API.
func getAgent(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, name, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, testwait.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agents.Agent(name).API+path, http.NoBody)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(body)
}
