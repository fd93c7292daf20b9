package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Violation is a violated invariant, and the seed of its schedule.
type Violation struct {
	Seed      uint64
	Invariant string
	Detail    string
}

// checker is the state that the invariants need between steps.
type checker struct {
	violation *Violation
	// done is set when the processes have agreed for long enough.
	done         bool
	tokens       []tenureToken
	coordinators []termCoordinator
	// electionCause is set if an event so far may have made an election necessary.
	electionCause bool
	// agreedSince is the time since which all processes agree, 0 if they don't.
	agreedSince election.Tick
	// agreed is set when all processes have agreed for a lease after all faults have ended.
	agreed  bool
	tenures int
	// stalls is the number of messages meanwhile that took half of the shortest lease or more.
	stalls          int
	tenureChangedAt election.Tick
}

type tenureToken struct {
	token  election.Token
	holder election.ID
}

type termCoordinator struct {
	term        election.Term
	coordinator election.ID
}

func (c *checker) reset() { *c = checker{tokens: c.tokens[:0], coordinators: c.coordinators[:0]} }

func (c *checker) fail(invariant, detail string) {
	if c.violation == nil {
		c.violation = &Violation{Invariant: invariant, Detail: detail}
	}
}

func (s *simulation) usesGrants() bool { return s.mode != office.Available }

// handleEvent checks an event of a process and simulates the reaction of its application.
func (s *simulation) handleEvent(id election.ID, e *election.Event) {
	p := &s.processes[id]
	if e.Kind != election.Outdated && e.Kind != election.Skipped {
		s.checker.agreedSince = 0
	}
	if e.Kind == election.TenureStarted || e.Kind == election.TenureLost || e.Kind == election.OfficeResigned {
		s.checker.tenureChangedAt = s.queue.now
	}
	switch e.Kind {
	case election.TenureStarted:
		s.checkTenureStart(id, e.Token)
		s.checkClaim(id, e.Term)
		s.countTenure()
		s.failSoon(id)
		p.running = true
		p.tenures, p.tenureSince = p.tenures+1, s.queue.now
	case election.TenureLost:
		s.checkLapse(id)
		s.checkDrain(id, e.Term)
		p.running = false
	case election.StopRequested:
		p.stopRequestedAt, p.stopTerm = s.queue.now, e.Term
		takes := s.rng.ticks(1, s.schedule.stopsWithin+4)
		s.queue.push(event{at: s.queue.now + takes, kind: eventAppStopped, process: id, slot: p.tenures})
	case election.OfficeResigned:
		asked := p.stopTerm == e.Term &&
			p.clock.local(s.queue.now) >= p.clock.local(p.stopRequestedAt)+s.schedule.timing.drain
		if p.running && !asked {
			s.checker.fail("hand-over", fmt.Sprintf("process %d resigned while its application was acting", id))
		}
		p.running = false
	case election.Started:
		if !s.checker.electionCause {
			s.checker.fail("cause", fmt.Sprintf("process %d started an election without a cause", id))
		}
	default:
	}
}

// checkTenureStart checks that a process that acquires the office is eligible, that
// no other process holds the office, and that the token is new.
func (s *simulation) checkTenureStart(id election.ID, token election.Token) {
	for _, t := range s.checker.tokens {
		if t.token == token || t.token > token && (s.usesGrants() || t.holder == id) {
			s.checker.fail("tokens", fmt.Sprintf("process %d has token %d after token %d of %d", id, token, t.token, t.holder))
		}
	}
	s.checker.tokens = append(s.checker.tokens, tenureToken{token, id})
	if p := &s.processes[id]; p.appDead || p.roster.Priority(id) == 0 {
		s.checker.fail("membership", fmt.Sprintf("process %d acquired the office, but is ineligible", id))
	}
	if s.usesGrants() {
		s.checkSoleHolder(id)
	}
}

// checkSoleHolder checks that no process other than id holds the office when the tenure of id begins or is renewed.
// Strict mode doesn't assume that a crash of the holder is known, so there the tenure of a crashed holder still counts.
func (s *simulation) checkSoleHolder(id election.ID) {
	for other := election.ID(1); other <= s.maxID; other++ {
		q := &s.processes[other]
		switch {
		case other != id && q.up && q.status.Token != 0 && q.clock.local(s.queue.now) < q.status.Until:
			s.checker.fail("one holder", fmt.Sprintf("process %d has tenure while process %d has", id, other))
		case s.mode == office.Strict && s.schedule.faults&Mixed == 0 && q.clock.local(s.queue.now) < q.lostTenureUntil:
			s.checker.fail("one holder",
				fmt.Sprintf("process %d has tenure before the tenure of process %d, which crashed, has expired", id, other))
		}
	}
}

// checkLapse checks that the process notifies its application as soon as its tenure
// expires, unless the process was paused at that time.
func (s *simulation) checkLapse(id election.ID) {
	p := &s.processes[id]
	if s.usesGrants() && s.queue.now > max(p.clock.global(p.status.Until), p.pausedUntil) {
		s.checker.fail("lapse", fmt.Sprintf("the tenure of process %d expired at %d, and it reports that at %d",
			id, p.status.Until, p.clock.local(s.queue.now)))
	}
}

func (s *simulation) checkStatus(id election.ID) {
	p := &s.processes[id]
	status := p.machine.Status()
	if status.Term < p.status.Term && (s.usesGrants() || status.Coordinator == p.status.Coordinator) {
		s.checker.fail("terms", fmt.Sprintf("the term of process %d went from %d to %d", id, p.status.Term, status.Term))
	}
	if status.Coordinator != election.None &&
		(status.Coordinator != p.status.Coordinator || status.Term != p.status.Term) {
		s.checkCoordinator(id, status)
	}
	if s.usesGrants() && status.Token != 0 && status.Until > p.status.Until {
		s.checkSoleHolder(id)
	}
	if p.running && status.Token == 0 {
		s.checker.fail("lapse",
			fmt.Sprintf("the application of process %d acts as coordinator, and was not notified of the end of the tenure", id))
	}
	p.status = status
	s.checkSent(id)
}

// checkSent checks the messages of the last step. Without a cause, a process sends no message of an election. Once all
// processes agree, they send only BEATs and the grants in reply and, with NeverPreempt, the PROBEs of processes that
// outrank the coordinator. Any other message restarts the quiet period.
func (s *simulation) checkSent(id election.ID) {
	if s.checker.electionCause && s.checker.agreedSince == 0 {
		return
	}
	for i := range s.out.Send {
		m := &s.out.Send[i]
		switch {
		case m.Kind == election.Beat, m.Kind == election.Grant:
		case m.Kind == election.Probe && s.mayNotPreempt():
		default:
			s.checker.agreedSince = 0
		}
		if m.Kind.Counts() && !s.checker.electionCause {
			s.checker.fail("counts", fmt.Sprintf("process %d sends %s without a cause", id, m.Kind))
		}
	}
}

// mayCauseElection reports whether an action may make an election necessary. The
// crash or restart of a follower doesn't, as long as more than a majority grants.
func (s *simulation) mayCauseElection(a action) bool {
	switch a.kind {
	case actCrash, actKillApp:
		if s.processes[s.target(a)].status.Token != 0 {
			return true
		}
	case actRestart, actReviveApp, actReconcile, actPublish, actHealAll, actChangeSettings:
	default:
		return true
	}
	granting := 0
	for _, m := range s.operator.current.Ring() {
		if s.processes[m.ID].grants(s.queue.now) && !s.forgetful(m.ID) {
			granting++
		}
	}
	return granting <= s.operator.current.Majority()
}

// grants reports whether a process is up, and grants: after a restart it waits until its earlier grants have ended.
func (p *process) grants(now election.Tick) bool {
	return p.up && (p.incarnation == 1 || p.clock.local(now) >= p.lease.waitsUntil)
}

// checkCoordinator checks the coordinator that a process has just recognized: it
// must be eligible, and with grants, the only coordinator of its term.
func (s *simulation) checkCoordinator(id election.ID, status election.Status) {
	if status.Term == s.schedule.startsIn {
		// The processes started with this coordinator. It may never have held the office, and may be
		// in no list that this process has adopted since.
		return
	}
	p := &s.processes[id]
	before := p.roster.Previous // a removed coordinator holds the office until it has resigned
	if p.roster.Priority(status.Coordinator) == 0 && (before == nil || before.Priority(status.Coordinator) == 0) {
		s.checker.fail("membership", fmt.Sprintf("process %d follows %d, which is ineligible", id, status.Coordinator))
	}
	if !s.usesGrants() {
		return
	}
	for _, n := range s.checker.coordinators {
		if n.term != status.Term {
			continue
		}
		if n.coordinator != status.Coordinator {
			s.checker.fail("one coordinator per term",
				fmt.Sprintf("in term %d process %d follows %d, another process %d", status.Term, id,
					status.Coordinator, n.coordinator))
		}
		return
	}
	s.checker.coordinators = append(s.checker.coordinators, termCoordinator{status.Term, status.Coordinator})
}

// checkAgreement ends the schedule when all processes have agreed, and nothing has happened, for the quiet period.
func (s *simulation) checkAgreement() {
	if s.disagreement() != "" {
		s.checker.agreedSince = 0
		return
	}
	now := s.queue.now
	if s.checker.agreedSince == 0 {
		s.checker.agreedSince = now
	}
	s.checker.agreed = s.checker.agreed ||
		now >= max(s.checker.agreedSince, s.schedule.healAt+s.schedule.waitsForApplications())+lease
	s.checker.done = now >= s.checker.agreedSince+s.schedule.quietFor
}

// disagreement describes why the processes don't agree on the highest live process. It returns "" if they do.
func (s *simulation) disagreement() string {
	roster := s.operator.current
	best := election.None
	for _, m := range roster.Ranked() {
		p := &s.processes[m.ID]
		if m.Priority > 0 && p.up && !p.appDead {
			best = m.ID
			break
		}
	}
	if s.mayNotPreempt() {
		for _, m := range roster.Ring() {
			if p := &s.processes[m.ID]; p.up && p.status.Token != 0 {
				best = m.ID
			}
		}
	}
	for _, m := range roster.Ring() {
		p := &s.processes[m.ID]
		switch {
		case !p.up:
		case p.status.Coordinator != best:
			return fmt.Sprintf("process %d follows %d, not %d, the highest live process", m.ID, p.status.Coordinator, best)
		case m.ID == best && (p.status.Token == 0 || !p.running):
			return fmt.Sprintf("process %d is the coordinator and has no tenure", best)
		case p.roster.Version != roster.Version:
			return fmt.Sprintf("process %d has not adopted version %d", m.ID, roster.Version)
		case !s.operator.decided.Settled:
			return fmt.Sprintf("version %d has not settled", roster.Version)
		case s.forgetful(m.ID):
			return fmt.Sprintf("version %d names another disk of process %d", roster.Version, m.ID)
		}
	}
	return ""
}
