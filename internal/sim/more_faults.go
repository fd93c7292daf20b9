package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
)

// The faults after Leases are drawn from random numbers of their own, so that the
// schedules of the other faults don't depend on whether these exist.

// moreChances has, for each of these faults, the percentage of schedules that have it.
var moreChances = []struct {
	fault  Fault
	chance int
}{
	{Graph, 6}, {Slow, 8}, {Jump, 20}, {Disk, 20}, {Deep, 2}, {Skew, 5}, {Gone, 30}, {Adapt, 100},
}

// maxSkew is the largest difference of wall clocks that agents accept, in terms.
const maxSkew = 300

// drawMoreFaults draws which of these faults the schedule has. If there are no other
// faults, it has all of them.
func (sch *schedule) drawMoreFaults(s *simulation) {
	alone := s.faults&baseFaults == 0
	for _, c := range moreChances {
		if s.faults&c.fault != 0 && (s.more.percent(c.chance) || alone) {
			sch.faults |= c.fault
		}
	}
	if sch.faults&Deep != 0 && len(sch.enabledActions()) == 0 {
		for _, f := range actionFaults {
			sch.faults |= f
		}
	}
	if sch.faults&(Jump|Disk) != 0 {
		sch.faults |= Crash // these show when a process restarts
	}
	if sch.faults&Disk != 0 {
		sch.faults |= Members
	}
	if sch.faults&Skew != 0 {
		s.checker.electionCause = true // members whose clocks are behind grant late
	}
	if sch.faults&Adapt != 0 && s.more.percent(50) {
		// With a lease of many heartbeats, a later grant for a shorter lease can end before
		// the grant for the longer one.
		sch.leaseBefore, sch.leaseAfter = longLease, longLease
	}
	if sch.faults&Graph != 0 {
		s.network.drawGraph(&s.more, election.ID(s.size))
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
		return s.more.between(20, 40), 2 * lease
	}
	return count, suspicionTimeout
}

// moreTime returns how much longer the faults of a schedule last.
func (sch *schedule) moreTime(s *simulation) election.Tick {
	if sch.faults&(Slow|Gone|Graph) == 0 {
		return 0
	}
	return election.Tick(s.more.below(int(4 * lease)))
}

// addMoreActions adds the actions of these faults, before the time at.
func (sch *schedule) addMoreActions(s *simulation, at election.Tick) {
	r := &s.more
	if sch.faults&Slow != 0 {
		for range r.between(1, s.size) {
			sch.push(s, action{
				at: election.Tick(r.below(int(at))), kind: actSlowDown, target: election.ID(r.below(s.size + 1)), lasts: election.Tick(r.below(int(4 * lease))),
			})
		}
	}
	if sch.faults&Gone != 0 {
		for range r.between(1, 3) {
			sch.push(s, action{at: election.Tick(r.below(int(at))), kind: actReportGone, target: election.ID(r.below(s.size + 1))})
		}
	}
}

// drawSkew draws how far the wall clock of a process is ahead of the others, in terms.
func (sch *schedule) drawSkew(s *simulation) election.Term {
	if sch.faults&Skew == 0 {
		return 0
	}
	return election.Term(s.more.below(maxSkew + 1))
}

// jump sets the wall clock of a process that restarts forward, or back by less than
// the time for which the process grants nothing.
func (s *simulation) jump(p *process) {
	if s.schedule.faults&Jump == 0 || s.queue.now >= s.schedule.healAt || !s.more.percent(50) {
		return
	}
	if s.more.percent(50) {
		p.clock.skew += election.Term(s.more.below(30))
		return
	}
	p.clock.skew -= min(p.clock.skew, election.Term(s.more.below(int(lease/p.clock.termTicks)+1)))
}

// slowDown makes a process slow for a while.
func (s *simulation) slowDown(id election.ID, a action) {
	p := &s.processes[id]
	most := int(lease / 4)
	if s.more.percent(50) {
		most = int(lease + lease/2)
	}
	p.slowBy, p.slowUntil = election.Tick(s.more.between(1, most)), s.queue.now+a.lasts
	s.reportFault(id, "handles an input up to %d ticks late until %d", p.slowBy, p.slowUntil)
}

// stall delays the next input of a slow process.
func (s *simulation) stall(p *process) {
	if now := s.queue.now; now < p.slowUntil && now < s.schedule.healAt {
		p.pausedUntil = max(p.pausedUntil, now+election.Tick(s.more.below(int(p.slowBy)+1)))
	}
}

// reportGone notifies some processes that a process has ended, although it runs.
func (s *simulation) reportGone(id election.ID) {
	if p := &s.processes[id]; p.up {
		s.reportFault(id, "is reported as ended")
		s.notifyPeers(id, p.incarnation)
	}
}

// store stores a list on the disk of a process, before the process adopts it. It
// reports false if the process doesn't adopt the list now, because the write failed or
// the process ended before or after it.
func (s *simulation) store(id election.ID, e event) bool {
	p := &s.processes[id]
	roster := s.members.published[e.slot]
	if s.schedule.faults&Disk == 0 || s.queue.now >= s.schedule.healAt || roster.Version <= p.roster.Version || s.more.percent(60) {
		return true
	}
	s.cover(Disk, id)
	switch s.more.below(3) {
	case 0:
		s.reportFault(id, "can't store list %d", roster.Version)
		e.at = s.queue.now + 1 + election.Tick(s.more.below(int(heartbeat)))
		s.queue.push(e)
		return false
	case 1:
		p.stored = roster
	}
	a := action{kind: actCrash, target: id, lasts: election.Tick(s.more.below(int(lease)))}
	s.checker.electionCause = s.checker.electionCause || s.mayCauseElection(a)
	s.crash(id, a)
	return false
}

// startWithStoredList reports whether a process restarts with the list on its disk,
// and receives the current one later.
func (s *simulation) startWithStoredList(p *process, id election.ID) bool {
	if s.schedule.faults&Disk == 0 || s.queue.now >= s.schedule.healAt || s.more.percent(30) {
		return false
	}
	list := p.roster
	if p.stored != nil && p.stored.Version > list.Version {
		list = p.stored
	}
	if !list.Has(id) {
		return false
	}
	s.setRoster(p, list)
	if list != s.members.current && len(s.members.published) > 0 { // it may only lack departed members
		at := s.queue.now + election.Tick(s.more.below(int(2*lease)))
		s.queue.push(event{at: at, kind: eventRoster, process: id, slot: uint32(len(s.members.published) - 1)})
	}
	return true
}
