package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// timings are the leases of a schedule that changes settings while processes run, and the
// factors for their heartbeats and suspicion timeouts.
var timings = [...]struct{ lease, factor election.Tick }{{lease, 1}, {longLease, 1}, {longLease, 3}}

// officeSettings returns the settings of a process.
func (s *simulation) officeSettings(p *process) office.Settings {
	factor, timing := max(p.factor, 1), &s.schedule.timing
	// Most schedules are too short for penalties of minutes.
	longTenure := lease
	if s.schedule.lasting() {
		longTenure = minute
	}
	return office.Settings{
		Mode: p.mode, Lease: p.lease.current, Heartbeat: factor * timing.heartbeat, SuspicionTimeout: factor * timing.suspicion, Stagger: timing.stagger,
		Policy: p.policy, StablePeriod: timing.stable, DrainTimeout: timing.drain, LongTenure: longTenure,
	}
}

// addSettingsChanges adds changes of the settings of processes while they run, before the
// time at.
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
			at: election.Tick(r.below(int(at))), kind: actChangeSettings, target: election.ID(r.below(s.size + 1)), timing: uint8(r.below(choices)),
		})
	}
}

// changeSettings gives a process other settings. One that is down or paused finds them when
// it starts the next time.
func (s *simulation) changeSettings(id election.ID, a action) {
	t := timings[a.timing]
	s.reportFault(outageSettings, id, "gets a lease of %d and a heartbeat of %d", t.lease, t.factor*s.schedule.timing.heartbeat)
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
	s.setTimer(id)
}

// change changes the lease of a running process: its grants for the previous one may be in
// force for that time.
func (t *leaseState) change(lease, now election.Tick) {
	if now >= t.longestUntil {
		t.longest = t.current
	}
	t.current = lease
	t.longest = max(t.longest, lease)
	t.longestUntil = now + t.longest
}
