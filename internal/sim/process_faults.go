package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
)

// The faults after Leases are drawn from random numbers of their own, so that the
// schedules of the other faults don't depend on whether these exist.

// processFaultChances has, for each of these faults, the percentage of schedules that have it.
var processFaultChances = []struct {
	fault  Fault
	chance int
}{
	{Graph, 6},
	{Slow, 8},
	{Jump, 20},
	{Disk, 20},
	{Deep, 2},
	{Skew, 5},
	{Gone, 30},
	{Settings, 100},
	{Late, 30},
	{Correct, 30},
}

// maxSkew is the largest difference of wall clocks, in epochs. Their rates add to it, and
// in all it is less than agents accept.
const maxSkew = election.AcceptedSkew - 75

// drawProcessFaults draws which of these faults the schedule has. If there are no or few
// other faults, it has all of them.
func (sch *schedule) drawProcessFaults(s *simulation) {
	alone := s.possible&baseFaults == 0 || s.possible&Few != 0
	for _, c := range processFaultChances {
		if s.possible&c.fault != 0 && (s.rng2.percent(c.chance) || alone) {
			sch.faults |= c.fault
		}
	}
	sch.faults |= s.possible & Recovery
	sch.drawConfigurationFaults(s)
	sch.drawLate(s)
	if sch.faults&Deep != 0 && len(sch.enabledActions()) == 0 {
		for _, f := range actionFaults {
			sch.faults |= f
		}
	}
	if sch.faults&(Jump|Disk) != 0 {
		sch.faults |= Crash // these show when a process restarts
	}
	if sch.faults&Disk != 0 {
		sch.diskPercent, sch.staleFor = s.rng2.between(20, 90), s.rng2.between(1, 6)*int(lease)
		sch.faults |= Members
	}
	if sch.faults&(Skew|Correct) != 0 {
		s.checker.electionCause = true // members whose clocks are behind grant late
	}
	if sch.faults&Graph != 0 {
		s.network.drawGraph(&s.rng2, election.ID(s.size))
		s.checker.electionCause = true
		if s.watch != nil {
			s.reportGraph()
		}
	}
}

// pace returns how many faults happen at given times, and the longest time between
// two of them.
func (sch *schedule) pace(s *simulation) (count int, gap election.Tick) {
	count = s.rng.between(1, 4)
	if sch.faults&Deep != 0 {
		return s.rng2.between(20, 40), 2 * lease
	}
	return count, suspicionTimeout
}

func (sch *schedule) extraDuration(s *simulation) election.Tick {
	if sch.faults&(Slow|Gone|Graph) == 0 {
		return 0
	}
	return s.rng2.tick(4 * lease)
}

func (sch *schedule) addProcessFaults(s *simulation, at election.Tick) {
	r := &s.rng2
	if sch.faults&Slow != 0 {
		for range r.between(1, s.size) {
			sch.push(s, action{
				at: r.tick(at), kind: actSlowDown, target: election.ID(r.below(s.size + 1)), lasts: r.tick(4 * lease),
			})
		}
	}
	if sch.faults&Gone != 0 {
		for range r.between(1, 3) {
			sch.push(s, action{at: r.tick(at), kind: actReportGone, target: election.ID(r.below(s.size + 1))})
		}
	}
	sch.addSettingsChanges(s, at)
	sch.addCorrections(s, at)
}

// drawSkew draws how far the wall clock of a process is ahead of the others, in epochs.
func (sch *schedule) drawSkew(s *simulation) election.Epoch {
	if sch.faults&Skew == 0 {
		return 0
	}
	return election.Epoch(s.rng2.below(int(maxSkew) + 1))
}

// jump sets the wall clock of a process that restarts forward, or back by at most the time
// for which the process was down: see docs/adr/0001-terms-and-tokens.md.
func (s *simulation) jump(p *process) {
	if s.schedule.faults&Jump == 0 || s.queue.now >= s.schedule.healAt || !s.rng2.percent(50) {
		return
	}
	if s.rng2.percent(50) {
		s.setForward(p, 75)
		return
	}
	down := p.clock.local(s.queue.now) - p.clock.local(p.downSince)
	p.clock.skew -= min(p.clock.skew, election.Epoch(s.rng2.below(int(down/p.clock.epochTicks)+1)))
}

// setForward sets the wall clock of a process forward by less than limit epochs.
func (s *simulation) setForward(p *process, limit int) {
	ahead := p.clock.skew + election.Epoch(s.rng2.below(limit))
	p.clock.skew = max(p.clock.skew, min(ahead, maxSkew))
	s.schedule.furthestAhead = max(s.schedule.furthestAhead, p.clock.skew)
}

func (s *simulation) slowDown(id election.ID, a action) {
	p := &s.processes[id]
	most := lease / 4
	if s.rng2.percent(50) {
		most = lease + lease/2
	}
	p.slowBy, p.slowUntil = s.rng2.ticks(1, most), s.queue.now+a.lasts
	s.reportFault(outageSlow, id, "handles an input up to %d ticks late until %d", p.slowBy, p.slowUntil)
}

// stall delays the next input of a slow process.
func (s *simulation) stall(p *process) {
	if now := s.queue.now; now < p.slowUntil && now < s.schedule.healAt {
		p.pausedUntil = max(p.pausedUntil, now+s.rng2.tick(p.slowBy+1))
	}
}

func (s *simulation) reportGone(id election.ID) {
	if p := &s.processes[id]; p.up {
		s.reportFault(outageFalseProof, id, "is reported as ended")
		s.notifyPeers(id, p.incarnation)
	}
}

// receive delivers a published list to a process. The process stores the list on its disk
// before it adopts it, as agents do. So it doesn't adopt the list now if the write fails, or
// if it ends before or after the write.
func (s *simulation) receive(id election.ID, e event) {
	p := &s.processes[id]
	roster := s.operator.published[e.slot]
	if e.slot <= p.slot {
		return
	}
	if s.schedule.faults&Disk == 0 || s.queue.now >= s.schedule.healAt || !s.rng2.percent(s.schedule.diskPercent) {
		p.stored = e.slot
		s.adopt(id, e.slot)
		return
	}
	s.cover(Disk, id)
	switch s.rng2.below(3) {
	case 0:
		s.reportFault(outageMembers, id, "can't store list %d", roster.Version)
		e.at = s.queue.now + 1 + s.rng2.tick(heartbeat)
		s.queue.push(e)
		return
	case 1:
		p.stored = e.slot
	}
	a := action{kind: actCrash, target: id, lasts: s.rng2.tick(lease)}
	s.checker.electionCause = s.checker.electionCause || s.mayCauseElection(a)
	s.crash(id, a)
}

// startWithStoredList reports whether a process restarts with the list on its disk,
// and receives the current one later.
func (s *simulation) startWithStoredList(p *process, id election.ID) bool {
	if s.schedule.faults&Disk == 0 || s.queue.now >= s.schedule.healAt || s.rng2.percent(30) {
		return false
	}
	slot, latest := p.stored, s.operator.latest()
	if !s.operator.published[slot].Has(id) {
		return false
	}
	s.setRoster(p, slot)
	if slot < latest {
		at := s.queue.now + election.Tick(s.rng2.below(s.schedule.staleFor))
		s.queue.push(event{at: at, kind: eventRoster, process: id, slot: latest})
	}
	return true
}
