package sim

import (
	"math/bits"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Combination is a kind of fault, the role of the process that it affected, and what the
// process knew of the latest member list.
type Combination struct {
	Fault, Role, List string
	// Count is how often the fault affected such a process.
	Count uint64
}

// listPhase is the phase of a change of the member list, for one process.
type listPhase uint8

const (
	// listSettled: no change is under way.
	listSettled listPhase = iota
	// listUnknown: the process hasn't adopted the latest list, which isn't settled.
	listUnknown
	// listAdopted: the process has adopted the latest list, which isn't settled.
	listAdopted
	listPhases
)

var listPhaseNames = [listPhases]string{"settled", "unknown", "adopted"}

var allRoles = [...]office.Role{office.Follower, office.Candidate, office.Holder, office.Draining}

// coverage counts combinations, by the number of the fault, role and phase. It leaves
// out faults that affect a whole schedule (clocks, graph, deep, skew), and jump, which
// happens while a process is down.
type coverage [64][len(allRoles)][listPhases]uint64

// countedFaults are the faults that a coverage counts.
const countedFaults = allFaults&^(Clocks|Graph|Deep|Skew|Jump) | Gone

// cover counts a fault that affects a process.
func (s *simulation) cover(f Fault, id election.ID) {
	p := &s.processes[id]
	if !p.up || p.machine == nil {
		return
	}
	phase := listSettled
	if decided := s.operator.decided; !decided.Settled {
		phase = listUnknown
		if int64(p.roster.Version) == decided.Version {
			phase = listAdopted
		}
	}
	s.coverage[bits.TrailingZeros64(uint64(f))][p.machine.Role()][phase]++
}

// coverAll counts a fault that affects all processes.
func (s *simulation) coverAll(f Fault) {
	for id := election.ID(1); id <= s.maxID; id++ {
		s.cover(f, id)
	}
}

// coverAction counts an action that is about to be carried out.
func (s *simulation) coverAction(a action) {
	switch a.kind {
	case actCrash:
		s.cover(Crash, s.target(a))
	case actCrashAll:
		s.coverAll(Crash)
	case actKillApp:
		s.cover(AppDead, s.target(a))
	case actPause:
		s.cover(Pause, s.target(a))
	case actPartition:
		s.coverAll(Partition)
	case actCutLink:
		s.cover(Partition, s.target(a))
	case actStepDown:
		s.cover(StepDown, s.target(a))
	case actChangeLease:
		s.cover(Leases, a.target)
	case actSlowDown:
		s.cover(Slow, s.target(a))
	case actReportGone:
		s.cover(Gone, s.target(a))
	case actChangeMembers, actRestart, actReviveApp, actHealLinks, actReconcile, actPublish, actHealAll, actRecover, actChangeSettings, actCorrectClock,
		actThrottle, actReplaceMember, actMix, actRejoin:
	}
}

func (c *coverage) add(other *coverage) {
	for f := range c {
		for r := range c[f] {
			for p := range c[f][r] {
				c[f][r][p] += other[f][r][p]
			}
		}
	}
}

// reachable reports whether a fault can occur in a phase. A change of the list begins
// only when no other one is under way. Only lists that
// a process can't store before it has adopted their version are of interest.
func reachable(f Fault, phase listPhase) bool {
	switch f {
	case Members:
		return phase == listSettled
	case Disk:
		return phase == listUnknown
	default:
		return true
	}
}

// combinations returns the reachable combinations of some faults, including those that
// never occurred.
func (c *coverage) combinations(faults Fault) []Combination {
	var all []Combination
	names := allFaultNames()
	for f, name := range names {
		if faults&countedFaults>>f&1 == 0 {
			continue
		}
		for _, role := range allRoles {
			for phase := range listPhases {
				if reachable(1<<f, phase) {
					all = append(all, Combination{name, role.String(), listPhaseNames[phase], c[f][role][phase]})
				}
			}
		}
	}
	return all
}
