package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// network records which links are cut and when the last message of each link arrives. A link has a direction.
type network struct {
	// cuts has, for each sender, a bit for each receiver that it can't reach.
	cuts [maxMembers + 1]uint32
	// broken has the links that never heal, in the same format.
	broken      [maxMembers + 1]uint32
	lastArrival [maxMembers + 1][maxMembers + 1]election.Tick
	maxID       election.ID
}

func (n *network) reset() {
	for i := range n.cuts[:n.maxID+1] {
		n.cuts[i], n.broken[i] = 0, 0
		clear(n.lastArrival[i][:n.maxID+1])
	}
	n.maxID = 0
}

func (n *network) isCut(from, to election.ID) bool { return n.cuts[from]>>to&1 != 0 }

func (n *network) cut(from, to election.ID) {
	n.maxID = max(n.maxID, from, to)
	n.cuts[from] |= 1 << to
}

func (n *network) heal() { n.cuts = n.broken }

// restore restores a link in both directions, unless it is broken permanently.
func (n *network) restore(a, b election.ID) {
	n.cuts[a] = n.cuts[a]&^(1<<b) | n.broken[a]
	n.cuts[b] = n.cuts[b]&^(1<<a) | n.broken[b]
}

// fifoArrival returns the arrival time of a message that must not overtake earlier
// messages of its link and would otherwise arrive at the given time.
func (n *network) fifoArrival(from, to election.ID, at election.Tick) election.Tick {
	n.maxID = max(n.maxID, from, to)
	at = max(at, n.lastArrival[from][to])
	n.lastArrival[from][to] = at
	return at
}

func (s *simulation) partition() {
	sides := s.rng.next()
	s.outages.fault(outagePartition, s.queue.now)
	if s.watch != nil {
		s.reportFault(outagePartition, election.None, "the network is partitioned: %s", s.sides(sides))
	}
	for a := election.ID(1); a <= s.maxID; a++ {
		for b := election.ID(1); b <= s.maxID; b++ {
			if (sides>>a^sides>>b)&1 != 0 {
				s.network.cut(a, b)
			}
		}
	}
}

// healLinks ends a partition: at once, or one link after the other, within a lease.
func (s *simulation) healLinks() {
	s.reportFault(outagePartition, election.None, "the network heals")
	if s.schedule.faults&Redial == 0 {
		s.network.heal()
		return
	}
	for a := election.ID(1); a <= s.maxID; a++ {
		for b := a + 1; b <= s.maxID; b++ {
			if s.network.isCut(a, b) || s.network.isCut(b, a) {
				s.schedule.push(s, action{at: s.queue.now + s.rng3.tick(lease), kind: actRedial, target: a, peer: b})
			}
		}
	}
}

// sides formats the two sets of a partition. Bit i of mask is the set of process i.
func (s *simulation) sides(mask uint64) string {
	var two [2][]election.ID
	for id := election.ID(1); id <= s.maxID; id++ {
		two[mask>>id&1] = append(two[mask>>id&1], id)
	}
	return fmt.Sprintf("%s | %s", FormatRanges(two[0]), FormatRanges(two[1]))
}

func (s *simulation) reportGraph() {
	for a := election.ID(1); a <= s.maxID; a++ {
		var unreached []election.ID
		for b := election.ID(1); b <= s.maxID; b++ {
			if s.network.broken[a]>>b&1 != 0 {
				unreached = append(unreached, b)
			}
		}
		if len(unreached) > 0 {
			s.reportFault(outageStart, a, "has no link to %s during the whole schedule", FormatRanges(unreached))
		}
	}
}

// With the fault Graph, the links that don't work never heal. All other faults end, and then the property of
// docs/adr/0012-a-coordinator-in-every-static-network.md holds: if an eligible member exchanges messages with a
// majority, one holds the office and keeps it. In Available mode each process settles on a coordinator with which it
// exchanges messages.

const graphStays = 3 * (lease + suspicionTimeout)

// drawGraph draws a set of links that never work. The processes that join later have such links, too.
func (n *network) drawGraph(r *rng, size election.ID) {
	shape, percent, center := r.below(4), r.between(10, 70), election.ID(r.between(1, int(size)))
	for a := election.ID(1); a <= maxMembers; a++ {
		for b := a + 1; b <= maxMembers; b++ {
			there, back := r.percent(percent), r.percent(percent)
			switch shape {
			case 0: // only one process reaches all others
				there = a != center && b != center
				back = there
			case 1: // a chain
				there = b != a+1
				back = there
			case 2:
				back = there
			}
			if there {
				n.broken[a] |= 1 << b
			}
			if back {
				n.broken[b] |= 1 << a
			}
		}
	}
	n.cuts, n.maxID = n.broken, maxMembers
}

// exchanges reports whether two processes are up, messages pass between them in both directions, and both accept them.
func (s *simulation) exchanges(a, b election.ID) bool {
	up := s.processes[a].up && s.processes[b].up
	return up && (a == b || !s.network.isCut(a, b) && !s.network.isCut(b, a) && s.knows(a, b) && s.knows(b, a))
}

func (s *simulation) knows(a, b election.ID) bool {
	roster := s.processes[a].roster
	return roster.Has(b) || roster.Previous != nil && roster.Previous.Has(b)
}

// accepts reports whether a process can be coordinator according to the list of another one.
func (s *simulation) accepts(follower, coordinator election.ID) bool {
	return s.processes[follower].roster.Priority(coordinator) > 0
}

// couldHold returns an eligible process that exchanges messages with a majority of the
// current list and of the previous one, or None. In Available mode it needs no majority.
func (s *simulation) couldHold() election.ID {
	for _, m := range s.operator.current.Ranked() {
		p := &s.processes[m.ID]
		if m.ID == s.schedule.late && p.roster.Version != s.operator.current.Version {
			continue
		}
		if m.Priority > 0 && p.up && !s.forgetful(m.ID) &&
			!p.appDead && (s.mode == office.Available || s.reachesMajority(m.ID, s.operator.current) &&
			(s.operator.current.Previous == nil || s.reachesMajority(m.ID, s.operator.current.Previous))) {
			return m.ID
		}
	}
	return election.None
}

func (s *simulation) reachesMajority(id election.ID, roster *election.Roster) bool {
	n := 0
	for _, m := range roster.Ring() {
		votes := s.processes[m.ID].disk.identity == m.Identity && !s.forgetful(m.ID)
		if votes && s.exchanges(id, m.ID) && s.accepts(m.ID, id) {
			n++
		}
	}
	return n >= roster.Majority()
}

// checkStays ends a schedule with a static graph when a tenure has lasted long enough.
func (s *simulation) checkStays() {
	stays := s.queue.now >= max(s.checker.tenureChangedAt, s.schedule.healAt)+graphStays
	s.checker.done = stays && (s.mode != office.Available || s.unsettled() == election.None)
}

// unsettled returns a process that doesn't follow a coordinator with which it exchanges
// messages, although it could, or None (Available).
func (s *simulation) unsettled() election.ID {
	for _, m := range s.operator.current.Ring() {
		p := &s.processes[m.ID]
		c := p.status.Coordinator
		settled := c != election.None && s.exchanges(m.ID, c) && s.processes[c].status.Token != 0
		if p.up && !settled && s.couldFollow(m.ID) {
			return m.ID
		}
	}
	return election.None
}

// couldFollow reports whether a process is eligible itself, by the list that it has, or exchanges messages with a
// coordinator.
func (s *simulation) couldFollow(id election.ID) bool {
	for _, m := range s.operator.current.Ring() {
		p := &s.processes[m.ID]
		if s.exchanges(id, m.ID) &&
			(m.ID == id && p.roster.Priority(id) > 0 && !p.appDead && !s.forgetful(id) ||
				p.status.Token != 0 && s.accepts(id, m.ID)) {
			return true
		}
	}
	return false
}

// checkGraph decides what the end of the time for convergence means: nothing if no
// process could hold the office. The time begins again if one can since a short while.
func (s *simulation) checkGraph() {
	able := s.couldHold()
	switch {
	case able == election.None:
		s.checker.done = true
	case s.schedule.extended:
		text := fmt.Sprintf("no process has held the office for %d ticks, although %d exchanges messages with a majority",
			graphStays, able)
		if s.mode == office.Available {
			text = fmt.Sprintf("a tenure has begun or ended in the last %d ticks, or process %d doesn't follow a coordinator",
				graphStays, s.unsettled())
		}
		s.checker.fail("convergence", text)
	default:
		s.schedule.extended, s.schedule.deadline = true, s.queue.now+s.convergeWithin()
	}
}

// With the fault Late, one process receives each member list late, perhaps after the end of the schedule, although
// messages pass between all processes. An agent does so if its node can't write to its disk, or if the operator
// can't reach it. The others must have a coordinator all the same.

// drawLate draws which process that is.
func (sch *schedule) drawLate(s *simulation) {
	if sch.faults&Late == 0 {
		return
	}
	sch.faults |= Members
	sch.late, sch.lateBy = election.ID(s.rng2.between(1, s.size)), s.rng2.ticks(1, 200)*lease
	s.checker.electionCause = true
}

// limitsMembers reports whether some process may never be able to hold the office: see checkGraph.
func (sch *schedule) limitsMembers() bool { return sch.faults&(Graph|Late) != 0 }
