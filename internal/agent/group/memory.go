package group

import (
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// remembered returns what earlier incarnations granted, nil if that is unknown.
func (g *Group) remembered() *grants.Memory {
	r := g.cfg.Remembered
	if r == nil {
		return nil
	}
	m := r.Shifted(-election.Tick(g.cfg.Clock.Origin()))
	if r.Holder != "" { // It need not be on the list any more.
		m.Holder.ID = g.names.add(r.Holder)
	}
	return &m
}

// storeMemory stores what the machine has to remember, if that has changed. It is called
// after each step, before anything happens that relies on the step.
func (g *Group) storeMemory() {
	m := g.machine.Memory()
	if m == g.stored {
		return
	}
	g.stored = m
	record := memory.Record{Memory: m.Shifted(election.Tick(g.cfg.Clock.Origin())), Holder: g.names.name(m.Holder.ID)}
	if err := g.cfg.Memory.Save(&record); err != nil {
		g.cfg.Log.Error("cannot remember grants any more: after a restart, this agent waits for the lease", "error", err)
	}
}
