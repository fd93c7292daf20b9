package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/journal"
	"github.com/conclave-dev/conclave/internal/election"
	protocol "github.com/conclave-dev/conclave/internal/protocol/journal"
)

// Journal returns the messages, events and grants of recent elections. The goroutine of run
// only copies them.
func (g *Group) Journal(ctx context.Context) (protocol.Journal, error) {
	var (
		copied *journal.Ring
		result protocol.Journal
		names  names
		now    election.Tick
	)
	err := g.call(ctx, func() {
		copied, names.byID, now = g.journal.Clone(), g.names.byID, g.cfg.Clock.Now()
		result = protocol.Journal{
			Group: g.cfg.Group.Name, Agent: g.cfg.Self, Life: g.cfg.Life, At: time.Now(),
			Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(), Omitted: g.journal.Omitted(),
		}
		for _, m := range g.list.Members {
			result.Members = append(result.Members, protocol.Member{Name: m.Name, Priority: m.Priority})
		}
	})
	if err != nil {
		return protocol.Journal{}, err // Not result: the function may still write to it.
	}
	at := result.At
	result.Steps = copied.Steps(names.name, causeName, func(tick election.Tick) time.Time { return at.Add(-time.Duration(now - tick)) })
	return result, nil
}
