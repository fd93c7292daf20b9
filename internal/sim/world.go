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
	// firstReading is the wall clock's reading at the start, in terms.
	firstReading election.Term = 1000
)

// stepsMax ends a schedule that goes round in circles. The longest ones take a
// tenth of it.
const stepsMax = 200_000

// maxMembers bounds the processes of a sampled world, those that join included:
// links are bits.
const maxMembers = 30

// settings are what all schedules of a sampling have in common.
type settings struct {
	algorithm catalog.Algorithm
	mode      office.Mode
	processes int
	faults    Fault
}

// world is a schedule that runs. It is used again for the next one.
type world struct {
	settings
	rng    rng
	queue  wheel
	slab   slab
	out    election.Output
	all    []process // by ID
	ever   election.ID
	first  *election.Roster
	policy office.Policy
	plan   plan
	links  links
	list   memberList
	check  checker
	steps  uint64
	trace  uint64
	watch  func(Step)
}

// process is one process with its machine, its clock and its application.
type process struct {
	machine *office.Machine
	exists  bool
	up      bool
	life    uint32
	// buried: it was removed from the member list while it was down, and never
	// comes back.
	buried bool
	// silent: it ended without a reset of its connections.
	silent    bool
	downSince election.Tick
	// pausedUntil is when it goes on, 0 when it isn't paused.
	pausedUntil election.Tick
	withdrawn   bool
	wakeAt      election.Tick
	roster      *election.Roster
	adoptedAt   election.Tick
	clock       clock
	lease       tenancy

	// running: the application acts as coordinator; it was asked to stop at
	// stopAsked.
	running   bool
	stopAsked election.Tick
	stopTerm  election.Term
	// tenures counts how often it has held the office.
	tenures uint32
	known   election.Status
	// ghostUntil is until when it would have had tenure, on its own clock, if it
	// hadn't crashed.
	ghostUntil election.Tick
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
	return firstReading + c.skew + election.Term((c.local(at)-c.offset)/c.termTicks)
}

func newWorld(s settings) (*world, error) {
	w := &world{settings: s}
	ring := make([]election.Member, s.processes)
	for i := range ring {
		ring[i] = election.Member{ID: election.ID(i + 1), Priority: priority(election.ID(i+1), i+1)}
	}
	var err error
	w.first, err = election.NewRoster(1, ring)
	w.all = make([]process, maxMembers+1)
	return w, err
}

// priority is one that no other process ever has: two coordinators with the same
// term and priority would have the same token.
func priority(id election.ID, level int) election.Priority {
	return election.Priority(64*level) + election.Priority(id)
}

// run runs the schedule of a seed and returns what it violates, if anything.
func (w *world) run(seed uint64) (v *Violation) {
	defer func() {
		if r := recover(); r != nil {
			v = &Violation{Seed: seed, Invariant: "no panic", Detail: fmt.Sprint(r)}
		}
	}()
	w.start(seed)
	began := w.steps
	for {
		e, more := w.queue.pop()
		switch {
		case !more:
			w.check.fail("progress", "nothing is left to happen")
		case w.steps-began > stepsMax:
			w.check.fail("progress", fmt.Sprintf("at %d it doesn't go on: more than %d steps", e.at, stepsMax))
		case e.at > w.plan.deadline:
			w.check.fail("convergence", w.disagreement())
		default:
			w.happen(e)
		}
		if v := w.check.violation; v != nil {
			v.Seed = seed
			return v
		}
		if w.check.done {
			return nil
		}
	}
}

func (w *world) start(seed uint64) {
	w.rng = rng(seed)
	w.rng.next()
	w.queue.reset()
	w.slab.reset()
	w.links.reset()
	w.check.reset()
	w.trace = 14695981039346656037
	w.list = memberList{current: w.first}
	for id := range w.all {
		w.all[id] = process{machine: w.all[id].machine}
	}
	w.ever = election.ID(w.processes)
	w.plan.draw(w)
	for id := election.ID(1); id <= w.ever; id++ {
		w.all[id].roster, w.all[id].lease.wanted = w.first, w.plan.before
		w.boot(id, false)
	}
}

// boot starts a life of a process. A fresh one remembers nothing.
func (w *world) boot(id election.ID, fresh bool) {
	p := &w.all[id]
	if !p.exists {
		p.exists = true
		p.clock = w.plan.clock(w)
	}
	now := w.queue.now
	w.lease(p)
	p.up, p.pausedUntil, p.withdrawn, p.running = true, 0, false, false
	p.life++
	p.wakeAt = election.Never
	c := office.Config{
		Config: election.Config{Self: id, Roster: p.roster, Timing: election.DefaultTiming(transMax, 0)},
		Elect:  w.algorithm.New, Mode: w.mode, Lease: p.lease.ticks, Heartbeat: heartbeat, Patience: patience, Stagger: stagger,
		Policy: w.policy, Stable: stable, Drain: drain, Life: p.life, Fresh: fresh, Promised: p.lease.promised, Start: p.clock.local(now),
		Clock: election.TermClock{AtBoot: p.clock.wall(now), Boot: p.clock.local(now), TicksPerTerm: w.plan.termTicks},
	}
	c.Timing.Takeover = c.Timing.Reply * election.Tick(2+w.processes)
	if !fresh {
		c.Term, c.Coordinator = 1, w.first.Ranked()[0].ID
	}
	if p.machine == nil {
		p.machine = new(office.Machine)
	}
	if err := p.machine.Restart(c); err != nil {
		w.check.fail("setup", err.Error())
		return
	}
	p.known = p.machine.Status()
	p.known.Term = 0
	if fresh && !p.roster.Has(id) {
		w.check.fail("setup", "a process boots with a list that it isn't on")
	}
	w.arm(id)
}

// happen carries out an event, or keeps it while its process stands still.
func (w *world) happen(e event) {
	if e.kind == fault {
		w.carryOut(w.plan.steps[e.slot])
		return
	}
	if e.kind == deliver {
		w.arrive(e)
		return
	}
	p := &w.all[e.who]
	switch {
	case !p.up:
	case e.at < p.pausedUntil:
		if e.kind == wake && p.wakeAt == e.at {
			p.wakeAt = p.pausedUntil
		}
		e.at = p.pausedUntil
		w.queue.push(e)
	case e.kind == wake:
		w.wake(e, p)
	case e.kind == undelivered:
		m := w.slab.take(e.slot)
		if e.peer == election.ID(p.life) {
			w.step(e.who, election.Input{Kind: election.Undelivered, Message: m})
		}
	case e.kind == noticed:
		w.step(e.who, election.Input{Kind: election.Ended, Peer: e.peer, Life: e.slot})
	case e.kind == stopped:
		if e.slot == p.tenures && p.running {
			p.running = false
			w.step(e.who, election.Input{Kind: election.Stopped, Term: p.stopTerm})
		}
	case e.kind == adopted:
		w.adopt(e.who, w.list.published[e.slot])
	}
}

func (w *world) wake(e event, p *process) {
	if p.wakeAt != e.at {
		return
	}
	p.wakeAt = election.Never
	if p.machine.Deadline() <= p.clock.local(e.at) {
		w.step(e.who, election.Input{Kind: election.TimePassed})
		if p.known.Token != 0 && e.at >= w.plan.healAt {
			w.lookAround()
		}
		return
	}
	w.arm(e.who)
}

// arm sets the alarm for the process's deadline. An alarm that is set too early
// is set again when it goes off.
func (w *world) arm(id election.ID) {
	p := &w.all[id]
	due := p.machine.Deadline()
	if due == election.Never {
		return
	}
	at := max(p.clock.global(due), w.queue.now)
	if p.wakeAt <= at {
		return
	}
	p.wakeAt = at
	w.queue.push(event{at: at, kind: wake, who: id})
}

// arrive delivers a message.
func (w *world) arrive(e event) {
	p := &w.all[e.who]
	if p.up && e.at < p.pausedUntil {
		e.at = p.pausedUntil
		w.queue.push(e)
		return
	}
	m := w.slab.take(e.slot)
	switch {
	case w.links.cut(m.From, m.To):
	case p.up && election.Tick(e.peer) != p.lease.ticks: // it doesn't listen to those
	case p.up:
		w.step(e.who, election.Input{Kind: election.Receive, Message: m})
	case m.Kind.Counts() && !p.silent && w.all[m.From].up && !w.links.cut(m.To, m.From):
		// The dial is refused.
		at := e.at + election.Tick(w.rng.between(1, int(transMax)))
		life := election.ID(w.all[m.From].life)
		w.queue.push(event{at: at, kind: undelivered, who: m.From, peer: life, slot: w.slab.put(&m)})
	}
}

// step lets a process take an input, sends what it sends, and checks what must
// always hold.
func (w *world) step(id election.ID, in election.Input) {
	p := &w.all[id]
	in.Now = p.clock.local(w.queue.now)
	w.out.Reset()
	p.machine.Step(in, &w.out)
	w.steps++
	w.mix(uint64(id)<<16 | uint64(in.Kind)<<8 | uint64(in.Message.Kind))
	if w.watch != nil {
		w.watch(Step{At: w.queue.now, Process: id, Input: in, Output: &w.out})
	}
	for i := range w.out.Send {
		w.send(&w.out.Send[i])
	}
	for i := range w.out.Events {
		w.observe(id, &w.out.Events[i])
	}
	w.verify(id)
	w.arm(id)
}

func (w *world) mix(x uint64) { w.trace = (w.trace ^ x) * 1099511628211 }

// send puts a message on its way, or into one of the faults.
func (w *world) send(m *election.Message) {
	if w.links.cut(m.From, m.To) {
		return
	}
	charter := election.ID(w.all[m.From].lease.ticks)
	now := w.queue.now
	delay := election.Tick(w.rng.between(1, int(transMax)))
	fifo := true
	if now < w.plan.healAt {
		if w.plan.loses(w) {
			return
		}
		if w.plan.delays(w) {
			delay += election.Tick(w.rng.below(int(2 * patience)))
		}
		fifo = !w.plan.reorders(w)
		if w.plan.duplicates(w) {
			late := election.Tick(w.rng.below(int(lease)))
			w.queue.push(event{at: now + delay + late, kind: deliver, who: m.To, peer: charter, slot: w.putCopy(m)})
		}
	}
	at := now + delay
	if fifo {
		at = w.links.inOrder(m.From, m.To, at)
	}
	w.queue.push(event{at: at, kind: deliver, who: m.To, peer: charter, slot: w.slab.put(m)})
}

func (w *world) putCopy(m *election.Message) uint32 {
	c := *m
	c.List = append([]election.ID(nil), m.List...)
	return w.slab.put(&c)
}
