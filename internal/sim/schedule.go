package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// termTicks is how many ticks make a term, in most plans.
const termTicks election.Tick = 8

// convergeWithin is how many ticks after everything has healed all must agree
// and stay quiet.
const convergeWithin = 24 * (lease + patience)

// plan is what goes wrong in a schedule, and when: all of it drawn from the
// seed.
type schedule struct {
	// faults are the kinds that this schedule has.
	faults  Fault
	actions []action
	healAt  election.Tick
	// deadline is when everyone must have agreed.
	deadline election.Tick
	// quietFor is how long nothing may happen after that.
	quietFor election.Tick

	// before is the lease that all start with, after the one that they get.
	leaseBefore, leaseAfter election.Tick

	// termTicks is how many ticks of the wall clock make a term.
	termTicks election.Tick

	lossPercent, delayPercent, reorderPercent, duplicatePercent int
}

type actionKind uint8

const (
	actCrash actionKind = iota
	actCrashAll
	actRestart
	actKillApp // the application
	actReviveApp
	actPause
	actPartition
	actCutLink
	actHealLinks
	actChangeMembers
	actRepublish
	actStepDown
	actChangeLease
	actHealAll
)

type action struct {
	at   election.Tick
	kind actionKind
	// target is drawn when the time has come: 0 is the coordinator.
	target election.ID
	lasts  election.Tick
	silent bool
}

// draw makes a plan: one to three kinds of faults, one to four things that go
// wrong; every sixteenth schedule has none.
func (p *schedule) draw(s *simulation) {
	r := &s.rng
	*p = schedule{actions: p.actions[:0], quietFor: heartbeat, termTicks: termTicks, leaseBefore: lease, leaseAfter: lease}
	if r.percent(15) {
		p.termTicks = lease / 2 // terms are scarce: an election may have to wait for the next
	}
	if r.percent(5) {
		p.quietFor = lease + patience + 4*heartbeat
	}
	p.faults = s.faults
	if r.percent(75) {
		var some Fault
		for range 3 {
			some |= 1 << r.below(commonFaults)
		}
		p.faults &= some | Leases
	}
	s.policy = office.Always
	if r.percent(25) {
		s.policy = office.WhenStable
	} else if r.percent(5) {
		s.policy = office.NeverPreempt
	}
	p.lossPercent = p.drawPercent(r, Loss)
	p.delayPercent = p.drawPercent(r, Delay)
	p.reorderPercent = p.drawPercent(r, Reorder)
	p.duplicatePercent = p.drawPercent(r, Duplicate)

	at := 3 * transMax
	kinds := p.enabledActions()
	if len(kinds) > 0 {
		for range r.between(1, 4) {
			at += election.Tick(r.below(int(patience)))
			p.add(s, at, kinds[r.below(len(kinds))])
		}
	}
	if p.faults&Leases != 0 {
		at = p.drawLeaseChange(s, at)
	}
	s.checker.electionCause = p.faults&(Loss|Delay) != 0
	p.healAt = at + election.Tick(r.below(int(lease)))
	p.deadline = p.healAt + convergeWithin
	p.push(s, action{at: p.healAt, kind: actHealAll})
}

func (p *schedule) drawPercent(r *rng, f Fault) int {
	if p.faults&f == 0 {
		return 0
	}
	return r.between(2, 40)
}

var actionFaults = []Fault{Crash, AppDead, Pause, Partition, Members, StepDown}

// kinds are the faults that happen at a moment, rather than to messages.
func (p *schedule) enabledActions() []Fault {
	var kinds []Fault
	for _, f := range actionFaults {
		if p.faults&f != 0 {
			kinds = append(kinds, f)
		}
	}
	return kinds
}

// add puts one thing that goes wrong into the plan.
func (p *schedule) add(s *simulation, at election.Tick, f Fault) {
	r := &s.rng
	a := action{at: at, lasts: election.Tick(r.below(int(2 * lease))), silent: r.percent(30)}
	if r.percent(50) {
		a.target = election.ID(r.between(1, s.size))
	}
	switch f {
	case Crash:
		if r.percent(10) {
			a.kind = actCrashAll
			break
		}
		a.kind = actCrash
	case AppDead:
		a.kind = actKillApp
	case Pause:
		a.kind = actPause
	case Partition:
		a.kind = actPartition
		if r.percent(30) {
			a.kind = actCutLink
		}
		if r.percent(50) {
			p.push(s, action{at: at + a.lasts, kind: actHealLinks})
		}
	case Members:
		a.kind = actChangeMembers
	default:
		a.kind = actStepDown
	}
	p.push(s, a)
}

func (p *schedule) push(s *simulation, a action) {
	s.queue.push(event{at: a.at, kind: eventAction, slot: uint32(len(p.actions))})
	p.actions = append(p.actions, a)
}

func (p *schedule) drawClock(s *simulation) clock {
	c := clock{rate: trueRate, termTicks: p.termTicks}
	if p.faults&Clocks != 0 {
		// Nearly as different as a lease's margin allows for.
		c.rate += int64(s.rng.between(-trueRate/34, trueRate/34))
		c.offset = election.Tick(s.rng.below(1000))
		c.skew = election.Term(s.rng.below(int(3*termTicks/p.termTicks) + 1))
	}
	return c
}

func (p *schedule) loses(s *simulation) bool {
	return p.lossPercent > 0 && s.rng.percent(p.lossPercent)
}
func (p *schedule) delays(s *simulation) bool {
	return p.delayPercent > 0 && s.rng.percent(p.delayPercent)
}

func (p *schedule) reorders(s *simulation) bool {
	return p.reorderPercent > 0 && s.rng.percent(p.reorderPercent)
}

func (p *schedule) duplicates(s *simulation) bool {
	return p.duplicatePercent > 0 && s.rng.percent(p.duplicatePercent)
}

// target is the process that an action means.
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

// announce tells whoever watches what goes wrong.
func (s *simulation) reportFault(id election.ID, format string, args ...any) {
	if s.watch != nil {
		s.watch(Step{At: s.queue.now, Process: id, Fault: fmt.Sprintf(format, args...)})
	}
}

// execute does what the plan says.
func (s *simulation) execute(a action) {
	s.checker.electionCause = s.checker.electionCause || s.mayCauseElection(a)
	switch a.kind {
	case actCrash:
		s.crash(s.target(a), a)
	case actCrashAll:
		for id := election.ID(1); id <= s.maxID; id++ {
			s.crash(id, a)
		}
	case actRestart:
		s.restart(a.target)
	case actKillApp:
		s.killApp(s.target(a), a)
	case actReviveApp:
		s.reviveApp(a.target)
	case actPause:
		s.pause(s.target(a), a)
	case actPartition:
		s.partition()
	case actCutLink:
		from, to := s.target(a), election.ID(s.rng.between(1, int(s.maxID)))
		s.network.cut(from, to)
		s.reportFault(from, "the link to %d fails", to)
	case actHealLinks:
		s.network.heal()
		s.reportFault(election.None, "the network is whole again")
	case actChangeMembers:
		s.changeMembers(a)
	case actRepublish:
		s.publish()
	case actStepDown:
		s.stepDown(s.target(a))
	case actChangeLease:
		s.changeLease(a.target, a)
	case actHealAll:
		s.healAll()
	}
}

func (s *simulation) crash(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up {
		return
	}
	if p.status.Token != 0 {
		p.lostTenureUntil = p.status.Until
	}
	p.up, p.running, p.crashedSilently, p.downSince = false, false, a.silent, s.queue.now
	p.status = election.Status{}
	if a.silent {
		s.reportFault(id, "crashes, and nobody is told")
	} else {
		s.reportFault(id, "crashes")
		s.notifyPeers(id, p.life)
	}
	if !s.members.current.Has(id) {
		s.markRemoved(p)
	} else if s.queue.now < s.schedule.healAt && s.rng.percent(70) {
		s.schedule.push(s, action{at: s.queue.now + a.lasts + 1, kind: actRestart, target: id})
	}
}

// notifyPeers lets everyone who is connected notice that a process has ended.
func (s *simulation) notifyPeers(id election.ID, life uint32) {
	for other := election.ID(1); other <= s.maxID; other++ {
		if other == id || !s.processes[other].up || s.network.isCut(id, other) || s.network.isCut(other, id) {
			continue
		}
		at := s.queue.now + election.Tick(s.rng.between(1, int(transMax)))
		if s.rng.percent(20) { // so late that another life may have begun
			at += election.Tick(s.rng.below(int(2 * lease)))
		}
		s.queue.push(event{at: at, kind: eventPeerEnded, process: other, peer: id, slot: life})
	}
}

func (s *simulation) restart(id election.ID) {
	p := &s.processes[id]
	if !p.exists || p.up || p.removed {
		return
	}
	if !s.members.current.Has(id) {
		return // its pod is not made again
	}
	s.adoptLatest(p)
	s.reportFault(id, "comes back without its memory")
	s.boot(id, true)
}

func (s *simulation) pause(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up {
		return
	}
	p.pausedUntil = max(p.pausedUntil, s.queue.now+a.lasts)
	s.reportFault(id, "stands still until %d", p.pausedUntil)
}

func (s *simulation) killApp(id election.ID, a action) {
	p := &s.processes[id]
	if !p.up || s.queue.now < p.pausedUntil || p.appDead {
		return
	}
	p.appDead, p.running = true, false
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
	s.step(id, election.Input{Kind: election.BecomeEligible})
}

func (s *simulation) stepDown(id election.ID) {
	if p := &s.processes[id]; p.up && s.queue.now >= p.pausedUntil {
		s.step(id, election.Input{Kind: election.StepDown})
	}
}

// lowest is the member of lowest rank that may stand.
func (s *simulation) lowestEligible() election.ID {
	lowest := election.None
	for _, m := range s.members.current.Ranked() {
		if m.Priority > 0 {
			lowest = m.ID
		}
	}
	return lowest
}

// actHealAll ends every fault. Who is down comes back, but for a minority.
func (s *simulation) healAll() {
	s.network.heal()
	spare := (s.members.current.Len() - 1) / 2
	if s.members.current.Previous != nil {
		spare = 0 // a majority of that list has to come back, too
	}
	least := s.lowestEligible() // if nobody else, it may lead
	for id := election.ID(1); id <= s.maxID; id++ {
		p := &s.processes[id]
		if p.up && p.pausedUntil > s.queue.now {
			p.pausedUntil, p.wakeAt = s.queue.now+1, election.Never
			s.setTimer(id)
		}
		s.finishLeaseChange(id)
		switch {
		case !s.members.current.Has(id):
			s.crash(id, action{})
		case !p.up && spare > 0 && id != least && s.rng.percent(30):
			spare--
		case !p.up:
			s.restart(id)
		}
	}
	s.reportFault(election.None, "all faults end")
	s.schedule.healAt = s.queue.now
	s.schedule.deadline = s.queue.now + convergeWithin
}
