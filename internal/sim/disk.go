package sim

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// disk is what a process stores, in one record that each write replaces as a whole.
type disk struct {
	identity election.Identity
	// slot is the index of the stored list, of those that the operator has published, and reserved the reservation.
	slot     uint32
	hasList  bool
	reserved election.Term
	// writing is the reservation that is being written, or 0.
	writing election.Term
}

func identity(id election.ID, disks uint8) election.Identity {
	return election.Identity(id)<<8 | election.Identity(disks)
}

// newDisk gives a process an empty disk.
func (s *simulation) newDisk(id election.ID) {
	p := &s.processes[id]
	p.disks++
	p.disk = disk{identity: identity(id, p.disks)}
}

// store writes a list. The first block of its terms is in the same write.
func (s *simulation) store(p *process, slot uint32) {
	version := s.operator.published[slot].Version
	p.disk.slot, p.disk.hasList = slot, true
	p.disk.reserved = max(p.disk.reserved, election.FirstTerm(version)+election.Block)
}

// diskFails draws whether a write fails.
func (s *simulation) diskFails() bool {
	return s.schedule.faults&Disk != 0 && s.queue.now < s.schedule.healAt && s.rng4.percent(s.schedule.diskPercent)
}

// reserve begins to write the reservation that a process would like, in the background.
func (s *simulation) reserve(id election.ID, p *process) {
	want := p.machine.Wanted()
	if want <= p.disk.reserved || p.disk.writing != 0 {
		return
	}
	p.disk.writing = want
	takes := s.rng4.ticks(1, transMax)
	if s.schedule.slowDisks && s.schedule.faults&Disk != 0 {
		takes = s.rng4.ticks(1, lease)
	}
	for s.diskFails() { // the process tries again
		takes += s.rng4.ticks(1, heartbeat)
	}
	s.queue.push(event{at: s.queue.now + takes, kind: eventReserved, process: id, slot: p.incarnation})
}

// finishWrite ends the write of a reservation, and tells the process. It may end just before that.
func (s *simulation) finishWrite(id election.ID, incarnation uint32) {
	p := &s.processes[id]
	if incarnation != p.incarnation || p.disk.writing == 0 {
		return
	}
	p.disk.reserved, p.disk.writing = max(p.disk.reserved, p.disk.writing), 0
	if s.diskFails() && s.rng4.percent(20) {
		s.crashNow(id, action{kind: actCrash, target: id, lasts: s.rng4.tick(lease)})
		return
	}
	s.step(id, election.Input{Kind: election.Reserved, Term: p.disk.reserved})
}

// crashNow is an unplanned action.
func (s *simulation) crashNow(id election.ID, a action) {
	s.checker.electionCause = s.checker.electionCause || s.mayCauseElection(a)
	s.crash(id, a)
}

// endWrite ends the write of a process that ends. The disk may have the reservation.
func (s *simulation) endWrite(p *process) {
	if p.disk.writing != 0 && s.rng4.percent(50) {
		p.disk.reserved = max(p.disk.reserved, p.disk.writing)
	}
	p.disk.writing = 0
}

// loseDisk draws whether a process that ends loses what it has stored: with its pod, or in the same pod.
func (s *simulation) loseDisk(p *process) {
	faults := s.schedule.faults
	p.podGone = faults&Members != 0 && s.rng2.percent(30) || faults&Pods != 0 && s.rng3.percent(50)
	p.diskLost = !p.podGone && faults&DiskLost != 0 && s.rng4.percent(50)
}

// retire draws whether a process that is about to end does so in order: it gives up the office, and its
// identity if none of its grants is in force. The operator then waits for nothing.
func (s *simulation) retire(id election.ID) {
	p := &s.processes[id]
	if s.schedule.faults&Pods == 0 || s.queue.now < p.pausedUntil || !s.rng4.percent(30) {
		return
	}
	p.running = false // The containers of a pod end before the agent.
	s.step(id, election.Input{Kind: election.BecomeIneligible})
	if p.up && !p.machine.GrantsInForce() {
		p.disks++
		p.retired, p.disk.identity = p.disk.identity, identity(id, p.disks)
	}
}

// hasRetired reports whether the process that the list before names has given up its identity.
func (s *simulation) hasRetired(name string) bool {
	retired, before := formatIdentity(s.processes[idOf(name)].retired), s.operator.decided.Previous
	return retired != "" && before != nil && slices.ContainsFunc(before.Members, func(m memberlist.Member) bool {
		return m.Name == name && m.Identity == retired
	})
}

// replaceDisk gives a process that starts a new disk if it has lost the old one.
func (s *simulation) replaceDisk(p *process, id election.ID) {
	if p.podGone {
		s.operator.forget(id)
	}
	if p.podGone || p.diskLost || p.disks == 0 {
		s.newDisk(id)
	}
	p.podGone, p.diskLost, p.rebooted = false, false, false
}

// forgetful reports whether a process doesn't vote under its list, because that names another disk.
func (s *simulation) forgetful(id election.ID) bool {
	p := &s.processes[id]
	list := p.roster
	if !list.Has(id) && list.Previous != nil {
		list = list.Previous
	}
	return list.Has(id) && list.Identity(id) != p.disk.identity
}

// updateVote records since when a process votes.
func (s *simulation) updateVote(id election.ID, fresh bool) {
	p := &s.processes[id]
	switch {
	case s.forgetful(id):
		p.votesSince = election.Never
	case fresh || p.votesSince == election.Never:
		p.votesSince = s.queue.now
	}
}
