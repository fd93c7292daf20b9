package group

import (
	"github.com/conclave-dev/conclave/internal/agent/trace"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// startRecorder starts to record the machine with this configuration.
func (g *Group) startRecorder(c office.Config) (err error) {
	g.recorder, err = trace.Create(g.cfg.TraceFolder, &trace.Start{
		Group: g.cfg.Group.Name, Agent: g.cfg.Self, Algorithm: g.cfg.Group.Algorithm, Origin: g.cfg.Clock.Origin(), Config: c,
	}, g.names.byID)
	return err
}

// record records a step. A trace that can't be written doesn't stop the agent.
func (g *Group) record(in *election.Input, out election.Output) {
	if err := g.recorder.Step(in, &out, g.machine, g.names.byID); err != nil {
		g.cfg.Log.Error("stopped recording", "error", err)
	}
}

// recordSettings records new settings. A trace that can't be written doesn't stop the agent.
func (g *Group) recordSettings(s office.Settings, now election.Tick) {
	if g.recorder == nil {
		return
	}
	if err := g.recorder.Reconfigure(s, now, g.machine); err != nil {
		g.cfg.Log.Error("stopped recording", "error", err)
	}
}

func (g *Group) closeRecorder() {
	if g.recorder != nil {
		g.recorder.Close()
	}
}
