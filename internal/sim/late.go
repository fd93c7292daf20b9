package sim

import "github.com/conclave-dev/conclave/internal/election"

// With the fault Late, one process receives each member list late, perhaps after the end of the schedule, although
// messages pass between all processes. An agent does so if its node can't write to its disk, or if the operator
// can't reach it. The others must have a coordinator all the same.

// drawLate draws which process that is.
func (sch *schedule) drawLate(s *simulation) {
	if sch.faults&Late == 0 {
		return
	}
	sch.faults |= Members
	sch.late, sch.lateBy = election.ID(s.rng2.between(1, s.size)), election.Tick(s.rng2.between(1, 200))*lease
	s.checker.electionCause = true
}

// limitsMembers reports whether some process may never be able to hold the office: see checkGraph.
func (sch *schedule) limitsMembers() bool { return sch.faults&(Graph|Late) != 0 }
