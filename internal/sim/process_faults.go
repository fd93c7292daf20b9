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
	{Pods, 20},
	{Disk, 20},
	{Deep, 2},
	{DiskLost, 20},
	{Operator, 20},
	{Gone, 30},
	{Settings, 100},
	{Late, 30},
}

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
	if sch.faults&Operator != 0 && sch.faults&Late == 0 && s.rng4.percent(10) {
		// The group has used up half, or nearly all, of the terms of its list. Only the next list ends that.
		sch.startsIn += election.Term([]int{1<<15 - 20, 1<<16 - 40}[s.rng4.below(2)])
		s.operator.term = sch.startsIn
		s.reconcileAt(lease)
		s.checker.electionCause = true
	}
	if sch.faults&(Pods|Disk|DiskLost) != 0 {
		sch.faults |= Crash // these show when a process restarts
	}
	if sch.faults&Disk != 0 {
		sch.diskPercent, sch.staleFor = s.rng2.between(20, 90), s.rng2.between(1, 6)*int(lease)
		sch.faults |= Members
	}
	if sch.faults&Graph != 0 {
		s.network.drawGraph(&s.rng2, election.ID(s.size))
		s.checker.electionCause = true
		if s.watch != nil {
			s.reportGraph()
		}
	}
}

// pace returns how many faults happen at given times, and the longest time between two of them.
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

// receive delivers a published list to a process. The process stores the list on its disk before it adopts it, as
// agents do. So it doesn't adopt the list now if the write fails, or if it ends before or after the write.
func (s *simulation) receive(id election.ID, e event) {
	p := &s.processes[id]
	roster := s.operator.published[e.slot]
	if e.slot <= p.slot {
		return
	}
	if s.schedule.faults&Disk == 0 || s.queue.now >= s.schedule.healAt || !s.rng2.percent(s.schedule.diskPercent) {
		s.store(p, e.slot)
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
		s.store(p, e.slot)
	}
	s.crashNow(id, action{kind: actCrash, target: id, lasts: s.rng2.tick(lease)})
}

// chooseList gives a process that starts the latest list, or one that it has stored, or, if its disk is a new one, an
// older one. Then it gets the latest one later.
func (s *simulation) chooseList(p *process, id election.ID) {
	latest := s.operator.latest()
	slot, late := s.olderList(p, latest)
	if !s.operator.published[slot].Has(id) {
		slot, late = latest, 0
	}
	s.setRoster(p, slot)
	if !p.disk.hasList {
		p.adoptedAt = s.queue.now
	}
	if slot < latest {
		s.queue.push(event{at: s.queue.now + late, kind: eventRoster, process: id, slot: latest})
	}
}

func (s *simulation) olderList(p *process, latest uint32) (slot uint32, late election.Tick) {
	faults := s.schedule.faults
	switch {
	case s.queue.now >= s.schedule.healAt:
	case p.disk.hasList && faults&Disk != 0 && !s.rng2.percent(30):
		return p.disk.slot, election.Tick(s.rng2.below(s.schedule.staleFor))
	case !p.disk.hasList && faults&Pods != 0 && latest > 0:
		return latest - uint32(s.rng3.between(1, min(3, int(latest)))), s.rng3.tick(6 * lease)
	}
	return latest, 0
}
