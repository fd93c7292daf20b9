package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The faults from Latency on are drawn from random numbers of their own, too: see process_faults.go.

// possibleFaults returns the faults that the schedule of a seed may have. With Few, half of the schedules may have at
// most nine of them: some histories are rare where everything happens.
func (s *simulation) possibleFaults(seed uint64) Fault {
	r := rng(seed * 5)
	r.next()
	if s.faults&Few == 0 || r.percent(50) {
		return s.faults &^ Few
	}
	some := Few
	for range r.between(3, 9) {
		some |= 1 << r.below(len(faultNames)+len(optionalFaultNames))
	}
	return s.faults & some
}

// drawFault draws whether the schedule has a fault. In a run with all older faults, that many of a thousand schedules
// have it, ten times as many if they have few faults, and in others all.
func (s *simulation) drawFault(f Fault, perMille int) bool {
	switch few := s.possible&Few != 0; {
	case s.possible&f == 0:
		return false
	case few && s.rng3.below(100) >= perMille,
		!few && s.possible&baseFaults == baseFaults && s.rng3.below(1000) >= perMille:
		return false
	}
	s.schedule.faults |= f
	return true
}

func (sch *schedule) drawConfigurationFaults(s *simulation) {
	r := &s.rng3
	if s.drawFault(Burst, 3) {
		s.checker.electionCause = true
		if r.percent(50) {
			sch.timing = defaultTiming
		}
	}
	sch.drawLasting(s)
	if s.drawFault(Drains, 50) {
		sch.timing = defaultTiming
		sch.timing.drain, sch.timing.stable = r.tick(20*lease), r.tick(20*lease)
		if r.percent(50) {
			sch.stopsWithin = sch.timing.drain
		}
	}
	if s.witnessed {
		sch.timing = defaultTiming // whose leases are long enough that a witness needs no renewals
	}
	s.drawFault(Redial, 500)
	if s.drawFault(Mixed, 100) || s.drawFault(Rejoin, 100) {
		s.drawFault(Rejoin, 300)
		s.checker.electionCause = true
	}
	if s.drawFault(Grow, 500) && r.percent(80) {
		sch.leaseBefore, sch.leaseAfter = longLease, longLease // The usual one must be longer than two heartbeats.
	}
}

// addConfigurationFaults adds the actions of these faults, before the time at or, for bursts, after it. It returns the
// time of the last one.
func (sch *schedule) addConfigurationFaults(s *simulation, at election.Tick) election.Tick {
	r := &s.rng3
	some := func(f Fault, kind actionKind) {
		if sch.faults&f == 0 {
			return
		}
		for range r.between(1, s.size) {
			sch.push(s, action{at: r.tick(at), kind: kind, target: election.ID(r.between(1, s.size))})
		}
	}
	some(Mixed, actMix)
	some(Rejoin, actRejoin)
	if sch.slow.id != election.None {
		sch.push(s, action{at: r.tick(lease), kind: actThrottle, target: sch.slow.id, lasts: sch.slow.lasts})
	}
	if s.witnessed {
		sch.push(s, action{at: r.tick(at), kind: actReplaceMember})
	}
	if sch.faults&Drains != 0 {
		at += r.tick(sch.waitsForApplications()/2 + 1)
	}
	if sch.faults&Burst == 0 {
		return at
	}
	for range 10 {
		at += 4 * lease
		sch.push(s, action{at: at, kind: actReplaceMember})
	}
	for range 4 {
		at += r.ticks(lease, 10*lease)
		sch.push(s, action{at: at, kind: actCrash, lasts: r.tick(lease), silent: r.percent(30)})
	}
	return at
}

// replaceMember makes a user want another member in the place of one.
func (s *simulation) replaceMember() {
	next := s.maxID
	for _, m := range s.operator.wanted {
		next = max(next, idOf(m.Name))
	}
	if next++; next > maxMembers {
		return
	}
	wanted := slices.Clone(s.operator.wanted)
	replaced, by := s.rng3.below(len(wanted)), priority(next, s.rng3.below(maxLevel))
	if i := slices.IndexFunc(wanted, func(m memberlist.Member) bool { return m.Priority == 0 }); s.witnessed && i >= 0 {
		replaced, by = i, 0
	}
	wanted[replaced] = memberlist.Member{Name: name(next), Priority: by}
	s.operator.wanted = wanted
	s.meetMember(next)
	s.reconcileAt(s.queue.now)
}

// mix gives a process its mode and policy, which may be others than those of the group.
func (s *simulation) mix(p *process) {
	p.mode, p.policy = s.mode, s.policy
	if s.schedule.faults&Mixed == 0 {
		return
	}
	p.policy = office.Policy(s.rng3.below(int(office.NeverPreempt) + 1))
	if s.usesGrants() {
		p.mode = office.Majority + office.Mode(s.rng3.below(2))
	}
}

func (s *simulation) changeMix(id election.ID) {
	p := &s.processes[id]
	if !p.up || p.pausedUntil > s.queue.now {
		return
	}
	s.mix(p)
	s.reportFault(outageSettings, id, "gets the mode %s and the policy %d", p.mode, p.policy)
	s.setTiming(id, cmp.Or(p.lease.next, p.lease.current), p.factor)
}

// mayNotPreempt reports whether a process may be coordinator although a higher one is ready.
func (s *simulation) mayNotPreempt() bool {
	return s.policy == office.NeverPreempt || s.schedule.faults&Mixed != 0
}

// rejoin makes a process that doesn't act as coordinator join the group again. The other processes take it for the same
// incarnation.
func (s *simulation) rejoin(id election.ID) {
	p := &s.processes[id]
	if !p.up || p.pausedUntil > s.queue.now || p.status.Token != 0 || !p.roster.Has(id) {
		return
	}
	s.drawMemory(p)
	s.reportFault(outageRestart, id, "joins again, and remembers its grants and tenures: %t", p.remembers)
	p.downSince = s.queue.now
	p.incarnation--
	s.boot(id, true, p.machine.ClaimedTerm())
}

// waitsForApplications returns how long the processes may wait for applications, or for stable periods, before they
// agree.
func (sch *schedule) waitsForApplications() election.Tick {
	if sch.faults&(Drains|Burst) == 0 {
		return 0
	}
	return 3 * (sch.timing.drain + sch.timing.stable)
}

// sparesTenures are the faults that end no tenure, as long as enough members can grant.
const sparesTenures = Members | StepDown | Clocks | Recovery | Drains | Operator | Mixed

// checkDrain checks that a process whose tenure has expired wasn't waiting for its application to stop. It has the
// drain timeout for that, also if it is no longer a member of the latest list: the next one waits for it. With the
// tight timing, which Drains doesn't have, and with the leases of Grow, a list that the others adopt half a lease
// sooner ends any tenure. A tenure that began while a list was on its way may end, too: another process may have
// claimed a higher term under that list before. One that expires at the moment of an adoption has expired under the
// list before.
func (s *simulation) checkDrain(id election.ID, term election.Term) {
	p := &s.processes[id]
	waits := p.running && !p.appDead && p.stopTerm == term &&
		p.clock.local(s.queue.now) < p.clock.local(p.stopRequestedAt)+s.schedule.timing.drain
	listOnItsWay := s.operator.publishedAt <= p.tenureSince && p.tenureSince <= p.adoptedAt
	granted := s.majorityGrants(p.roster) && (p.adoptedAt < s.queue.now || s.majorityGrants(p.before))
	if waits && !listOnItsWay && s.usesGrants() && s.schedule.faults&Drains != 0 &&
		s.schedule.faults&^sparesTenures == 0 && granted {
		s.checker.fail("drain",
			fmt.Sprintf("the tenure of process %d expired %d ticks after its application was asked to stop, want %d",
				id, s.queue.now-p.stopRequestedAt, s.schedule.timing.drain))
	}
}

// majorityGrants reports whether a majority of a list, and of the one before, have been able to grant for a lease.
func (s *simulation) majorityGrants(roster *election.Roster) bool {
	for r := roster; r != nil; r = r.Previous {
		n := 0
		for _, m := range r.Ring() {
			p := &s.processes[m.ID]
			if p.up && p.votesSince <= s.queue.now-p.lease.current &&
				p.clock.local(s.queue.now) >= p.lease.waitsUntil+p.lease.current {
				n++
			}
		}
		if n < r.Majority() {
			return false
		}
	}
	return true
}
