package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// convergeWithin is the number of ticks, after all faults have ended, within which
// the processes must agree and nothing more may happen.
const convergeWithin = 24 * (lease + suspicionTimeout)

// schedule is the fault plan of one run: the faults and their times, all drawn from the seed.
type schedule struct {
	faults  Fault
	actions []action
	healAt  election.Tick
	// deadline is the time by which the processes must have agreed.
	deadline election.Tick
	// extended is set if the deadline was extended: see checkGraph.
	extended bool
	// quietFor is the time, from the agreement on, in which nothing may happen.
	quietFor election.Tick

	timing timing
	// latency is how much longer each message takes, and lossy how many percent are lost, during the whole schedule.
	latency election.Tick
	lossy   int
	// tail is how much longer messages take, if that has a heavy tail.
	tail    tail
	slow    throttle
	failing failing
	// stopsWithin is how long an application takes to stop at most.
	stopsWithin election.Tick

	// leaseBefore is the lease at the start, leaseAfter the one at the end.
	leaseBefore, leaseAfter election.Tick

	// slowDisks: with the fault Disk, reservations take up to a lease.
	slowDisks bool
	// startsIn is the term in which the processes start.
	startsIn election.Term

	lossPercent, delayPercent, reorderPercent, duplicatePercent int

	// diskPercent is how many percent of the lists and reservations can't be stored at once, and staleFor the
	// longest time for which a process that has restarted uses the stored list.
	diskPercent, staleFor int

	// late is the process that receives each list late, by lateBy, or None.
	late   election.ID
	lateBy election.Tick
}

type actionKind uint8

const (
	actCrash actionKind = iota
	actCrashAll
	actRestart
	actKillApp
	actReviveApp
	actPause
	actPartition
	actCutLink
	actHealLinks
	actRedial
	actChangeMembers
	actReconcile
	actPublish
	actStepDown
	actChangeLease
	actSlowDown
	actReportGone
	actChangeSettings
	actHealAll
	actRecover
	actThrottle
	actReplaceMember
	actMix
	actRejoin
)

// action is a change to the simulation at a given time: a fault, or its end.
type action struct {
	at   election.Tick
	kind actionKind
	// target is the process that the action affects, 0 the coordinator at that time.
	target election.ID
	// peer is the other end of a link that works again.
	peer election.ID
	// lasts is the time until the fault ends.
	lasts election.Tick
	// silent is set if a crash doesn't reset the process's connections.
	silent bool
	// timing is the index of the timing that a process gets.
	timing uint8
}

// draw draws a schedule. Three quarters of all schedules are limited to at most three kinds of these faults, unless
// they have few in all. A schedule with faults that happen at a given time has one to four of them.
func (sch *schedule) draw(s *simulation) {
	r := &s.rng
	*sch = schedule{
		actions: sch.actions[:0], quietFor: heartbeat, timing: tightTiming, stopsWithin: tightTiming.drain,
		leaseBefore: lease, leaseAfter: lease, slowDisks: r.percent(15), startsIn: firstTerm,
	}
	if r.percent(5) {
		sch.quietFor = minute / 2
	}
	sch.faults = s.possible & baseFaults
	if r.percent(75) && s.possible&Few == 0 {
		var some Fault
		for range 3 {
			some |= 1 << r.below(commonFaults)
		}
		sch.faults &= some | Leases
	}
	s.policy = office.Always
	if r.percent(25) {
		s.policy = office.WhenStable
	} else if r.percent(5) {
		s.policy = office.NeverPreempt
	}
	sch.lossPercent = sch.drawPercent(r, Loss)
	sch.delayPercent = sch.drawPercent(r, Delay)
	sch.reorderPercent = sch.drawPercent(r, Reorder)
	sch.duplicatePercent = sch.drawPercent(r, Duplicate)

	sch.drawProcessFaults(s)
	at := 3 * transMax
	kinds := sch.enabledActions()
	if len(kinds) > 0 {
		count, gap := sch.pace(s)
		gap = max(gap, sch.waitsForApplications()/8)
		for range count {
			at += r.tick(gap)
			sch.add(s, at, kinds[r.below(len(kinds))])
		}
	}
	if sch.faults&Leases != 0 {
		at = sch.drawLeaseChange(s, at)
	}
	at += sch.extraDuration(s)
	s.checker.electionCause = s.checker.electionCause || sch.faults&(Loss|Delay) != 0
	sch.addProcessFaults(s, at)
	at = sch.addConfigurationFaults(s, at)
	sch.healAt = at + r.tick(lease)
	sch.deadline = sch.healAt + s.convergeWithin()
	sch.push(s, action{at: sch.healAt, kind: actHealAll})
}

// convergeWithin returns the time within which the processes must agree after all faults have ended.
func (s *simulation) convergeWithin() election.Tick {
	sch := &s.schedule
	if sch.lasting() {
		return minute
	}
	within := convergeWithin + sch.waitsForApplications()
	if !sch.limitsMembers() {
		within += sch.quietFor
	}
	return within
}

func (sch *schedule) disturbsMessages(now election.Tick) bool {
	return sch.lasting() || now < sch.healAt && sch.faults&(Loss|Delay|Reorder|Duplicate|Slow) != 0
}

func (sch *schedule) drawPercent(r *rng, f Fault) int {
	if sch.faults&f == 0 {
		return 0
	}
	return r.between(2, 40)
}

// actionFaults are the faults that happen at a given time, as opposed to those
// that affect messages or clocks throughout.
var actionFaults = []Fault{Crash, AppDead, Pause, Partition, Members, StepDown}

func (sch *schedule) enabledActions() []Fault {
	var kinds []Fault
	for _, f := range actionFaults {
		if sch.faults&f != 0 {
			kinds = append(kinds, f)
		}
	}
	return kinds
}

func (sch *schedule) add(s *simulation, at election.Tick, f Fault) {
	r := &s.rng
	a := action{at: at, lasts: r.tick(2 * lease), silent: r.percent(30)}
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
			sch.push(s, action{at: at + a.lasts, kind: actHealLinks})
		}
	case Members:
		a.kind = actChangeMembers
	default:
		a.kind = actStepDown
	}
	sch.push(s, a)
}

// push adds an action. Actions may be added while the schedule runs.
func (sch *schedule) push(s *simulation, a action) {
	s.queue.push(event{at: a.at, kind: eventAction, slot: uint32(len(sch.actions))})
	sch.actions = append(sch.actions, a)
}

func (sch *schedule) drawClock(s *simulation) clock {
	c := clock{rate: trueRate}
	if sch.faults&Clocks != 0 {
		// The rates differ by nearly as much as the margin of the lease allows.
		c.rate += int64(s.rng.between(-trueRate/34, trueRate/34))
		c.offset = s.rng.tick(1000)
	}
	return c
}

// rng is a random number generator, splitmix64. It is small and fast, and draws the same numbers on every platform and
// in every version, so a seed always replays the same schedule.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *rng) below(n int) int { return int(r.next() >> 33 % uint64(n)) }

func (r *rng) between(lo, hi int) int { return lo + r.below(hi-lo+1) }

// tick and ticks draw times as below and between draw numbers.
func (r *rng) tick(n election.Tick) election.Tick { return election.Tick(r.below(int(n))) }

func (r *rng) ticks(lo, hi election.Tick) election.Tick {
	return election.Tick(r.between(int(lo), int(hi)))
}

// percent returns true with a probability of p percent.
func (r *rng) percent(p int) bool { return r.below(100) < p }

// affects is percent for a fault that messages of few schedules have. For the others, it draws nothing.
func (r *rng) affects(p int) bool { return p > 0 && r.percent(p) }
