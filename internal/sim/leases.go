package sim

import "github.com/conclave-dev/conclave/internal/election"

// longLease is the lease to which a group is changed, or from which.
const longLease = 3 * lease

// tenancy is the lease that a process goes by, and what its disk has to say of it.
type leaseState struct {
	// ticks is the lease of this life, and wanted that of the next.
	current, next election.Tick
	// promised is the longest for which it may have granted what is still in force,
	// which is over when its clock reads until.
	longest, longestUntil election.Tick
}

// lease begins the next life of p with the lease that is wanted.
func (s *simulation) beginLease(p *process) {
	t := &p.lease
	if p.clock.local(p.downSince) >= t.longestUntil { // It saw the longer one end.
		t.longest = t.current
	}
	if t.next == 0 {
		t.next = s.schedule.leaseAfter
	}
	t.current = t.next
	t.longest = max(t.longest, t.current)
	t.longestUntil = p.clock.local(s.queue.now) + t.longest
}

// maxLease is longer than any lease of the plan on any clock.
func (p *schedule) maxLease() election.Tick {
	longest := max(p.leaseBefore, p.leaseAfter)
	return longest + longest/8
}

// drawLeaseChange has some schedules change the lease, with one process restarted after
// the other. It returns when the last one is, or at, if that is later.
func (p *schedule) drawLeaseChange(s *simulation, at election.Tick) election.Tick {
	r := &s.rng
	if !r.percent(6) {
		p.faults &^= Leases
		return at
	}
	if r.percent(70) {
		p.leaseBefore = longLease
	} else {
		p.leaseAfter = longLease
	}
	order := make([]election.ID, s.size)
	for i := range order {
		j := r.below(i + 1)
		order[i], order[j] = order[j], election.ID(i+1)
	}
	next, pace := election.Tick(r.below(int(at))), r.between(2, int(3*lease))
	for _, id := range order {
		next += election.Tick(r.between(1, pace))
		p.push(s, action{
			at: next, kind: actChangeLease, target: id, lasts: election.Tick(r.below(int(heartbeat))), silent: r.percent(30),
		})
	}
	return max(at, next)
}

// relet ends a process, if it lives, and starts it with the new lease.
func (s *simulation) changeLease(id election.ID, a action) {
	s.processes[id].lease.next = s.schedule.leaseAfter
	s.reportFault(id, "is restarted with a lease of %d", s.schedule.leaseAfter)
	s.crash(id, a)
	s.schedule.push(s, action{at: s.queue.now + a.lasts + 1, kind: actRestart, target: id})
}

// finishLeaseChange ends a process that still goes by the old lease when all must agree.
func (s *simulation) finishLeaseChange(id election.ID) {
	p := &s.processes[id]
	p.lease.next = s.schedule.leaseAfter
	if p.up && p.lease.current != s.schedule.leaseAfter {
		s.crash(id, action{})
	}
}
