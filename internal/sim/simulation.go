package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The times of a sampled world, in ticks. One BEAT that is lost makes a suspect,
// and two a tenure lapse, so that little has to happen for much to go wrong.
const (
	transMax  election.Tick = 4
	heartbeat election.Tick = 40
	patience  election.Tick = 56
	lease     election.Tick = 88
	stagger   election.Tick = 12
	drain     election.Tick = 12
	stable    election.Tick = 24
	// initialWallClock is the wall clock's reading at the start, in terms.
	initialWallClock election.Term = 1000
)

// maxStepsPerSchedule ends a schedule that goes round in circles. The longest ones take a
// tenth of it.
const maxStepsPerSchedule = 200_000

// maxMembers bounds the processes of a sampled world, those that join included:
// links are bits.
const maxMembers = 30

// settings are what all schedules of a sampling have in common.
type settings struct {
	algorithm catalog.Algorithm
	mode      office.Mode
	size      int
	faults    Fault
}

// world is a schedule that runs. It is used again for the next one.
type simulation struct {
	settings
	rng         rng
	queue       wheel
	slab        slab
	out         election.Output
	processes   []process // by ID
	maxID       election.ID
	firstRoster *election.Roster
	policy      office.Policy
	schedule    schedule
	network     network
	members     memberList
	checker     checker
	steps       uint64
	traceHash   uint64
	watch       func(Step)
}

// process is one process with its machine, its clock and its application.
type process struct {
	machine *office.Machine
	exists  bool
	up      bool
	life    uint32
	// buried: it was removed from the member list while it was down, and never
	// comes back.
	removed bool
	// silent: it ended without a reset of its connections.
	crashedSilently bool
	downSince       election.Tick
	// pausedUntil is when it goes on, 0 when it isn't paused.
	pausedUntil election.Tick
	appDead     bool
	wakeAt      election.Tick
	roster      *election.Roster
	adoptedAt   election.Tick
	clock       clock
	lease       leaseState

	// running: the application acts as coordinator; it was asked to stop at
	// stopRequestedAt.
	running         bool
	stopRequestedAt election.Tick
	stopTerm        election.Term
	// tenures counts how often it has held the office.
	tenures uint32
	status  election.Status
	// lostTenureUntil is until when it would have had tenure, on its own clock, if it
	// hadn't crashed.
	lostTenureUntil election.Tick
}

// clock is a process's own: its rate is in 65536ths, its wall clock is off by
// skew terms.
type clock struct {
	rate      int64
	offset    election.Tick
	skew      election.Term
	termTicks election.Tick
}

const trueRate = 1 << 16

func (c clock) local(at election.Tick) election.Tick {
	return c.offset + at*election.Tick(c.rate)/trueRate
}

// global is the first moment at which the process's clock reads local or more.
func (c clock) global(local election.Tick) election.Tick {
	if local == election.Never {
		return election.Never
	}
	return ((local-c.offset)*trueRate + election.Tick(c.rate) - 1) / election.Tick(c.rate)
}

// wall is the reading of the process's wall clock in terms.
func (c clock) wall(at election.Tick) election.Term {
	return initialWallClock + c.skew + election.Term((c.local(at)-c.offset)/c.termTicks)
}

func newSimulation(s settings) (*simulation, error) {
	w := &simulation{settings: s}
	ring := make([]election.Member, s.size)
	for i := range ring {
		ring[i] = election.Member{ID: election.ID(i + 1), Priority: priority(election.ID(i+1), i+1)}
	}
	var err error
	w.firstRoster, err = election.NewRoster(1, ring)
	w.processes = make([]process, maxMembers+1)
	return w, err
}

// priority is one that no other process ever has: two coordinators with the same
// term and priority would have the same token.
func priority(id election.ID, level int) election.Priority {
	return election.Priority(64*level) + election.Priority(id)
}

// run runs the schedule of a seed and returns what it violates, if anything.
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
			s.checker.fail("progress", "nothing is left to happen")
		case s.steps-began > maxStepsPerSchedule:
			s.checker.fail("progress", fmt.Sprintf("at %d it doesn't go on: more than %d steps", e.at, maxStepsPerSchedule))
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
	s.queue.reset()
	s.slab.reset()
	s.network.reset()
	s.checker.reset()
	s.traceHash = 14695981039346656037
	s.members = memberList{current: s.firstRoster}
	for id := range s.processes {
		s.processes[id] = process{machine: s.processes[id].machine}
	}
	s.maxID = election.ID(s.size)
	s.schedule.draw(s)
	for id := election.ID(1); id <= s.maxID; id++ {
		s.processes[id].roster, s.processes[id].lease.next = s.firstRoster, s.schedule.leaseBefore
		s.boot(id, false)
	}
}

// boot starts a life of a process. A fresh one remembers nothing.
func (s *simulation) boot(id election.ID, fresh bool) {
	p := &s.processes[id]
	if !p.exists {
		p.exists = true
		p.clock = s.schedule.drawClock(s)
	}
	now := s.queue.now
	s.beginLease(p)
	p.up, p.pausedUntil, p.appDead, p.running = true, 0, false, false
	p.life++
	p.wakeAt = election.Never
	c := office.Config{
		Config:      election.Config{Self: id, Roster: p.roster, Timing: election.DefaultTiming(transMax, 0)},
		NewElection: s.algorithm.New, Mode: s.mode, Lease: p.lease.current, Heartbeat: heartbeat, SuspicionTimeout: patience, Stagger: stagger,
		Policy: s.policy, StablePeriod: stable, DrainTimeout: drain, Life: p.life, MemoryLost: fresh, LongestEarlierLease: p.lease.longest, Start: p.clock.local(now),
		Clock: election.TermClock{AtBoot: p.clock.wall(now), Boot: p.clock.local(now), TicksPerTerm: s.schedule.termTicks},
	}
	c.Timing.Takeover = c.Timing.Reply * election.Tick(2+s.size)
	if !fresh {
		c.Term, c.Coordinator = 1, s.firstRoster.Ranked()[0].ID
	}
	if p.machine == nil {
		p.machine = new(office.Machine)
	}
	if err := p.machine.Restart(c); err != nil {
		s.checker.fail("setup", err.Error())
		return
	}
	p.status = p.machine.Status()
	p.status.Term = 0
	if fresh && !p.roster.Has(id) {
		s.checker.fail("setup", "a process boots with a list that it isn't on")
	}
	s.setTimer(id)
}

// happen carries out an event, or keeps it while its process stands still.
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
		if e.peer == election.ID(p.life) {
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
		s.adopt(e.process, s.members.published[e.slot])
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
			s.checkAgreement()
		}
		return
	}
	s.setTimer(e.process)
}

// arm sets the alarm for the process's deadline. An alarm that is set too early
// is set again when it goes off.
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

// arrive delivers a message.
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
	case p.up && election.Tick(e.peer) != p.lease.current: // it doesn't listen to those
	case p.up:
		s.step(e.process, election.Input{Kind: election.Receive, Message: m})
	case m.Kind.Counts() && !p.crashedSilently && s.processes[m.From].up && !s.network.isCut(m.To, m.From):
		// The dial is refused.
		at := e.at + election.Tick(s.rng.between(1, int(transMax)))
		life := election.ID(s.processes[m.From].life)
		s.queue.push(event{at: at, kind: eventUndelivered, process: m.From, peer: life, slot: s.slab.put(&m)})
	}
}

// step lets a process take an input, sends what it sends, and checks what must
// always hold.
func (s *simulation) step(id election.ID, in election.Input) {
	p := &s.processes[id]
	in.Now = p.clock.local(s.queue.now)
	s.out.Reset()
	p.machine.Step(in, &s.out)
	s.steps++
	s.hashTrace(uint64(id)<<16 | uint64(in.Kind)<<8 | uint64(in.Message.Kind))
	if s.watch != nil {
		s.watch(Step{At: s.queue.now, Process: id, Input: in, Output: &s.out})
	}
	for i := range s.out.Send {
		s.send(&s.out.Send[i])
	}
	for i := range s.out.Events {
		s.handleEvent(id, &s.out.Events[i])
	}
	s.checkStatus(id)
	s.setTimer(id)
}

func (s *simulation) hashTrace(x uint64) { s.traceHash = (s.traceHash ^ x) * 1099511628211 }

// send puts a message on its way, or into one of the faults.
func (s *simulation) send(m *election.Message) {
	if s.network.isCut(m.From, m.To) {
		return
	}
	charter := election.ID(s.processes[m.From].lease.current)
	now := s.queue.now
	delay := election.Tick(s.rng.between(1, int(transMax)))
	fifo := true
	if now < s.schedule.healAt {
		if s.schedule.loses(s) {
			return
		}
		if s.schedule.delays(s) {
			delay += election.Tick(s.rng.below(int(2 * patience)))
		}
		fifo = !s.schedule.reorders(s)
		if s.schedule.duplicates(s) {
			late := election.Tick(s.rng.below(int(lease)))
			s.queue.push(event{at: now + delay + late, kind: eventDelivery, process: m.To, peer: charter, slot: s.putCopy(m)})
		}
	}
	at := now + delay
	if fifo {
		at = s.network.fifoArrival(m.From, m.To, at)
	}
	s.queue.push(event{at: at, kind: eventDelivery, process: m.To, peer: charter, slot: s.slab.put(m)})
}

func (s *simulation) putCopy(m *election.Message) uint32 {
	c := *m
	c.List = append([]election.ID(nil), m.List...)
	return s.slab.put(&c)
}
