package sim

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// replica is what a replica of the operator knows: the disk of each process that is connected.
type replica struct {
	identities [maxMembers + 1]election.Identity
}

// ticksPerSecond is that of a group with the default lease.
const ticksPerSecond = 2 * lease

func formatIdentity(i election.Identity) string { return memberlist.FormatIdentity(uint64(i)) }

// connected records in all replicas that a process is connected.
func (o *operator) connected(id election.ID, identity election.Identity) {
	for i := range o.replicas {
		o.replicas[i].identities[id] = identity
	}
}

// forget records that the pod of a process is a new one, whose process isn't connected yet.
func (o *operator) forget(id election.ID) { o.connected(id, 0) }

// meetMember draws whether the process of a new member is connected before it is on the list.
func (s *simulation) meetMember(id election.ID) {
	if s.rng4.percent(50) {
		s.newDisk(id)
		s.operator.connected(id, s.processes[id].disk.identity)
	}
}

// connectSoon connects a process that starts to the replicas of the operator.
func (s *simulation) connectSoon(id election.ID) {
	for i := range s.operator.replicas {
		at := s.queue.now + s.rng4.ticks(1, 4*transMax)
		if s.schedule.faults&Operator != 0 && s.queue.now < s.schedule.healAt && s.rng4.percent(50) {
			at += s.rng4.tick(4 * lease)
		}
		s.queue.push(event{
			at: at, kind: eventConnected, process: id, peer: election.ID(i), slot: s.processes[id].incarnation,
		})
	}
}

// connect tells a replica which disk a process has. If another one is in the list, the operator acts now, and when the
// process that had it counts as departed.
func (s *simulation) connect(id election.ID, e event) {
	p, r := &s.processes[id], &s.operator.replicas[e.peer]
	if e.slot != p.incarnation {
		return
	}
	if p.missedList {
		p.missedList = false
		s.queue.push(event{at: s.queue.now + 1, kind: eventRoster, process: id, slot: s.operator.latest()})
	}
	if r.identities[id] == p.disk.identity {
		return
	}
	r.identities[id] = p.disk.identity
	s.reconcileAt(s.queue.now)
	s.reconcileAt(s.queue.now + s.adoptionWait())
}

// needsNextList reports whether the members or the disks of the list aren't those that it should have.
func (s *simulation) needsNextList() bool {
	o := &s.operator
	wanted := o.wanted
	if s.queue.now >= s.schedule.healAt {
		wanted = o.decided.Members
	}
	return !slices.EqualFunc(wanted, o.decided.Members, func(a, b memberlist.Member) bool {
		known := o.replicas[o.leads].identities[idOf(b.Name)]
		return a.Name == b.Name && a.Priority == b.Priority && (known == 0 || formatIdentity(known) == b.Identity)
	})
}

// changeOperator makes another replica lead, and its clock jump.
func (s *simulation) changeOperator() {
	o, r := &s.operator, &s.rng4
	if s.schedule.faults&Operator == 0 || s.queue.now >= s.schedule.healAt || !r.percent(30) {
		return
	}
	const day = 24 * 60 * 60
	o.leads = r.below(len(o.replicas))
	o.ahead = []int64{0, -day, day, 30 * day, 3 * 365 * day, 1 << 29}[r.below(6)]
}
