package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/transcript"
)

func (s *simulation) target(a action) election.ID {
	if a.target != 0 {
		return a.target
	}
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up && p.status.Token != 0 {
			return id
		}
	}
	return election.ID(s.size)
}

// reportFault records a fault, and passes its description to the watch function, if there is one.
func (s *simulation) reportFault(kind outageKind, id election.ID, format string, args ...any) {
	s.outages.fault(kind, s.queue.now)
	if s.watch != nil {
		s.watch(transcript.Step{At: s.queue.now, Process: id, Fault: fmt.Sprintf(format, args...)})
	}
}

func (s *simulation) execute(a action) {
	s.checker.electionCause = s.checker.electionCause || s.mayCauseElection(a)
	if s.onAction != nil {
		s.onAction(a)
	}
	executions[a.kind](s, s.target(a), a)
}

// executions has what each kind of action does, to the network, the operator or the process that it affects.
var executions = [...]func(s *simulation, id election.ID, a action){
	actCrash:          (*simulation).crash,
	actCrashAll:       (*simulation).crashAll,
	actRestart:        ofProcess((*simulation).restart),
	actKillApp:        (*simulation).killApp,
	actReviveApp:      ofProcess((*simulation).reviveApp),
	actPause:          (*simulation).pause,
	actPartition:      outside((*simulation).partition),
	actCutLink:        ofProcess((*simulation).cutLink),
	actHealLinks:      outside((*simulation).healLinks),
	actRedial:         func(s *simulation, id election.ID, a action) { s.network.restore(id, a.peer) },
	actChangeMembers:  outside((*simulation).changeMembers),
	actReconcile:      outside((*simulation).reconcile),
	actPublish:        outside((*simulation).publish),
	actStepDown:       ofProcess((*simulation).stepDown),
	actChangeLease:    (*simulation).changeLease,
	actSlowDown:       (*simulation).slowDown,
	actReportGone:     ofProcess((*simulation).reportGone),
	actChangeSettings: (*simulation).changeSettings,
	actHealAll:        outside((*simulation).endFaults),
	actRecover:        ofProcess((*simulation).recover),
	actThrottle:       (*simulation).throttle,
	actReplaceMember:  outside((*simulation).replaceMember),
	actMix:            ofProcess((*simulation).changeMix),
	actRejoin:         ofProcess((*simulation).rejoin),
}

func ofProcess(act func(*simulation, election.ID)) func(*simulation, election.ID, action) {
	return func(s *simulation, id election.ID, _ action) { act(s, id) }
}

func outside(act func(*simulation)) func(*simulation, election.ID, action) {
	return func(s *simulation, _ election.ID, _ action) { act(s) }
}

func (s *simulation) cutLink(from election.ID) {
	to := election.ID(s.rng.between(1, int(s.maxID)))
	s.network.cut(from, to)
	s.reportFault(outagePartition, from, "the link to %d fails", to)
}

func (s *simulation) crash(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up {
		return
	}
	s.retire(id)
	if p.status.Token != 0 {
		p.lostTenureUntil = p.status.Until
	}
	p.up, p.running, p.crashedSilently, p.downSince = false, false, a.silent, s.queue.now
	p.status = election.Status{}
	if a.silent {
		s.reportFault(outageSilentCrash, id, "crashes without resetting its connections")
	} else {
		s.reportFault(outageCrash, id, "crashes")
		s.notifyPeers(id, p.incarnation)
	}
	s.beginOutage(s.outages.last)
	s.endWrite(p)
	s.loseDisk(p)
	s.markMissing(id, p)
	if !p.removed && s.queue.now < s.schedule.healAt && s.rng.percent(70) {
		s.schedule.push(s, action{at: s.queue.now + a.lasts + 1, kind: actRestart, target: id})
	}
}

// crashAll ends all processes, half of the times because of a power failure.
func (s *simulation) crashAll(_ election.ID, a action) {
	reboots := s.rng4.percent(50)
	for id := election.ID(1); id <= s.maxID; id++ {
		s.crash(id, a)
		s.processes[id].rebooted = reboots
	}
}

// notifyPeers schedules the notification of every connected process that an incarnation of a process has ended.
func (s *simulation) notifyPeers(id election.ID, incarnation uint32) {
	for other := election.ID(1); other <= s.maxID; other++ {
		if other == id || !s.processes[other].up || s.network.isCut(id, other) || s.network.isCut(other, id) {
			continue
		}
		at := s.queue.now + s.rng.ticks(1, transMax)
		if s.rng.percent(20) { // so late that the process may have restarted
			at += s.rng.tick(2 * lease)
			s.outages.last = outageLateProof
		}
		s.queue.push(event{at: at, kind: eventPeerEnded, process: other, peer: id, slot: incarnation})
	}
}

func (s *simulation) restart(id election.ID) {
	p := &s.processes[id]
	if !p.exists || p.up || p.removed {
		return
	}
	if !s.operator.current.Has(id) {
		return // the pod of a removed member isn't recreated
	}
	s.replaceDisk(p, id)
	s.chooseList(p, id)
	s.drawMemory(p)
	s.reportRestart(id)
	s.boot(id, true, 0)
	if s.schedule.faults&Recovery != 0 {
		s.schedule.push(s, action{at: s.queue.now + s.rng.ticks(1, heartbeat), kind: actRecover, target: id})
	}
}

func (s *simulation) recover(id election.ID) {
	if p := &s.processes[id]; p.up && s.queue.now >= p.pausedUntil {
		s.step(id, election.Input{Kind: election.Recover})
	}
}

// pause stops a process for a while. It keeps its state.
func (s *simulation) pause(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up {
		return
	}
	p.pausedUntil = max(p.pausedUntil, s.queue.now+a.lasts)
	s.reportFault(outagePause, id, "pauses until %d", p.pausedUntil)
	s.beginOutage(outagePause)
}

func (s *simulation) killApp(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up || s.queue.now < p.pausedUntil || p.appDead {
		return
	}
	p.appDead, p.running = true, false
	s.outages.fault(outageApplication, s.queue.now)
	s.step(id, election.Input{Kind: election.BecomeIneligible})
	s.schedule.push(s, action{at: s.queue.now + a.lasts + 1, kind: actReviveApp, target: id})
}

func (s *simulation) reviveApp(id election.ID) {
	p := &s.processes[id]
	if !p.up || !p.appDead {
		return
	}
	if s.queue.now < p.pausedUntil {
		s.schedule.push(s, action{at: p.pausedUntil, kind: actReviveApp, target: id})
		return
	}
	p.appDead = false
	s.outages.fault(outageApplication, s.queue.now)
	s.step(id, election.Input{Kind: election.BecomeEligible})
}

func (s *simulation) stepDown(id election.ID) {
	if p := &s.processes[id]; p.up && s.queue.now >= p.pausedUntil {
		p.stepsDownIn = p.tenures
		s.step(id, election.Input{Kind: election.StepDown})
	}
}

// lowestEligible returns the lowest-ranked member of positive priority, or None.
func (s *simulation) lowestEligible() election.ID {
	lowest := election.None
	for _, m := range s.operator.current.Ranked() {
		if m.Priority > 0 {
			lowest = m.ID
		}
	}
	return lowest
}

func (s *simulation) endFaults() {
	if s.checker.done = s.endsWithFaults; !s.checker.done {
		s.healAll()
		s.continued++
	}
}

// healAll ends all faults. Processes that are down restart, except for some that are too few to prevent a majority.
func (s *simulation) healAll() {
	s.network.heal()
	if s.operator.decided.Version > s.operator.current.Version {
		s.publish()
	}
	spare := (s.operator.current.Len() - 1) / 2
	if s.operator.current.Previous != nil {
		spare = 0 // a majority of the previous list has to be up, too
	}
	if s.schedule.lasting() {
		spare = 0 // these faults prevent a majority from time to time
	}
	least := s.lowestEligible() // restarts always, so that there is a candidate
	for id := election.ID(1); id <= s.maxID; id++ {
		p := &s.processes[id]
		if p.up && p.pausedUntil > s.queue.now {
			p.pausedUntil, p.wakeAt = s.queue.now+1, election.Never
			s.setTimer(id)
		}
		s.finishSettingsChange(id)
		s.finishLeaseChange(id)
		switch {
		case !s.operator.current.Has(id):
			s.crash(id, action{})
		case !p.up && spare > 0 && id != least && s.rng.percent(30):
			spare--
		case !p.up:
			s.restart(id)
		}
	}
	s.reportFault(outageHeal, election.None, "all faults end")
	s.schedule.healAt = s.queue.now
	s.schedule.deadline = s.queue.now + s.convergeWithin()
}
