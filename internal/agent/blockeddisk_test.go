package agent

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestBlockedDiskDoesNotPreventHandover: a coordinator is terminated while a change of a
// group, and a task, wait for a disk that doesn't respond.
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
	if err := testwait.Receive(t, "the end of the process", ended); err != nil {
		t.Error(err)
	}
	delete(agents, "c")
	awaitCoordinator(t, agents, "b")
}
