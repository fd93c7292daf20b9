package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// longLease is the other lease of a schedule that changes the lease.
const longLease = 3 * lease

// leaseState is the lease of a process, and what the process stores about it on disk.
type leaseState struct {
	// current is the lease of this incarnation, next that of the next one, 0 for the schedule's last.
	current, next election.Tick
	// longest is the longest lease of any of its grants that may still be in force.
	// Those end when its clock reads longestUntil.
	longest, longestUntil election.Tick
	// waitsUntil is when this incarnation may grant again.
	waitsUntil election.Tick
}

// drawEarlierEnd returns how long ago the earlier incarnations of p had ended when the new one
// started. It has joined the group only now.
func (s *simulation) drawEarlierEnd(p *process) election.Tick {
	if !s.joinsLate || p.incarnation == 0 {
		return 0
	}
	down := p.clock.local(s.queue.now) - p.clock.local(p.downSince)
	random := rng(uint64(s.queue.now)) // The other random numbers of the schedule remain the same.
	random.next()
	return min(down, random.tick(2*down+1))
}

// beginLease sets the lease of a new incarnation of p, which started when the earlier ones had
// ended. One with a new disk has no earlier ones.
func (s *simulation) beginLease(p *process, ended election.Tick, fresh bool) {
	t := &p.lease
	if fresh {
		t.longest, t.longestUntil = 0, 0
	}
	if p.clock.local(p.downSince) >= t.longestUntil { // it was up when the longer lease ended
		t.longest = t.current
	}
	if t.next == 0 {
		t.next = s.schedule.leaseAfter
	}
	t.current = t.next
	t.longest = max(t.longest, t.current)
	t.longestUntil = p.clock.local(s.queue.now) + t.longest
	switch {
	case fresh:
		t.waitsUntil = 0
	case !p.remembers:
		t.waitsUntil = t.longestUntil - ended
	}
}

// maxLease returns a time that exceeds any lease of the schedule on any clock.
func (sch *schedule) maxLease() election.Tick {
	longest := max(sch.leaseBefore, sch.leaseAfter)
	if sch.faults&Settings != 0 {
		longest = longLease
	}
	return longest + longest/8
}

// drawLeaseChange adds a change of the lease to some schedules: all processes restart one by one with the new lease. It
// returns the time of the last restart, or at if that is later.
func (sch *schedule) drawLeaseChange(s *simulation, at election.Tick) election.Tick {
	r := &s.rng
	if !r.percent(6) {
		sch.faults &^= Leases
		return at
	}
	if r.percent(70) {
		sch.leaseBefore = longLease
	} else {
		sch.leaseAfter = longLease
	}
	order := make([]election.ID, s.size)
	for i := range order {
		j := r.below(i + 1)
		order[i], order[j] = order[j], election.ID(i+1)
	}
	next, pace := r.tick(at), r.ticks(2, 3*lease)
	for _, id := range order {
		next += r.ticks(1, pace)
		sch.push(s, action{at: next, kind: actChangeLease, target: id, lasts: r.tick(heartbeat), silent: r.percent(30)})
	}
	return max(at, next)
}

func (s *simulation) changeLease(id election.ID, a action) {
	s.processes[id].lease.next, s.processes[id].factor = s.schedule.leaseAfter, 1
	s.reportFault(outageRestart, id, "is restarted with a lease of %d", s.schedule.leaseAfter)
	s.crash(id, a)
	s.schedule.push(s, action{at: s.queue.now + a.lasts + 1, kind: actRestart, target: id})
}

// finishLeaseChange crashes a process that still has the old lease when all faults
// end. Without that, an election could take longer than the check of liveness allows.
func (s *simulation) finishLeaseChange(id election.ID) {
	p := &s.processes[id]
	p.lease.next = s.schedule.leaseAfter
	if p.up && p.lease.current != s.schedule.leaseAfter {
		s.crash(id, action{})
	}
}

// drawMemory draws whether a process that restarts remembers its grants and tenures. With a new disk, or after a power
// failure, it has no memory. A process in another schedule, or after another restart, has lost its memory, too.
func (s *simulation) drawMemory(p *process) {
	// The other random numbers of the schedule remain the same.
	random := rng(uint64(s.queue.now) ^ uint64(p.incarnation)<<32)
	random.next()
	p.remembers = s.remembers && p.disk.hasList && !p.rebooted && random.percent(60)
}

// remembered returns what a process that starts remembers, or nil. Its machine is still that
// of the previous incarnation, if there was one.
func (s *simulation) remembered(p *process) *grants.Memory {
	if s.queue.now == 0 && s.usesGrants() { // the group has had terms before
		return &grants.Memory{HighestGranted: s.schedule.startsIn - 1, Version: 1}
	}
	if !p.remembers || !s.usesGrants() {
		return nil
	}
	memory := p.machine.Memory()
	return &memory
}

// rememberedTenures returns what a process that starts remembers of its tenures.
func (p *process) rememberedTenures() (t office.TenureRecord) {
	if p.remembers {
		t = p.machine.Tenures()
	}
	return t
}

func (s *simulation) reportRestart(id election.ID) {
	if s.processes[id].remembers {
		s.reportFault(outageRestart, id, "restarts and remembers its grants and tenures")
	} else {
		s.reportFault(outageRestart, id, "restarts without its memory")
	}
}
