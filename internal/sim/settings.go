package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// timings are the leases of a schedule that changes settings while processes run, and the
// factors for their heartbeats and suspicion timeouts.
var timings = [...]struct{ lease, factor election.Tick }{{lease, 1}, {longLease, 1}, {longLease, 3}}

func (s *simulation) officeSettings(p *process) office.Settings {
	factor, timing := max(p.factor, 1), &s.schedule.timing
	// Most schedules are too short for penalties of minutes.
	longTenure := lease
	if s.schedule.lasting() {
		longTenure = minute
	}
	return office.Settings{
		Mode: p.mode, Lease: p.lease.current, Heartbeat: factor * timing.heartbeat,
		SuspicionTimeout: factor * timing.suspicion, Stagger: timing.stagger,
		Policy: p.policy, StablePeriod: timing.stable, DrainTimeout: timing.drain, LongTenure: longTenure,
	}
}

// addSettingsChanges adds changes of the settings of processes while they run, before the time at.
func (sch *schedule) addSettingsChanges(s *simulation, at election.Tick) {
	if sch.faults&Settings == 0 {
		return
	}
	r := &s.rng2
	choices := len(timings)
	if r.percent(50) {
		choices-- // other leases alone
	} else {
		s.checker.electionCause = true // heartbeats that are rare for some, and late for others
	}
	for range r.between(1, 2*s.size) {
		sch.push(s, action{
			at: r.tick(at), kind: actChangeSettings, target: election.ID(r.below(s.size + 1)), timing: uint8(r.below(choices)),
		})
	}
}

// changeSettings gives a process other settings. One that is down or paused finds them when it starts the next time.
func (s *simulation) changeSettings(id election.ID, a action) {
	t := timings[a.timing]
	s.reportFault(outageSettings, id, "gets a lease of %d and a heartbeat of %d", t.lease,
		t.factor*s.schedule.timing.heartbeat)
	s.setTiming(id, t.lease, t.factor)
}

// finishSettingsChange gives a process the settings that all have when all faults end. One
// that is still paused keeps its own until it starts again: the others must cope with them.
func (s *simulation) finishSettingsChange(id election.ID) {
	if s.schedule.faults&Settings != 0 {
		s.setTiming(id, s.schedule.leaseAfter, 1)
	}
}

func (s *simulation) setTiming(id election.ID, lease, factor election.Tick) {
	p := &s.processes[id]
	p.lease.next, p.factor = lease, factor
	if !p.up || p.pausedUntil > s.queue.now {
		return
	}
	now := p.clock.local(s.queue.now)
	p.lease.change(lease, now)
	if err := p.machine.Reconfigure(s.officeSettings(p), now); err != nil {
		s.checker.fail("setup", err.Error())
		return
	}
	if s.onSettings != nil {
		s.onSettings(id, s.officeSettings(p))
	}
	s.setTimer(id)
}

// change changes the lease of a running process: its grants for the previous one may be in force for that time.
func (t *leaseState) change(lease, now election.Tick) {
	if now >= t.longestUntil {
		t.longest = t.current
	}
	t.current = lease
	t.longest = max(t.longest, lease)
	t.longestUntil = now + t.longest
}

// timing are the settings of time that all processes of a schedule have, besides their leases.
type timing struct{ heartbeat, suspicion, stagger, stable, drain election.Tick }

var (
	tightTiming = timing{heartbeat, suspicionTimeout, stagger, 24, 12}
	// defaultTiming has the proportions of the defaults of a group: heartbeats of 100 ms, a suspicion timeout of 400 ms, a
	// stagger of 50 ms, and 5 s for the stable period and the drain, with a lease of 500 ms.
	defaultTiming = timing{lease / 5, lease * 4 / 5, lease / 10, 10 * lease, 10 * lease}
)

// usualLeases are the leases that processes request while nothing is late, in quarters of the longest one.
var usualLeases = [...]election.Tick{1, 2, 2, 4}

// drawGrowth draws the usual lease of an incarnation. So a coordinator and its members may have different ones, as
// while a group changes its settings. The calm periods are short, so that leases grow and shrink often.
func (sch *schedule) drawGrowth(s *simulation, c *office.Config) {
	if sch.faults&Grow == 0 {
		return
	}
	if usual := usualLeases[s.rng3.below(len(usualLeases))] * c.Lease / 4; usual > 2*c.Heartbeat {
		c.UsualLease, c.CalmPeriod = usual, heartbeat
	}
}
