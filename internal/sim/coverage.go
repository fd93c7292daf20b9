package sim

import "github.com/conclave-dev/conclave/internal/election"

// cover reports a fault that affects a process. Faults that affect a whole schedule (clocks, graph, deep, skew) aren't
// reported, and neither is jump, which happens while a process is down.
func (s *simulation) cover(f Fault, id election.ID) {
	p := &s.processes[id]
	if s.onFault == nil || !p.up || p.machine == nil {
		return
	}
	s.onFault(f, id)
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
