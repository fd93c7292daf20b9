package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

type process struct {
	machine     *office.Machine
	exists      bool
	up          bool
	incarnation uint32
	// podGone is set while the process is down and its pod was deleted. If it restarts, then
	// in a new pod, without what the old one stored.
	podGone bool
	// remembersGrants is set if this incarnation remembered at its start what it had granted.
	remembersGrants bool
	// memorySince is when this process last started without that memory.
	memorySince election.Tick
	// removed is set when the process is down and no longer on the member list.
	// It never restarts.
	removed bool
	// crashedSilently is set if the last crash did not reset the connections.
	crashedSilently bool
	downSince       election.Tick
	bootedAt        election.Tick
	// highestWall is the highest reading of the wall clock that a correction has replaced.
	highestWall election.Epoch
	// pausedUntil is the time at which a paused process resumes, 0 if it never
	// was paused in this incarnation.
	pausedUntil election.Tick
	appDead     bool
	// slowBy is by how much the process handles an input too late, until slowUntil.
	slowBy, slowUntil election.Tick
	// wakeAt is the time of the earliest pending timer event, or Never.
	wakeAt election.Tick
	// roster is the list that it has adopted, at adoptedAt. Of those that the operator has
	// published, that list has the index slot, and the list on its disk the index stored.
	roster       *election.Roster
	slot, stored uint32
	adoptedAt    election.Tick
	clock        clock
	lease        leaseState
	mode         office.Mode
	policy       office.Policy
	// factor multiplies the heartbeat and the suspicion timeout. 0 stands for 1.
	factor election.Tick

	// running is set while the application acts as coordinator. It was last asked
	// to stop at stopRequestedAt, for the tenure of stopTerm.
	running         bool
	stopRequestedAt election.Tick
	stopTerm        election.Term
	// tenures counts the tenures of all incarnations. The last one began at tenureSince.
	tenures     uint32
	tenureSince election.Tick
	// stepsDownIn is the last tenure in which it was asked to step down.
	stepsDownIn uint32
	status      election.Status
	// lostTenureUntil is the end, on the process's clock, of the tenure that a
	// crash cut short.
	lostTenureUntil election.Tick
}

// clock is the clock of one process. Its rate is in 1/65536 of the true rate. Its
// wall clock is ahead of the true time by skew epochs.
type clock struct {
	rate       int64
	offset     election.Tick
	skew       election.Epoch
	epochTicks election.Tick
}

const trueRate = 1 << 16

// local returns the reading of the process's clock at the true time at.
func (c clock) local(at election.Tick) election.Tick {
	return c.offset + at*election.Tick(c.rate)/trueRate
}

// global returns the first true time at which the process's clock reads at least
// local.
func (c clock) global(local election.Tick) election.Tick {
	if local == election.Never {
		return election.Never
	}
	return ((local-c.offset)*trueRate + election.Tick(c.rate) - 1) / election.Tick(c.rate)
}

func (c clock) wall(at election.Tick) election.Epoch {
	return initialWallClock + c.skew + election.Epoch((c.local(at)-c.offset)/c.epochTicks)
}

// priority returns a priority that no other process has: two coordinators with
// equal terms and priorities would have equal tokens.
func priority(id election.ID, level int) election.Priority {
	return election.Priority(64*level) + election.Priority(id)
}

func (sch *schedule) addCorrections(s *simulation, at election.Tick) {
	if sch.faults&Correct == 0 {
		return
	}
	for range s.rng2.between(1, 4) {
		sch.push(s, action{at: s.rng2.tick(at), kind: actCorrectClock, target: election.ID(s.rng2.below(s.size + 1))})
	}
}

func (s *simulation) correctClock(id election.ID) {
	p, now := &s.processes[id], s.queue.now
	if !p.up || now < p.pausedUntil {
		return
	}
	if s.rng2.percent(50) {
		s.setForward(p, 250)
	} else {
		p.highestWall = max(p.highestWall, p.clock.wall(now))
		p.clock.skew -= min(p.clock.skew, election.Epoch(s.rng2.below(int(p.clock.skew)+1)))
	}
	s.reportFault(outageClock, id, "corrects its wall clock to %d", p.clock.wall(now))
	s.step(id, election.Input{Kind: election.CorrectClock, Term: p.clock.wall(now).Last()})
}

// setAtLeast sets the clock forward to a reading. A clock that was set back while its process ran must have caught
// up when the process restarts: that is an assumption (package grants).
func (c *clock) setAtLeast(reading election.Epoch, now election.Tick) {
	if wall := c.wall(now); wall < reading {
		c.skew += reading - wall
	}
}
