package sim

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Some faults don't end with the others. A group may then be unable to agree, or have no coordinator. But it
// must not flap: a minute after the other faults have ended, it has at most three tenures a minute. A minute is
// that of a group with the default lease, half a second. Without such faults, the same holds for the processes
// from their first agreement on. Some of these schedules continue for half a minute after the last agreement.
const (
	lastingFaults = Latency | Lossy | Throttle | Failing | Tail
	minute        = 120 * lease
	maxPerMinute  = 3
	maxVacant     = minute / 10
)

// tail is the distribution of the additional time that messages take: a number of doublings of the shortest time. With
// the probabilities that are drawn, one message of 500 to 4000 takes longer than a lease if the shortest time is the
// longest one that is drawn. That is more than packets cause that are lost and sent again.
type tail struct {
	shortest election.Tick
	percent  int // the probability of each doubling
}

// maxTail is about the longest time that a message takes in addition. Those behind it on the same link wait for it.
const maxTail = 2 * lease

type throttle struct {
	id          election.ID
	lasts, each election.Tick
}

// failing is a process whose application fails some time after it starts to lead, for a while.
type failing struct {
	id           election.ID
	after, lasts election.Tick
}

func (sch *schedule) lasting() bool { return sch.faults&lastingFaults != 0 }

// drawLasting draws which of these faults the schedule has. The timing is the default one: with a lease of
// two heartbeats, no group stays calm.
func (sch *schedule) drawLasting(s *simulation) {
	r := &s.rng3
	if s.drawFault(Latency, 3) {
		sch.latency = r.ticks(1, lease*3/5)
	}
	if s.drawFault(Lossy, 3) {
		sch.lossy = r.between(1, 10)
	}
	if s.drawFault(Tail, 3) {
		sch.tail = tail{r.ticks(1, lease/50), r.between(25, 35)}
	}
	affected := election.ID(s.size)
	if r.percent(40) {
		affected = election.ID(r.between(1, s.size))
	}
	if s.size >= 3 && s.drawFault(Throttle, 2) {
		sch.slow = throttle{affected, r.ticks(lease, 2*lease), r.ticks(8, 40) * lease}
	}
	if s.size >= 2 && s.drawFault(Failing, 2) {
		sch.failing = failing{affected, r.ticks(1, lease), r.ticks(1, 8) * lease}
	}
	if sch.lasting() {
		sch.timing = defaultTiming
		sch.faults &^= Graph | Late // with these, a slow process may be the only one that connects a majority
		s.checker.electionCause = true
	}
}

// draw draws the additional time of a message, and counts those that stall while tenures are counted.
func (t tail) draw(s *simulation) election.Tick {
	delay := t.shortest
	for delay > 0 && delay < maxTail && s.rng3.percent(t.percent) {
		delay *= 2
	}
	stall := lease / 2
	if s.schedule.faults&Grow != 0 {
		stall /= 2 // the usual lease may be half as long
	}
	if delay > 0 && delay >= stall-2*s.schedule.latency && s.schedule.extended {
		s.checker.stalls++
	}
	return delay
}

func (s *simulation) throttle(id election.ID, a action) {
	s.pause(id, a)
	a.at += s.schedule.slow.each
	s.schedule.push(s, a)
}

// failSoon makes the application of a process that has become coordinator fail, if it is a failing one.
func (s *simulation) failSoon(id election.ID) {
	if f := s.schedule.failing; f.id == id {
		s.schedule.push(s, action{at: s.queue.now + f.after, kind: actKillApp, target: id, lasts: f.lasts})
	}
}

func (s *simulation) countTenure() {
	c := &s.checker
	if s.schedule.lasting() && !s.schedule.extended || !s.schedule.lasting() && !c.agreed {
		return
	}
	most := maxPerMinute
	if !s.usesGrants() {
		most += s.extraTenuresInAvailable()
	}
	switch {
	case c.stalls == 0:
	case !s.usesGrants() || s.needsAll():
		most += c.stalls // one late message ends a tenure
	default:
		most++ // it may hide a higher process from the next coordinator, or a hand-over from its successor
	}
	if s.needsAffected() {
		most += s.tenuresOfAffected()
	}
	if s.schedule.faults&Throttle != 0 && s.restartedRecently() {
		most += 2
	}
	causes := bits.OnesCount64(uint64(s.schedule.faults & lastingFaults))
	most += 2 * max(causes-1, 0) // each of several causes ends some tenures
	if s.schedule.faults&Lossy != 0 {
		switch all, outlasts := s.needsAll(), s.schedule.tenureOutlastsLosses(); {
		case all && (causes > 1 || !outlasts):
			return // some lost messages end a tenure, and another cause or two messages the next one
		case all:
			most += 2 // some messages in a row that are lost do
		case !outlasts:
			most += 10
		}
	}
	if c.tenures++; c.tenures > most {
		c.fail("flapping", fmt.Sprintf("%d tenures have begun within a minute, want at most %d", c.tenures, most))
	}
}

// extraTenuresInAvailable returns how many more tenures may begin in Available, where several processes may hold the
// office at a time.
func (s *simulation) extraTenuresInAvailable() int {
	more, faults := s.size, s.schedule.faults
	if faults&Lossy != 0 {
		more += s.size // three lost heartbeats in a row make two tenures
	}
	if faults&Throttle != 0 {
		more += s.size // a process that stood still has led until it finds out
	}
	if faults&Throttle != 0 && faults&Latency != 0 {
		more += s.size // and so have those that have heard of it too late, so that all flap alike (ADR 33)
	}
	return more
}

func (s *simulation) needsAll() bool {
	return s.operator.current.Majority() == s.operator.current.Len()
}

// checkLastingFaults begins the minute in which tenures are counted, and ends the schedule after it.
func (s *simulation) checkLastingFaults() {
	if !s.schedule.extended {
		s.schedule.extended, s.schedule.deadline = true, s.schedule.deadline+minute
		s.outages.vacantSince(s.queue.now)
		return
	}
	s.checker.done = true
	vacant := s.outages.vacantFor(s.queue.now)
	most := maxVacant
	if s.schedule.faults&Lossy != 0 && s.needsAll() && !s.schedule.tenureOutlastsLosses() {
		most *= 2 // two lost messages end each tenure
	}
	if s.schedule.permitsCoordinator() && !s.needsAffected() && vacant > most {
		s.checker.fail("outage",
			fmt.Sprintf("for %d of %d ticks there was no coordinator, want at most %d", vacant, minute, most))
	}
}

// needsAffected reports whether a group can't do without the process that is paused or whose application fails, again
// and again: the list has shrunk.
func (s *simulation) needsAffected() bool {
	sch := &s.schedule
	return sch.faults&Throttle != 0 && s.operator.current.Has(sch.slow.id) &&
		(s.needsAll() || !s.canLeadWithout(sch.slow.id)) || sch.faults&Failing != 0 && !s.canLeadWithout(sch.failing.id)
}

// tenuresOfAffected returns how many tenures may begin within a minute in such a group: three for each pause, and for
// each time for which the application is down. It recovers from the failures of earlier tenures meanwhile.
func (s *simulation) tenuresOfAffected() (n int) {
	if s.schedule.faults&Throttle != 0 {
		n += 3 * int(minute/s.schedule.slow.each+1)
	}
	if s.schedule.faults&Failing != 0 {
		n += 3 * int(minute/s.schedule.failing.lasts+1)
	}
	return n
}

// restartedRecently reports whether a member has started less than two minutes ago, and after the others. It doesn't
// count the lapses of its first half minute, so it may be the only one that hands over to the process that stands
// still.
func (s *simulation) restartedRecently() bool {
	return slices.ContainsFunc(s.operator.current.Ring(), func(m election.Member) bool {
		since := s.processes[m.ID].bootedAt
		return since > 0 && s.queue.now < since+2*minute
	})
}

func (s *simulation) canLeadWithout(id election.ID) bool {
	return slices.ContainsFunc(s.operator.current.Ring(), func(m election.Member) bool {
		return m.ID != id && m.Priority > 0 && s.processes[m.ID].up
	})
}

// tenureOutlastsLosses reports whether a tenure outlasts two heartbeats in a row whose answers are lost. With TCP, no
// message is lost: the later ones wait for it, as with Tail.
func (sch *schedule) tenureOutlastsLosses() bool {
	return sch.latency == 0 || 3*sch.timing.heartbeat+2*(sch.latency+transMax) < sch.leaseAfter*7/8
}

// permitsCoordinator reports whether a group can have a coordinator for most of the time: the answers to a heartbeat
// arrive a heartbeat before the tenure ends. After some lapses, processes want that margin.
func (sch *schedule) permitsCoordinator() bool {
	if sch.faults&Throttle != 0 && sch.slow.lasts <= sch.maxLease() {
		return false // a paused coordinator keeps its tenure
	}
	roundTrip := 2 * (sch.latency + transMax)
	return sch.faults&(Graph|Late) == 0 && 2*sch.timing.heartbeat+roundTrip < sch.leaseAfter*7/8
}
