package agent

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	protocol "github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestBlockedDiskDoesNotPreventHandover: a coordinator is terminated while a change of a
// group, and a task, wait for a disk that doesn't respond. The others learn that it was stopped.
func TestBlockedDiskDoesNotPreventHandover(t *testing.T) {
	agents := startAgents(t, 3, office.Majority, "StatusTable")
	awaitCoordinator(t, agents, "c")
	c := agents["c"]
	c.applying.RLock() // As ApplyGroup does while it stores a list.
	defer c.applying.RUnlock()
	local, err := ListenLocalAPI(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	unblock := make(chan struct{})
	defer close(unblock)
	process := &Process{
		LocalAPI: local, Groups: c.Local(), Metrics: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
		Start: func(context.Context) (*Started, error) {
			return &Started{Agent: c, Tasks: []func(context.Context){func(context.Context) { <-unblock }}}, nil
		},
	}
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	terminate()
	expect.Succeed(t, testwait.Receive(t, "the end of the process", ended))
	delete(agents, "c")
	awaitCoordinator(t, agents, "b")
	ledger, _ := agents["b"].Find("ledger")
	journal, err := ledger.Journal(t.Context())
	must.Succeed(t, err)
	if !slices.ContainsFunc(journal.Steps, func(s protocol.Step) bool { return s.Cause == string(control.EndStopped) }) {
		t.Errorf("got journal %+v, want a step with the cause %s", journal.Steps, control.EndStopped)
	}
}
