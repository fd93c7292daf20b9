package agent

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// noGroups is the local API of an agent that hasn't started.
type noGroups struct{}

func (noGroups) Names() []string                  { return nil }
func (noGroups) Find(string) (api.Group, bool)    { return nil, false }
func (noGroups) Expects(string) bool              { return false }
func (noGroups) Problems() (own, others []string) { return nil, nil }

// TestProcessEndsIfLocalAPIFailsDuringStart: the process doesn't wait for a certificate,
// for example, if the application cannot reach it.
func TestProcessEndsIfLocalAPIFailsDuringStart(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	local.Close()
	prepared := make(chan struct{})
	p := &Process{
		LocalAPI: local, Groups: noGroups{}, Log: slog.New(slog.DiscardHandler),
		Prepare: func(ctx context.Context) {
			<-ctx.Done()
			close(prepared)
		},
		Start: func(ctx context.Context) (*Started, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("got no error")
		}
	case <-time.After(testwait.Limit):
		t.Fatal("timed out waiting for the process to end")
	}
	select {
	case <-prepared:
	default:
		t.Error("Run returned before Prepare ended")
	}
}
