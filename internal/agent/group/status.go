package group

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

type snapshot struct {
	leader           Leader
	until            election.Tick
	suspicionTimeout election.Tick
	heldBack         int
	// penalty is that of this process.
	penalty office.Penalty
	// joined: this process votes, and the coordinator counts on it.
	joined     bool
	ineligible Ineligibility
}

func (g *Group) publish() {
	status := &g.record.Status
	s := snapshot{
		until: status.Until, suspicionTimeout: g.machine.SuspicionTimeoutInForce(), heldBack: g.machine.HeldBack(),
		penalty: g.machine.Penalty(), joined: g.machine.Joined(g.cfg.Clock.Now()), ineligible: g.ineligible(),
	}
	s.leader = Leader{
		Group: g.cfg.Group.Name, Self: g.cfg.Self, Coordinator: g.names.name(status.Coordinator), Term: uint64(status.Term),
		HandsOver: status.HandsOver,
	}
	if status.Coordinator != election.None {
		s.leader.Priority = uint32(g.roster.Priority(status.Coordinator))
	}
	if status.Token != 0 && !g.app.stopping {
		s.leader.Leading, s.leader.Token = true, uint64(status.Token)
	}
	var before snapshot
	if old := g.published.Load(); old != nil {
		before = *old
	}
	if before == s {
		return
	}
	g.ineligibilityChanged(before.ineligible, s.ineligible)
	if short := s.penalty.ShortTenures; short != before.penalty.ShortTenures {
		if short > 0 {
			g.cfg.Log.Warn("held back: eligible members come first", "shortTenures", short, "until", g.timeOf(s.penalty.Until))
		} else {
			g.cfg.Log.Info("no longer held back")
		}
	}
	changed := s // Only this copy escapes to the heap; usually nothing has changed.
	g.published.Store(&changed)
	if s.leader != before.leader {
		g.feed.append(s.leader)
	}
}

// unlessOutdated returns an answer of the goroutine of run. If the tenure has changed
// since, it returns the current state, without permission to act.
func (g *Group) unlessOutdated(leader Leader) Leader {
	if now := g.Leader(); now.Token != leader.Token {
		return now.following() // The tenure is over, or belongs to another session.
	}
	return leader
}

// Leader returns the current coordinator. It never blocks.
func (g *Group) Leader() Leader {
	s := g.published.Load()
	leader := s.leader
	if !leader.Leading || s.until == election.Never {
		return leader
	}
	remaining := g.cfg.Clock.Until(s.until)
	if remaining <= 0 { // The machine hasn't processed the end of the lease yet.
		leader.Leading, leader.Token, leader.Coordinator, leader.Priority = false, 0, "", 0
		return leader
	}
	millis := remaining.Milliseconds()
	leader.RemainingMillis = &millis
	return leader
}

// SuspicionTimeout returns after which silence the coordinator is suspected now. It never blocks.
func (g *Group) SuspicionTimeout() time.Duration {
	return time.Duration(g.published.Load().suspicionTimeout)
}

// Joined reports whether this process votes and a coordinator counts on it (see office.Machine).
func (g *Group) Joined() bool { return g.published.Load().joined }

// timeOf returns the time of a moment.
func (g *Group) timeOf(moment election.Tick) time.Time {
	return time.Now().Add(g.cfg.Clock.Until(moment)).UTC().Truncate(time.Second)
}

// Penalty returns until when this process is held back, and because of how many short tenures; 0 if it isn't. It never
// blocks.
func (g *Group) Penalty() (until time.Time, shortTenures int) {
	if p := g.published.Load().penalty; p.ShortTenures > 0 {
		until, shortTenures = g.timeOf(p.Until), p.ShortTenures
	}
	return until, shortTenures
}

// HeldBack returns the number of members to which this process would not hand over, because their
// tenures are short again and again. It never blocks.
func (g *Group) HeldBack() int { return g.published.Load().heldBack }

// Status returns the complete state of the group.
func (g *Group) Status(ctx context.Context) (Status, error) {
	var status Status
	err := g.call(ctx, func() {
		status = Status{
			Electing: g.record.Status.Electing, Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(),
			Version: g.list.Version, Timing: g.timingInForce(), IneligibleSince: g.ineligibleSince,
		}
		status.HeldBackUntil, status.ShortTenures = g.Penalty()
		for _, s := range g.app.sessions {
			session := control.SessionStatus{Leads: s == g.app.acting, OpenedAt: s.openedAt, RenewedAt: s.renewedAt}
			if !s.renewedAt.IsZero() {
				session.RenewedMillisAgo = new(time.Since(s.renewedAt).Milliseconds())
			}
			status.Sessions = append(status.Sessions, session)
		}
		addresses := map[string]string{}
		for _, m := range g.list.Members {
			addresses[m.Name] = m.Address
		}
		for _, row := range g.rows() {
			p := Process{Row: row, Address: addresses[row.Name]}
			if row.Name == g.cfg.Self {
				p.Ineligible = g.ineligible().String()
			}
			status.Processes = append(status.Processes, p)
		}
	})
	if err != nil {
		return Status{}, err // Not status: the function may still write to it.
	}
	status.Leader = g.Leader()
	return status, nil
}

// rows returns the process status table.
func (g *Group) rows() (rows []control.Row) {
	for _, row := range g.machine.Rows(nil) {
		name := g.names.name(row.ID)
		rows = append(rows, control.Row{
			Name: name, Priority: uint32(row.Priority), Status: row.Status.String(),
			Connected: name == g.cfg.Self || g.cfg.Transport.Connected(name),
		})
	}
	return rows
}

func (g *Group) timingInForce() *control.TimingInForce {
	timing := &g.cfg.Group.Timing
	t := &control.TimingInForce{
		HeartbeatMillis: timing.Heartbeat.Milliseconds(), SuspicionTimeoutMillis: timing.SuspicionTimeout.Milliseconds(),
	}
	if g.cfg.Group.Safety.Mode != office.Available {
		t.LeaseMillis = g.cfg.Group.Safety.Usual().Milliseconds()
	}
	return t
}

type reporter struct {
	last control.Report
	// dirty: something that summary doesn't include may have changed.
	dirty    bool
	summary  summary
	suspects election.IDs
}

// summary is the part of a report that changes often. Building a report is expensive, because the table may have a
// thousand rows. So it is built only if the summary or the suspects have changed.
type summary struct {
	status     election.Status // without the end of the tenure
	excluded   bool
	ineligible Ineligibility
	// roundTrip is why there is no coordinator, or 0.
	roundTrip, limit election.Tick
	penalty          office.Penalty
	pause            election.Tick // see Machine.Pause
	usedTerm         election.Term
}

func (g *Group) report() {
	r := &g.reporter
	if g.cfg.OnReport == nil {
		return
	}
	if g.refreshing.Load() && g.refreshing.Swap(false) {
		r.dirty = true
	}
	status := g.record.Status
	status.Until = 0
	roundTrip, limit := g.machine.SlowAnswers()
	now := summary{
		status, g.app.excluded, g.ineligible(), roundTrip, limit,
		g.machine.Penalty(), g.machine.Pause(), g.machine.UsedTerm(),
	}
	if now == r.summary && !r.dirty && slices.Equal(r.suspects, g.machine.Suspects()) {
		return
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
		Coordinator: g.names.name(now.status.Coordinator), Term: uint64(now.status.Term), UsedTerm: uint64(now.usedTerm),
		ElectedAt: g.observer.electedAt,
		Ended:     g.observer.last.report(g.names),
		Electing:  now.status.Electing, Eligible: now.ineligible == Eligible, Ineligible: now.ineligible.String(),
		IneligibleSince: g.ineligibleSince, Excluded: now.excluded,
		ShortTenures: now.penalty.ShortTenures, PenaltySeconds: int64(time.Duration(now.penalty.Length).Seconds()),
		PauseSeconds: int64(time.Duration(now.pause).Seconds()), Processes: g.rows(),
	}
	if now.roundTrip > 0 {
		report.TooSlow = &control.TooSlow{RoundTripMicros: time.Duration(
			now.roundTrip).Microseconds(), LimitMicros: time.Duration(now.limit).Microseconds()}
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
