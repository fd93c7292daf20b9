package sim

import (
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// The time settings of most schedules, in ticks. They leave little margin: one
// lost BEAT makes a process suspect the coordinator, and two end a tenure.
const (
	// transMax is the longest time that a message takes without the faults Delay and Latency.
	transMax         election.Tick = 4
	heartbeat        election.Tick = 40
	suspicionTimeout election.Tick = 56
	lease            election.Tick = 88
	stagger          election.Tick = 12
)

// firstTerm is the term in which the processes of most schedules start.
var firstTerm = election.FirstTerm(1) + 1

// maxStepsPerProcess ends a schedule that doesn't terminate. Most schedules take less than a tenth of it.
const maxStepsPerProcess = 40_000

// maxMembers is the most processes that a schedule can have, including those that
// join. The type network stores the cut links of a process in 32 bits.
const maxMembers = 30

type settings struct {
	algorithm catalog.Algorithm
	mode      office.Mode
	size      int
	faults    Fault
	// convergenceEvery: all other schedules end with their last fault. 0 is as 1.
	convergenceEvery uint64
	// onTransition, if set, is called with each change of a role.
	onTransition func(office.Transition)
	// onAction, if set, is called with each action before it is carried out, and onFault with other faults, and the
	// process that is affected, or None if all are.
	onAction func(action)
	onFault  func(Fault, election.ID)
	// onBoot, if set, is called with the configuration of each incarnation, and onSettings with its later settings.
	onBoot     func(election.ID, office.Config)
	onSettings func(election.ID, office.Settings)
}

// simulation runs one schedule after another, reusing its memory.
type simulation struct {
	settings
	rng         rng
	rng2        rng // for the faults after Leases: see processFaultChances
	rng3        rng // for the faults from Latency on
	rng4        rng // for disks, and what the operator knows
	queue       queue
	slab        slab
	out         election.Output
	processes   []process   // by ID
	maxID       election.ID // of all processes so far
	firstRoster *election.Roster
	firstList   *memberlist.List // firstRoster as the operator has it
	// witnessed: in some of the schedules of three processes, the third one is a witness. Another one replaces it.
	witnessed bool
	policy    office.Policy
	possible  Fault // the faults that this schedule may have
	schedule  schedule
	network   network
	operator  operator
	outages   outages
	checker   checker
	// alignHeartbeats is set for some of the schedules: see office.Config.
	alignHeartbeats bool
	// joinsLate: in some of the schedules, processes join the group some time after their start.
	joinsLate bool
	// remembers: in some of the schedules, processes remember their grants after some restarts.
	remembers bool
	steps     uint64
	// endsWithFaults: this schedule ends with its last fault.
	endsWithFaults bool
	// continued counts the schedules that were continued after their last fault.
	continued int
	watch     func(transcript.Step)
}

func newSimulation(s settings) (*simulation, error) {
	w := &simulation{settings: s}
	if err := w.setFirstList(); err != nil {
		return nil, err
	}
	w.processes = make([]process, maxMembers+1)
	return w, nil
}

// setFirstList sets the list with which the processes start.
func (s *simulation) setFirstList() (err error) {
	members := make([]memberlist.Member, s.size)
	for i := range members {
		id := election.ID(i + 1)
		members[i] = memberlist.Member{
			Name: name(id), Priority: priority(id, i+1), Identity: formatIdentity(identity(id, 1)),
		}
	}
	if s.witnessed {
		members[s.size-1].Priority = 0
	}
	s.firstList = &memberlist.List{Version: 1, Members: members, Settled: true}
	s.firstRoster, err = election.RosterOf(s.firstList, idOf)
	return err
}

func (s *simulation) run(seed uint64) (v *Violation) {
	defer func() {
		if r := recover(); r != nil {
			v = &Violation{Seed: seed, Invariant: "no panic", Detail: fmt.Sprint(r)}
		}
	}()
	s.start(seed)
	began := s.steps
	for {
		e, more := s.queue.pop()
		switch {
		case !more:
			s.checker.fail("progress", "no event is pending")
		case s.steps-began > maxStepsPerProcess*uint64(s.maxID):
			s.checker.fail("progress", fmt.Sprintf("no end at %d after %d steps", e.at, s.steps-began))
		case e.at > s.schedule.deadline && s.schedule.lasting():
			s.checkLastingFaults()
			s.queue.push(e)
		case e.at > s.schedule.deadline && s.schedule.limitsMembers():
			s.checkGraph()
			s.queue.push(e)
		case e.at > s.schedule.deadline:
			s.checker.fail("convergence", s.disagreement())
		default:
			s.handle(e)
		}
		if v := s.checker.violation; v != nil {
			v.Seed = seed
			return v
		}
		if s.checker.done {
			return nil
		}
	}
}

func (s *simulation) start(seed uint64) {
	s.rng = rng(seed)
	s.rng.next()
	s.rng2 = rng(^seed)
	s.rng2.next()
	s.rng3 = rng(seed * 3)
	s.rng3.next()
	s.rng4 = rng(seed * 7)
	s.rng4.next()
	s.alignHeartbeats, s.joinsLate, s.remembers = seed%8 == 1, seed%16 == 7, seed%4 == 2
	s.queue.reset()
	s.slab.reset()
	s.network.reset()
	s.checker.reset()
	s.outages.reset()
	// the fields above depend on seed%8 or seed%16
	s.endsWithFaults = s.convergenceEvery > 1 && seed/8%s.convergenceEvery != 0
	if witnessed := s.size == 3 && s.usesGrants() && seed%8 == 3; witnessed != s.witnessed {
		s.witnessed = witnessed
		if err := s.setFirstList(); err != nil {
			panic(err)
		}
	}
	s.operator.reset(s.firstRoster, s.firstList)
	for id := range s.processes {
		s.processes[id] = process{machine: s.processes[id].machine}
	}
	s.maxID = election.ID(s.size)
	s.possible = s.possibleFaults(seed)
	s.schedule.draw(s)
	if s.watch != nil {
		s.reportFault(outageStart, election.None, "this schedule has the faults %s",
			strings.Join(s.schedule.faults.names(), ", "))
	}
	for id := election.ID(1); id <= s.maxID; id++ {
		s.processes[id].roster, s.processes[id].lease.next = s.firstRoster, s.schedule.leaseBefore
		s.newDisk(id)
		s.processes[id].disk.reserved = min(s.schedule.startsIn+election.Block, election.LastTerm(1))
		s.operator.connected(id, s.processes[id].disk.identity)
		s.boot(id, false, 0)
	}
}

// boot starts an incarnation of a process. Its memory may be lost. claimed is the highest term in which the same
// incarnation has claimed the office.
func (s *simulation) boot(id election.ID, memoryLost bool, claimed election.Term) {
	p := &s.processes[id]
	if !p.exists {
		p.exists = true
		p.clock = s.schedule.drawClock(s)
	}
	now := s.queue.now
	ended := s.drawEarlierEnd(p)
	fresh, forgotten := !p.disk.hasList, p.disk.reserved
	if fresh {
		forgotten = 0
	}
	s.store(p, p.slot)
	s.beginLease(p, ended, fresh)
	p.up, p.pausedUntil, p.appDead, p.running, p.bootedAt = true, 0, false, false, now
	p.incarnation++
	s.updateVote(id, fresh)
	p.wakeAt = election.Never
	c := office.Config{
		Config:      election.Config{Self: id, Roster: p.roster, Timing: election.DefaultTiming(transMax, 0)},
		NewElection: s.algorithm.New, Life: p.incarnation, MemoryLost: memoryLost && !fresh, Memory: s.remembered(p),
		Tenures:  p.rememberedTenures(),
		Identity: p.disk.identity, Reserved: p.disk.reserved, Forgotten: forgotten,
		LongestEarlierLease: p.lease.longest, EarlierEnded: ended, Start: p.clock.local(now),
		AlignHeartbeats: s.alignHeartbeats, OnTransition: s.onTransition,
	}
	s.mix(p)
	c.Apply(s.officeSettings(p))
	s.schedule.drawGrowth(s, &c)
	c.Timing.Takeover = c.Timing.Reply * election.Tick(2+s.size)
	if c.Term = claimed; !memoryLost {
		c.Term, c.Coordinator = s.schedule.startsIn, s.firstRoster.Ranked()[0].ID
	}
	if p.machine == nil {
		p.machine = new(office.Machine)
	}
	if err := p.machine.Restart(c); err != nil {
		s.checker.fail("setup", err.Error())
		return
	}
	if s.onBoot != nil {
		s.onBoot(id, c)
	}
	p.status = p.machine.Status()
	p.status.Term = 0
	s.connectSoon(id)
	if memoryLost && !p.roster.Has(id) {
		s.checker.fail("setup", "a process boots with a member list that doesn't include it")
	}
	s.setTimer(id)
}

// handle processes an event. An event of a paused process is postponed until the process resumes.
func (s *simulation) handle(e event) {
	if e.kind == eventAction {
		s.execute(s.schedule.actions[e.slot])
		return
	}
	if e.kind == eventDelivery {
		s.handleArrival(e)
		return
	}
	p := &s.processes[e.process]
	switch {
	case !p.up:
	case e.at < p.pausedUntil:
		if e.kind == eventTimer && p.wakeAt == e.at {
			p.wakeAt = p.pausedUntil
		}
		e.at = p.pausedUntil
		s.queue.push(e)
	case e.kind == eventTimer:
		s.handleTimer(e, p)
	case e.kind == eventUndelivered:
		m := s.slab.take(e.slot)
		if e.peer == election.ID(p.incarnation) {
			s.step(e.process, election.Input{Kind: election.Undelivered, Message: m})
		}
	case e.kind == eventPeerEnded:
		s.step(e.process, election.Input{Kind: election.Ended, Peer: e.peer, Life: e.slot})
	case e.kind == eventAppStopped:
		if e.slot == p.tenures && p.running {
			p.running = false
			s.step(e.process, election.Input{Kind: election.Stopped, Term: p.stopTerm})
		}
	case e.kind == eventRoster:
		s.receive(e.process, e)
	case e.kind == eventReserved:
		s.finishWrite(e.process, e.slot)
	case e.kind == eventConnected:
		s.connect(e.process, e)
	}
}

func (s *simulation) handleTimer(e event, p *process) {
	if p.wakeAt != e.at {
		return
	}
	p.wakeAt = election.Never
	if p.machine.Deadline() <= p.clock.local(e.at) {
		s.step(e.process, election.Input{Kind: election.TimePassed})
		if p.status.Token != 0 && e.at >= s.schedule.healAt {
			switch {
			case s.schedule.lasting(): // checkLastingFaults ends it
			case s.schedule.limitsMembers():
				s.checkStays()
			default:
				s.checkAgreement()
			}
		}
		return
	}
	s.setTimer(e.process)
}

// setTimer schedules a timer event for the process's deadline, unless one is
// pending that fires no later. A timer that fires before the deadline is set again.
func (s *simulation) setTimer(id election.ID) {
	p := &s.processes[id]
	due := p.machine.Deadline()
	if due == election.Never {
		return
	}
	at := max(p.clock.global(due), s.queue.now)
	if p.wakeAt <= at {
		return
	}
	p.wakeAt = at
	s.queue.push(event{at: at, kind: eventTimer, process: id})
}

// handleArrival delivers a message, if the link works and the receiver is up. If it is
// down, the sender may learn of it.
func (s *simulation) handleArrival(e event) {
	p := &s.processes[e.process]
	if p.up && e.at < p.pausedUntil {
		e.at = p.pausedUntil
		s.queue.push(e)
		return
	}
	m := s.slab.take(e.slot)
	switch {
	case s.network.isCut(m.From, m.To):
	case p.up:
		s.step(e.process, election.Input{Kind: election.Receive, Message: m})
	case m.Kind.Counts() && !p.crashedSilently && s.processes[m.From].up && !s.network.isCut(m.To, m.From):
		// The sender's connection attempt is refused.
		at := e.at + s.rng.ticks(1, transMax)
		incarnation := election.ID(s.processes[m.From].incarnation)
		s.queue.push(event{at: at, kind: eventUndelivered, process: m.From, peer: incarnation, slot: s.slab.put(&m)})
	}
}

// step passes an input to a process, sends its messages, and checks the invariants that hold after every step.
func (s *simulation) step(id election.ID, in election.Input) {
	p := &s.processes[id]
	in.Now = p.clock.local(s.queue.now)
	s.out.Reset()
	p.machine.Step(in, &s.out)
	s.steps++
	if s.watch != nil {
		s.watch(transcript.Step{At: s.queue.now, Process: id, Input: in, Output: &s.out})
	}
	for i := range s.out.Send {
		s.send(&s.out.Send[i])
	}
	for i := range s.out.Events {
		s.handleEvent(id, &s.out.Events[i])
	}
	held := p.status.Token != 0
	s.checkVote(id)
	s.checkStatus(id)
	s.followOutage(id, held, &in)
	s.reserve(id, p)
	s.stall(p)
	s.setTimer(id)
}

// send schedules the delivery of a message, subject to the faults that affect messages.
func (s *simulation) send(m *election.Message) {
	if s.network.isCut(m.From, m.To) {
		return
	}
	if s.schedule.lossy > 0 && s.rng3.percent(s.schedule.lossy) {
		return
	}
	now := s.queue.now
	delay := s.rng.ticks(1, transMax) + s.schedule.latency + s.schedule.tail.draw(s)
	fifo := true
	if now < s.schedule.healAt {
		if s.rng.affects(s.schedule.lossPercent) {
			s.cover(Loss, m.From)
			return
		}
		if s.rng.affects(s.schedule.delayPercent) {
			s.cover(Delay, m.From)
			delay += s.rng.tick(2 * suspicionTimeout)
		}
		if s.rng.affects(s.schedule.reorderPercent) {
			s.cover(Reorder, m.From)
			fifo = false
		}
		if s.rng.affects(s.schedule.duplicatePercent) {
			s.cover(Duplicate, m.From)
			late := s.rng.tick(lease)
			s.queue.push(event{at: now + delay + late, kind: eventDelivery, process: m.To, slot: s.putCopy(m)})
		}
	}
	at := now + delay
	if fifo {
		at = s.network.fifoArrival(m.From, m.To, at)
	}
	s.queue.push(event{at: at, kind: eventDelivery, process: m.To, slot: s.slab.put(m)})
}

func (s *simulation) cover(f Fault, id election.ID) {
	if s.onFault != nil {
		s.onFault(f, id)
	}
}

func (s *simulation) putCopy(m *election.Message) uint32 {
	c := *m
	c.List = append([]election.ID(nil), m.List...)
	return s.slab.put(&c)
}
