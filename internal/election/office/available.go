package office

import "github.com/conclave-dev/conclave/internal/election"

// In Available mode the grants don't decide between two coordinators, so each member decides for itself, by rank: it
// keeps its coordinator while that is alive and exchanges messages with it, and leaves it only for a higher one. If
// members decided by term, two coordinators that share a follower but don't reach each other would take it from each
// other with ever higher terms.

// available is the state that only Available mode needs.
type available struct {
	// unacknowledged counts the BEATs of the coordinator, up to maxUnacknowledged,
	// since it received an answer of this process.
	unacknowledged int
}

// answerWithoutGrant follows the sender of a BEAT, or refuses. The answer names the coordinator that this process
// follows. A BEAT always comes from a coordinator: the winner of an election holds the office at once.
func (m *Machine) answerWithoutGrant(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	switch {
	case !msg.Hold.Held || m.coordinator == msg.From && msg.Term < m.coordinatorTerm:
		out.Emit(election.Outdated, msg.Term, msg.From)
		return
	case msg.Hold.RequesterLife == m.cfg.Life:
		p.oneWay = false
	case m.coordinator == msg.From && m.available.unacknowledged == maxUnacknowledged:
		p.oneWay = true
	}
	keep := m.coordinator != election.None && m.coordinator != msg.From &&
		(msg.Hold.RequesterLife != m.cfg.Life || !m.roster.Outranks(msg.From, m.coordinator))
	if keep && !p.oneWay {
		m.recordContender(msg)
	}
	if keep || p.oneWay && m.coordinator == election.None || msg.Term < m.coordinatorTerm && !m.continuesInLowerTerm(msg) {
		m.sendAnswer(election.Deny, m.requestOf(msg), m.coordinatorTerm, out)
		out.Send[len(out.Send)-1].Hold.Ready = false
		return
	}
	m.follow(msg, out)
	m.sendAnswer(election.Grant, m.requestOf(msg), msg.Term, out)
}

// continuesInLowerTerm reports whether a coordinator continues in a term that this process has refused for two
// heartbeats, because it knows a higher term. Then the BEAT isn't a delayed message of an earlier tenure. For example,
// 4 led in term 10 on another side of a partition, and 5 leads in term 8.
func (s *state) continuesInLowerTerm(beat *election.Message) bool {
	p := &s.peers[beat.From]
	if p.refusedTerm != beat.Term || p.refusedLife != beat.Hold.Life {
		p.refusedTerm, p.refusedLife, p.refusedUntil = beat.Term, beat.Hold.Life, s.now+2*s.cfg.Heartbeat
	}
	return s.now >= p.refusedUntil
}

// raiseTerm ends a tenure whose term is lower than one in which a member had a
// coordinator, so that the process acquires the office in a higher one at once.
//
// For example, 5 leads on one side of a partition in term 8, and 4 on the other side in
// term 10. When the partition ends, 5 prevails, because it has the higher rank. But
// resources that 4 has used reject the token of 5, until 5 leads in term 11.
//
// If the member follows a coordinator of higher rank, that one prevails instead. Repeated requests
// of one peer are rate-limited with exponential backoff.
func (m *Machine) raiseTerm(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	requested := m.cfg.Mode == Available && m.role == Holder && msg.Term > m.term &&
		m.roster.Outranks(m.cfg.Self, msg.Subject) && msg.Hold.RequesterLife == m.cfg.Life
	if !requested || !m.claimable(max(msg.Term+1, m.nextTerm())) || m.now < p.raisesAgainAt {
		return
	}
	p.raisesAgainAt = m.now + m.cfg.usualLease()<<p.raises
	p.raises = min(p.raises+1, maxRaises)
	m.loseTenure(out)
	m.claimedTerm = max(m.claimedTerm, msg.Term)
	m.vacancy.campaignAt, m.vacancy.successor = m.now, m.cfg.Self
}

// maxRaises bounds the exponential backoff of raiseTerm.
const maxRaises = 6

// maxUnacknowledged is the number of BEATs for which a coordinator may lack the answers
// of a follower: a new one has to receive the first answer.
const maxUnacknowledged = 4

// awaitsWitnesses reports whether this process, whose coordinator has fallen silent, leaves the office to
// it for now: it waits for the answers of the others, or one of them hears the coordinator. Links that
// stall for a moment would make a second coordinator each time otherwise.
func (m *Machine) awaitsWitnesses() bool {
	v := &m.vacancy
	lost := &m.peers[v.lost]
	// Its answer to a probe can arrive before its next BEAT.
	heard := m.detector.Suspects(v.lost) || lost.follows == v.lost && lost.followsUntil > m.now
	return v.lost != election.None && heard && !v.proven && v.attempts == 0 && m.now < m.witnessesUntil()
}

// witnessesUntil is how long this process waits for the others: for two suspicion timeouts if one of them hears the
// coordinator. The link may be broken for good, and this side must have a coordinator then.
func (m *Machine) witnessesUntil() election.Tick {
	until := m.vacancy.since
	m.eachMember(func(id election.ID) {
		p := &m.peers[id]
		switch {
		case id == m.cfg.Self || m.detector.Suspects(id):
		case p.followsUntil <= m.now:
			until = max(until, m.vacancy.since+m.cfg.Heartbeat)
		case p.follows == m.vacancy.lost:
			until = max(until, m.vacancy.since+2*m.cfg.SuspicionTimeout)
		}
	})
	return until
}

// acknowledged reports whether the coordinator, which sent this BEAT, receives what this process sends. In the other
// modes a coordinator that doesn't is no problem: it has the grants of a majority.
func (m *Machine) acknowledged(beat *election.Message) bool {
	if m.cfg.Mode != Available || beat.Hold.RequesterLife == m.cfg.Life {
		m.available.unacknowledged = 0
		return true
	}
	m.available.unacknowledged = min(m.available.unacknowledged+1, maxUnacknowledged)
	return m.available.unacknowledged < maxUnacknowledged
}
