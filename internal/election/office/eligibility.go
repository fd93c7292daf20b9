package office

import "github.com/conclave-dev/conclave/internal/election"

// eligibility is whether this process may be elected and, if not, why. An observer (a member of priority 0) is never
// eligible; that follows from the member list and isn't repeated here.
//
// The values are in order of strength: a stronger reason hides a weaker one. An application can die while the process
// is ineligible after a step-down. Then the eligibility is applicationDead, and Machine.eligibleAgainAt still holds the
// end of the step-down.
type eligibility uint8

const (
	eligible eligibility = iota
	// tooFewReachable: so many members are suspected that no majority could grant the office. The inner election must not
	// elect this process, nor wait for it. The process doesn't declare this in its messages: a member that receives one
	// can evidently be reached.
	tooFewReachable
	// forgetful: see Machine.Forgetful.
	forgetful
	// steppedDown: the process gave the office up on request and must not take it back before Machine.eligibleAgainAt.
	steppedDown
	// applicationDead: the application has died beside its agent, or the operator has
	// excluded the process. The office treats both alike.
	applicationDead
)

// declared reports whether the process declares itself ineligible to the others.
func (e eligibility) declared() bool { return e >= forgetful }

// Eligible reports whether the process may hold the office, as far as that depends on the process itself.
func (s *state) Eligible() bool {
	return !s.eligibility.declared() && s.roster.Priority(s.cfg.Self) > 0
}

// ready reports whether the process is eligible, has recovered, could take the office at once, and hasn't stepped down
// during the last stable period. Only the process itself knows the term that it would need: it may have given up higher
// ones than that of the coordinator.
func (m *Machine) ready() bool {
	return m.Eligible() && !m.recovery.active() && m.now >= m.yieldsUntil && !m.ledger.WaitingAfterRestart(m.now) &&
		m.reachesMajorityFor(m.nextTerm())
}

// mayTakeOver reports whether the process follows a coordinator of lower rank, which may hand the office over to it.
func (s *state) mayTakeOver() bool {
	return s.role == Follower && s.coordinator != election.None && s.cfg.Mode != Available &&
		s.roster.Outranks(s.cfg.Self, s.coordinator)
}

// reachesMajorityFor reports whether this process may claim a term, and exchanges messages with a majority. That the
// coordinator does doesn't help it. A process that follows a higher coordinator doesn't probe, so it takes that for
// granted.
func (s *state) reachesMajorityFor(term election.Term) bool {
	switch {
	case !s.claimable(term):
		return false
	case s.cfg.Mode == Available || s.coordinator != election.None && !s.mayTakeOver():
		return true
	}
	since := s.now - s.probePause()
	return s.majority(func(id election.ID) bool { return s.peers[id].answersUntil > since })
}

// majorityAlive reports whether enough members seem alive to grant the office.
func (s *state) majorityAlive() bool {
	return s.majority(func(id election.ID) bool { return !s.detector.Suspects(id) })
}

// updateReachability makes the inner election treat this process as ineligible
// while too few members are reachable to grant the office.
func (m *Machine) updateReachability(out *election.Output) {
	if m.cfg.Mode == Available || m.eligibility.declared() || m.role >= Holder {
		return
	}
	now, kind := eligible, election.BecomeEligible
	if !m.couldHold() {
		now, kind = tooFewReachable, election.BecomeIneligible
	}
	if m.eligibility != now {
		m.eligibility = now
		m.stepInner(election.Input{Kind: kind}, out)
	}
}

// applicationRecovered makes the process eligible again, unless it has stepped down.
func (m *Machine) applicationRecovered(out *election.Output) {
	switch {
	case m.eligibility != applicationDead:
	case m.eligibleAgainAt != election.Never:
		m.eligibility = steppedDown
	default:
		m.becomeEligible(out)
	}
}

// expireStepDown makes a process that stepped down eligible again after its time, unless
// its application has died since.
func (m *Machine) expireStepDown(out *election.Output) {
	if m.now < m.eligibleAgainAt {
		return
	}
	m.eligibleAgainAt = election.Never
	if m.eligibility == steppedDown {
		m.becomeEligible(out)
	}
}

func (m *Machine) becomeIneligible(reason eligibility, out *election.Output) {
	m.eligibility = max(m.eligibility, reason)
	m.stepInner(election.Input{Kind: election.BecomeIneligible}, out)
}

func (m *Machine) becomeEligible(out *election.Output) {
	if m.Forgetful() {
		m.eligibility = forgetful
		return
	}
	m.eligibility = eligible
	m.stepInner(election.Input{Kind: election.BecomeEligible}, out)
	if m.role == Follower && m.coordinator == election.None {
		m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+m.campaignDelay())
	}
}

// recordEligibility records what the sender of a message declares about itself.
func (m *Machine) recordEligibility(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	if p.flaps && !msg.Hold.Flaps {
		p.notBefore = max(p.notBefore, m.now+m.cfg.Heartbeat) // a higher process may declare the same in a moment
	}
	p.ineligible, p.abstains, p.flaps = msg.Hold.Ineligible, msg.Hold.Abstains, msg.Hold.Flaps
	if p.skipped && !p.ineligible {
		m.readmit(msg.From, out)
	}
}

// skipIneligible makes the inner election skip the peers that are alive but ineligible, so that it doesn't wait for
// their answers. A ring waits for no answers and still sends through them.
func (m *Machine) skipIneligible(out *election.Output) {
	for id := range m.peers {
		if p := &m.peers[id]; p.ineligible && !p.skipped && m.roster.Has(election.ID(id)) {
			p.skipped = true
			m.stepInnerQuietly(election.Suspect, election.ID(id), out)
		}
	}
}

// readmitAll readmits all skipped peers: there is a coordinator.
func (m *Machine) readmitAll(out *election.Output) {
	for id := range m.peers {
		if m.peers[id].skipped {
			m.readmit(election.ID(id), out)
		}
	}
}

func (m *Machine) readmit(id election.ID, out *election.Output) {
	m.peers[id].skipped = false
	if !m.detector.Suspects(id) {
		m.stepInnerQuietly(election.Restore, id, out)
	}
}
