package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
)

// Journal returns the messages, events and grants of recent elections. The goroutine of run only copies them.
func (g *Group) Journal(ctx context.Context) (journal.Journal, error) {
	var (
		copied *journal.Ring
		result journal.Journal
		names  names
		now    election.Tick
	)
	err := g.call(ctx, func() {
		copied, names.byID, now = g.journal.Clone(), g.names.byID, g.cfg.Clock.Now()
		result = journal.Journal{
			Group: g.cfg.Group.Name, Agent: g.cfg.Self, Life: g.cfg.Life, At: time.Now(),
			Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(), Omitted: g.journal.Omitted(),
		}
		for _, m := range g.list.Members {
			result.Members = append(result.Members, journal.Member{Name: m.Name, Priority: m.Priority})
		}
	})
	if err != nil {
		return journal.Journal{}, err // Not result: the function may still write to it.
	}
	at := result.At
	result.Steps = copied.Steps(names.name, causeName, func(tick election.Tick) time.Time {
		return at.Add(-time.Duration(now - tick))
	})
	return result, nil
}

func (g *Group) startRecorder(c office.Config) (err error) {
	g.recorder, err = journal.CreateTrace(g.cfg.TraceFolder, journal.TraceHeader{
		Group: g.cfg.Group.Name, Agent: g.cfg.Self, Algorithm: g.cfg.Group.Algorithm, Origin: g.cfg.Clock.Origin(),
		Names: g.names.byID,
	}, c)
	return err
}

// record records a step, or new settings, if a trace is requested. A trace that can't be written doesn't stop the
// agent.
func (g *Group) record(in *election.Input, s *office.Settings, out *election.Output) {
	if err := g.recorder.Step(in, s, out, g.machine, g.names.byID); err != nil {
		g.cfg.Log.Error("stopped recording", "error", err)
	}
}
