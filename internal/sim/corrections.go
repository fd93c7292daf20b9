package sim

import "github.com/conclave-dev/conclave/internal/election"

// addCorrections adds corrections of wall clocks, before the time at.
func (sch *schedule) addCorrections(s *simulation, at election.Tick) {
	if sch.faults&Correct == 0 {
		return
	}
	for range s.rng2.between(1, 4) {
		sch.push(s, action{at: election.Tick(s.rng2.below(int(at))), kind: actCorrectClock, target: election.ID(s.rng2.below(s.size + 1))})
	}
}

// correctClock sets the wall clock of a running process forward or back.
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
