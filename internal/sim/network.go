package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
)

// network records which links are cut and when the last message of each link
// arrives. A link has a direction.
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
