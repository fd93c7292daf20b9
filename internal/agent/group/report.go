package group

import (
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// reporter notices what is new for whoever wants to know all that the group does.
type reporter struct {
	told control.Report
	// stale: what was told has changed otherwise than a glance can tell.
	stale  bool
	glance glance
	// suspects are those of the last glance.
	suspects election.IDs
	// electedAt is when the coordinator was first known.
	electedAt time.Time
}

// glance is what changes from one step to the next. Steps are many, and a table
// may have a thousand rows: it is only made when something in it has changed.
type glance struct {
	coordinator                  election.ID
	term                         election.Term
	electing, standing, withheld bool
}

// report tells what is new since the last time.
func (g *Group) report() {
	r := &g.reporter
	if g.cfg.OnReport == nil {
		return
	}
	status := g.machine.Status()
	now := glance{status.Coordinator, status.Term, status.Electing, g.app.standing && g.machine.Eligible(), g.app.withheld}
	if now == r.glance && !r.stale && slices.Equal(r.suspects, g.machine.Suspects()) {
		return
	}
	if now.coordinator != r.glance.coordinator || now.term != r.glance.term {
		r.electedAt = time.Time{}
		if now.coordinator != election.None {
			r.electedAt = time.Now()
		}
	}
	r.glance, r.stale = now, false
	r.suspects = append(r.suspects[:0], g.machine.Suspects()...)
	next := g.describe(now)
	next.ChangedAt = r.told.ChangedAt
	if reflect.DeepEqual(next, r.told) {
		return
	}
	next.ChangedAt = time.Now()
	r.told = next
	g.cfg.OnReport(next)
}

// describe is all but when it has changed.
func (g *Group) describe(now glance) control.Report {
	of := &g.cfg.Group
	report := control.Report{
		Group: of.Name, Pod: g.cfg.Self, UID: of.UID, Generation: of.Generation, Revision: of.Revision,
		Version: g.list.Version, Digest: strconv.FormatUint(g.digest, 16),
		Coordinator: g.names.of(now.coordinator), Term: uint64(now.term), ElectedAt: g.reporter.electedAt,
		Electing: now.electing, Eligible: now.standing, Excluded: now.withheld,
	}
	for _, row := range g.machine.Rows(nil) {
		name := g.names.of(row.ID)
		report.Processes = append(report.Processes, control.Row{
			Name: name, Priority: uint32(row.Priority), Status: row.Status.String(),
			Connected: name == g.cfg.Self || g.cfg.Transport.Connected(name),
		})
	}
	if g.cfg.Problems != nil {
		report.Problems = g.cfg.Problems()
	}
	return report
}

// Refresh says that something has changed that a report is about: who is connected,
// or what is wrong.
func (g *Group) Refresh() {
	_ = g.do(func() { g.reporter.stale = true }) // Of a group that was left, nothing is reported.
}
