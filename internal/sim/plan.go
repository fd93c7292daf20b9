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
type plan struct {
	// faults are the kinds that this schedule has.
	faults Fault
	steps  []action
	healAt election.Tick
	// deadline is when everyone must have agreed.
	deadline election.Tick
	// quietFor is how long nothing may happen after that.
	quietFor election.Tick

	// before is the lease that all start with, after the one that they get.
	before, after election.Tick

	// termTicks is how many ticks of the wall clock make a term.
	termTicks election.Tick

	lossPercent, delayPercent, reorderPercent, duplicatePercent int
}

type actionKind uint8

const (
	crash actionKind = iota
	crashAll
	restart
	kill // the application
	revive
	pause
	divide
	severOne
	healLinks
	change
	republish
	stepDown
	relet
	healAll
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
func (p *plan) draw(w *world) {
	r := &w.rng
	*p = plan{steps: p.steps[:0], quietFor: heartbeat, termTicks: termTicks, before: lease, after: lease}
	if r.percent(15) {
		p.termTicks = lease / 2 // terms are scarce: an election may have to wait for the next
	}
	if r.percent(5) {
		p.quietFor = lease + patience + 4*heartbeat
	}
	p.faults = w.faults
	if r.percent(75) {
		var some Fault
		for range 3 {
			some |= 1 << r.below(common)
		}
		p.faults &= some | Leases
	}
	w.policy = office.Always
	if r.percent(25) {
		w.policy = office.WhenStable
	} else if r.percent(5) {
		w.policy = office.NeverPreempt
	}
	p.lossPercent = p.chance(r, Loss)
	p.delayPercent = p.chance(r, Delay)
	p.reorderPercent = p.chance(r, Reorder)
	p.duplicatePercent = p.chance(r, Duplicate)

	at := 3 * transMax
	kinds := p.kinds()
	if len(kinds) > 0 {
		for range r.between(1, 4) {
			at += election.Tick(r.below(int(patience)))
			p.add(w, at, kinds[r.below(len(kinds))])
		}
	}
	if p.faults&Leases != 0 {
		at = p.drawLeases(w, at)
	}
	w.check.cause = p.faults&(Loss|Delay) != 0
	p.healAt = at + election.Tick(r.below(int(lease)))
	p.deadline = p.healAt + convergeWithin
	p.push(w, action{at: p.healAt, kind: healAll})
}

func (p *plan) chance(r *rng, f Fault) int {
	if p.faults&f == 0 {
		return 0
	}
	return r.between(2, 40)
}

var planned = []Fault{Crash, AppDead, Pause, Partition, Members, StepDown}

// kinds are the faults that happen at a moment, rather than to messages.
func (p *plan) kinds() []Fault {
	var kinds []Fault
	for _, f := range planned {
		if p.faults&f != 0 {
			kinds = append(kinds, f)
		}
	}
	return kinds
}

// add puts one thing that goes wrong into the plan.
func (p *plan) add(w *world, at election.Tick, f Fault) {
	r := &w.rng
	a := action{at: at, lasts: election.Tick(r.below(int(2 * lease))), silent: r.percent(30)}
	if r.percent(50) {
		a.target = election.ID(r.between(1, w.processes))
	}
	switch f {
	case Crash:
		if r.percent(10) {
			a.kind = crashAll
			break
		}
		a.kind = crash
	case AppDead:
		a.kind = kill
	case Pause:
		a.kind = pause
	case Partition:
		a.kind = divide
		if r.percent(30) {
			a.kind = severOne
		}
		if r.percent(50) {
			p.push(w, action{at: at + a.lasts, kind: healLinks})
		}
	case Members:
		a.kind = change
	default:
		a.kind = stepDown
	}
	p.push(w, a)
}

func (p *plan) push(w *world, a action) {
	w.queue.push(event{at: a.at, kind: fault, slot: uint32(len(p.steps))})
	p.steps = append(p.steps, a)
}

func (p *plan) clock(w *world) clock {
	c := clock{rate: trueRate, termTicks: p.termTicks}
	if p.faults&Clocks != 0 {
		// Nearly as different as a lease's margin allows for.
		c.rate += int64(w.rng.between(-trueRate/34, trueRate/34))
		c.offset = election.Tick(w.rng.below(1000))
		c.skew = election.Term(w.rng.below(int(3*termTicks/p.termTicks) + 1))
	}
	return c
}

func (p *plan) loses(w *world) bool { return p.lossPercent > 0 && w.rng.percent(p.lossPercent) }
func (p *plan) delays(w *world) bool {
	return p.delayPercent > 0 && w.rng.percent(p.delayPercent)
}

func (p *plan) reorders(w *world) bool {
	return p.reorderPercent > 0 && w.rng.percent(p.reorderPercent)
}

func (p *plan) duplicates(w *world) bool {
	return p.duplicatePercent > 0 && w.rng.percent(p.duplicatePercent)
}

// target is the process that an action means.
func (w *world) target(a action) election.ID {
	if a.target != 0 {
		return a.target
	}
	for id := election.ID(1); id <= w.ever; id++ {
		if p := &w.all[id]; p.up && p.known.Token != 0 {
			return id
		}
	}
	return election.ID(w.processes)
}

// announce tells whoever watches what goes wrong.
func (w *world) announce(id election.ID, format string, args ...any) {
	if w.watch != nil {
		w.watch(Step{At: w.queue.now, Process: id, Fault: fmt.Sprintf(format, args...)})
	}
}

// carryOut does what the plan says.
func (w *world) carryOut(a action) {
	w.check.cause = w.check.cause || w.disturbs(a)
	switch a.kind {
	case crash:
		w.crash(w.target(a), a)
	case crashAll:
		for id := election.ID(1); id <= w.ever; id++ {
			w.crash(id, a)
		}
	case restart:
		w.restart(a.target)
	case kill:
		w.withdraw(w.target(a), a)
	case revive:
		w.revive(a.target)
	case pause:
		w.pause(w.target(a), a)
	case divide:
		w.divide()
	case severOne:
		from, to := w.target(a), election.ID(w.rng.between(1, int(w.ever)))
		w.links.sever(from, to)
		w.announce(from, "the link to %d fails", to)
	case healLinks:
		w.links.heal()
		w.announce(election.None, "the network is whole again")
	case change:
		w.changeMembers(a)
	case republish:
		w.publish()
	case stepDown:
		w.askAside(w.target(a))
	case relet:
		w.relet(a.target, a)
	case healAll:
		w.healAll()
	}
}

func (w *world) crash(id election.ID, a action) {
	p := &w.all[id]
	if !p.up {
		return
	}
	if p.known.Token != 0 {
		p.ghostUntil = p.known.Until
	}
	p.up, p.running, p.silent, p.downSince = false, false, a.silent, w.queue.now
	p.known = election.Status{}
	if a.silent {
		w.announce(id, "crashes, and nobody is told")
	} else {
		w.announce(id, "crashes")
		w.noticeEnd(id, p.life)
	}
	if !w.list.current.Has(id) {
		w.bury(p)
	} else if w.queue.now < w.plan.healAt && w.rng.percent(70) {
		w.plan.push(w, action{at: w.queue.now + a.lasts + 1, kind: restart, target: id})
	}
}

// noticeEnd lets everyone who is connected notice that a process has ended.
func (w *world) noticeEnd(id election.ID, life uint32) {
	for other := election.ID(1); other <= w.ever; other++ {
		if other == id || !w.all[other].up || w.links.cut(id, other) || w.links.cut(other, id) {
			continue
		}
		at := w.queue.now + election.Tick(w.rng.between(1, int(transMax)))
		if w.rng.percent(20) { // so late that another life may have begun
			at += election.Tick(w.rng.below(int(2 * lease)))
		}
		w.queue.push(event{at: at, kind: noticed, who: other, peer: id, slot: life})
	}
}

func (w *world) restart(id election.ID) {
	p := &w.all[id]
	if !p.exists || p.up || p.buried {
		return
	}
	if !w.list.current.Has(id) {
		return // its pod is not made again
	}
	w.catchUp(p)
	w.announce(id, "comes back without its memory")
	w.boot(id, true)
}

func (w *world) pause(id election.ID, a action) {
	p := &w.all[id]
	if !p.up {
		return
	}
	p.pausedUntil = max(p.pausedUntil, w.queue.now+a.lasts)
	w.announce(id, "stands still until %d", p.pausedUntil)
}

func (w *world) withdraw(id election.ID, a action) {
	p := &w.all[id]
	if !p.up || w.queue.now < p.pausedUntil || p.withdrawn {
		return
	}
	p.withdrawn, p.running = true, false
	w.step(id, election.Input{Kind: election.BecomeIneligible})
	w.plan.push(w, action{at: w.queue.now + a.lasts + 1, kind: revive, target: id})
}

func (w *world) revive(id election.ID) {
	p := &w.all[id]
	if !p.up || !p.withdrawn {
		return
	}
	if w.queue.now < p.pausedUntil {
		w.plan.push(w, action{at: p.pausedUntil, kind: revive, target: id})
		return
	}
	p.withdrawn = false
	w.step(id, election.Input{Kind: election.BecomeEligible})
}

func (w *world) askAside(id election.ID) {
	if p := &w.all[id]; p.up && w.queue.now >= p.pausedUntil {
		w.step(id, election.Input{Kind: election.StepDown})
	}
}

// lowest is the member of lowest rank that may stand.
func (w *world) lowest() election.ID {
	lowest := election.None
	for _, m := range w.list.current.Ranked() {
		if m.Priority > 0 {
			lowest = m.ID
		}
	}
	return lowest
}

// healAll ends every fault. Who is down comes back, but for a minority.
func (w *world) healAll() {
	w.links.heal()
	spare := (w.list.current.Len() - 1) / 2
	if w.list.current.Previous != nil {
		spare = 0 // a majority of that list has to come back, too
	}
	least := w.lowest() // if nobody else, it may lead
	for id := election.ID(1); id <= w.ever; id++ {
		p := &w.all[id]
		if p.up && p.pausedUntil > w.queue.now {
			p.pausedUntil, p.wakeAt = w.queue.now+1, election.Never
			w.arm(id)
		}
		w.reletLate(id)
		switch {
		case !w.list.current.Has(id):
			w.crash(id, action{})
		case !p.up && spare > 0 && id != least && w.rng.percent(30):
			spare--
		case !p.up:
			w.restart(id)
		}
	}
	w.announce(election.None, "all faults end")
	w.plan.healAt = w.queue.now
	w.plan.deadline = w.queue.now + convergeWithin
}
