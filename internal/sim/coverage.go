package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

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

// affected is a fault, the role of the process that it affects, and what that process knows of the latest member list.
type affected struct {
	fault Fault
	role  office.Role
	phase listPhase
}

// cover reports a fault that affects a process. Faults that affect a whole schedule (clocks, graph, deep, skew) aren't
// reported, and neither is jump, which happens while a process is down.
func (s *simulation) cover(f Fault, id election.ID) {
	p := &s.processes[id]
	if s.onFault == nil || !p.up || p.machine == nil {
		return
	}
	phase := listSettled
	if decided := s.operator.decided; !decided.Settled {
		phase = listUnknown
		if int64(p.roster.Version) == decided.Version {
			phase = listAdopted
		}
	}
	s.onFault(affected{f, p.machine.Role(), phase})
}

// coverAll reports a fault that affects all processes.
func (s *simulation) coverAll(f Fault) {
	for id := election.ID(1); id <= s.maxID; id++ {
		s.cover(f, id)
	}
}

// coverAction reports an action that is about to be carried out.
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
	case actChangeMembers, actRestart, actReviveApp, actHealLinks, actRedial, actReconcile, actPublish, actHealAll, actRecover, actChangeSettings, actCorrectClock,
		actThrottle, actReplaceMember, actMix, actRejoin:
	}
}
