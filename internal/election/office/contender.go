package office

import "github.com/conclave-dev/conclave/internal/election"

// contender is a process that holds the office, as it says, and that this process doesn't follow yet. For example, the
// coordinator has crashed, another member knew that first and was elected, and its first BEAT arrives here before the
// news of the crash. Or this process can't tell yet whether the sender holds the office.
type contender struct {
	id    election.ID
	term  election.Term
	until election.Tick
	// askedUntil is how long the others aren't asked again.
	askedUntil election.Tick
}

// recordContender records that this process doesn't follow the sender of a BEAT.
func (m *Machine) recordContender(beat *election.Message) {
	m.contender.id, m.contender.term, m.contender.until = beat.From, beat.Term, m.now+m.cfg.Heartbeat
}

// followContender follows the contender, if there is one, as soon as this process has no other coordinator and knows
// that the contender holds the office. Otherwise it would start an election before the next BEAT.
func (m *Machine) followContender(out *election.Output) {
	c := m.contender
	if c.id == election.None || m.now >= c.until || m.coordinator != election.None {
		return
	}
	known := m.cfg.Mode == Available || m.isConfirmed(c.id, c.term)
	if known && c.term >= m.coordinatorTerm && m.roster.Priority(c.id) > 0 && !m.detector.Suspects(c.id) &&
		m.peers[c.id].resignedTerm < c.term {
		m.contender = contender{}
		m.recognize(c.id, c.term, out)
	}
}

// isConfirmed reports whether a process holds the office in a term, as far as this process knows: it has granted that,
// or follows the process already, or a majority follows it, the process included. Otherwise one member could end every
// election of the others by false BEATs: a single member that grants and follows it would make all follow. A process
// that this list doesn't permit to be elected holds the office since the previous one.
func (s *state) isConfirmed(id election.ID, term election.Term) bool {
	if s.coordinator == id && s.coordinatorTerm == term || s.ledger.HasGranted(id, term, s.now) {
		return true
	}
	follows := func(other election.ID) bool {
		p := &s.peers[other]
		return other == id || other != s.cfg.Self && p.follows == id && p.followsTerm == term && p.followsUntil > s.now
	}
	if s.roster.Priority(id) == 0 && s.roster.Previous != nil {
		return majorityOf(s.roster.Previous, follows)
	}
	return s.majority(follows)
}

// followUnconfirmed handles the BEAT of a process that holds the office as only it says itself. This process follows it
// if it could grant the office, as the BEAT requests. Otherwise it asks the other members which coordinator they
// follow. For example, this process has restarted and may not grant anything yet.
func (m *Machine) followUnconfirmed(beat *election.Message, granted bool, out *election.Output) {
	if granted {
		m.follow(beat, out)
		return
	}
	if beat.Term < m.coordinatorTerm {
		out.Emit(election.Outdated, beat.Term, beat.From)
		return
	}
	m.recordContender(beat)
	if m.now >= m.contender.askedUntil {
		m.contender.askedUntil = m.now + m.cfg.Heartbeat
		m.sendProbes(out)
	}
}
