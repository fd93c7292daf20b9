package group

import (
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

type reporter struct {
	last control.Report
	// dirty: something that summary doesn't include may have changed.
	dirty    bool
	summary  summary
	suspects election.IDs
	// electedAt is when this agent first recognized the coordinator in this term.
	electedAt time.Time
}

// summary is the part of a report that changes often. Building a report is expensive,
// because the table may have a thousand rows. So it is built only if the summary or
// the suspects have changed.
type summary struct {
	coordinator        election.ID
	term               election.Term
	electing, excluded bool
	ineligible         Ineligibility
	// roundTrip is why there is no coordinator, or 0, and heldBack the number of members that are held back.
	roundTrip, limit election.Tick
	heldBack         int
	pause            election.Tick // see Machine.Pause
}

func (g *Group) report() {
	r := &g.reporter
	if g.cfg.OnReport == nil {
		return
	}
	if g.refreshing.Load() && g.refreshing.Swap(false) {
		r.dirty = true
	}
	status := g.machine.Status()
	roundTrip, limit := g.machine.SlowAnswers()
	now := summary{
		status.Coordinator, status.Term, status.Electing, g.app.excluded, g.ineligible(), roundTrip, limit, g.machine.HeldBack(), g.machine.Pause(),
	}
	if now == r.summary && !r.dirty && slices.Equal(r.suspects, g.machine.Suspects()) {
		return
	}
	if now.coordinator != r.summary.coordinator || now.term != r.summary.term {
		r.electedAt = time.Time{}
		if now.coordinator != election.None {
			r.electedAt = time.Now()
		}
	}
	r.summary, r.dirty = now, false
	r.suspects = append(r.suspects[:0], g.machine.Suspects()...)
	next := g.buildReport(now)
	next.ChangedAt = r.last.ChangedAt
	if reflect.DeepEqual(next, r.last) {
		return
	}
	next.ChangedAt = time.Now()
	r.last = next
	g.cfg.OnReport(next)
}

// buildReport builds a report, without ChangedAt.
func (g *Group) buildReport(now summary) control.Report {
	group := &g.cfg.Group
	report := control.Report{
		Group: group.Name, Pod: g.cfg.Self, UID: group.UID, Generation: group.Generation, Revision: group.Revision,
		Version: g.list.Version, Digest: strconv.FormatUint(g.listDigest, 16),
		Coordinator: g.names.name(now.coordinator), Term: uint64(now.term), ElectedAt: g.reporter.electedAt,
		Ended:    g.observer.endings.last.report(g.names),
		Electing: now.electing, Eligible: now.ineligible == Eligible, Ineligible: now.ineligible.String(),
		IneligibleSince: g.ineligibleSince, Excluded: now.excluded,
		PauseSeconds: int64(time.Duration(now.pause).Seconds()),
	}
	if now.roundTrip > 0 {
		report.TooSlow = &control.TooSlow{RoundTripMicros: time.Duration(now.roundTrip).Microseconds(), LimitMicros: time.Duration(now.limit).Microseconds()}
	}
	for _, row := range g.machine.Rows(nil) {
		name := g.names.name(row.ID)
		penalty := g.machine.Penalty(row.ID)
		report.Processes = append(report.Processes, control.Row{
			ShortTenures: penalty.ShortTenures, PenaltySeconds: int64(time.Duration(penalty.Length).Seconds()), Name: name, Priority: uint32(row.Priority), Status: row.Status.String(),
			Connected: name == g.cfg.Self || g.cfg.Transport.Connected(name),
		})
	}
	if g.cfg.Problems != nil {
		report.Problems = g.cfg.Problems()
	}
	return report
}

// Refresh handles changes of connections or problems: it causes a new report, and the
// recovery if that waited for a connection.
func (g *Group) Refresh() {
	g.refreshing.Store(true)
	_ = g.tryEnqueue(func() {}) // If the inbox is full, the goroutine of run is going to continue anyway.
}
