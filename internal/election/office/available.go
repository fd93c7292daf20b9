package office

import "github.com/conclave-dev/conclave/internal/election"

// In Available mode the grants don't decide between two coordinators, so each
// member decides for itself, by rank: it keeps its coordinator while that is alive
// and exchanges messages with it, and leaves it only for a higher one. If members
// decided by term, two coordinators that share a follower but don't reach each
// other would take it from each other with ever higher terms.

// available is the state that only Available mode needs.
type available struct {
	// unacknowledged counts the BEATs of the coordinator, up to maxUnacknowledged,
	// since it received an answer of this process.
	unacknowledged int
}

// answerWithoutGrant answers a BEAT.
func (m *Machine) answerWithoutGrant(msg *election.Message, out *election.Output) {
	switch {
	case msg.Hold.Held:
		m.handleHeldBeat(msg, out)
	case msg.Term < m.coordinatorTerm:
		m.sendAnswer(election.Deny, requestOf(msg), m.coordinatorTerm, out)
	default:
		m.deferTo(msg)
		m.sendAnswer(election.Grant, requestOf(msg), msg.Term, out)
	}
}

// handleHeldBeat follows the sender of a BEAT that holds the office, or refuses.
// Every answer names the coordinator that its sender follows: a refused sender
// that ranks above it needs a higher term, see handleDeny.
func (m *Machine) handleHeldBeat(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	switch {
	case msg.Hold.RequesterLife == m.cfg.Life:
		p.oneWay = false
	case m.coordinator == msg.From && m.available.unacknowledged == maxUnacknowledged:
		p.oneWay = true
	}
	keep := m.coordinator != election.None && m.coordinator != msg.From &&
		(msg.Hold.RequesterLife != m.cfg.Life || !m.roster.Outranks(msg.From, m.coordinator))
	if keep && msg.Term >= m.coordinatorTerm && !p.oneWay {
		m.contender = contender{id: msg.From, term: msg.Term, until: m.now + m.cfg.Heartbeat}
	}
	if keep || msg.Term < m.coordinatorTerm || p.oneWay && m.coordinator == election.None {
		m.sendAnswer(election.Deny, requestOf(msg), m.coordinatorTerm, out)
		out.Send[len(out.Send)-1].Hold.Ready = false
		return
	}
	m.follow(msg, out)
	m.sendAnswer(election.Grant, requestOf(msg), msg.Term, out)
}

// contender is a coordinator that this process has refused to follow, in favor of
// its own. For example, the coordinator has crashed, another member knew that first
// and was elected, and its first BEAT arrives here before the news of the crash.
type contender struct {
	id    election.ID
	term  election.Term
	until election.Tick
}

// followContender follows the contender, if there is one, when the coordinator is
// lost. Otherwise this process would start an election before the next BEAT.
func (m *Machine) followContender(out *election.Output) {
	c := m.contender
	m.contender = contender{}
	if c.id != election.None && m.now < c.until && c.term >= m.coordinatorTerm && m.isMember(c.id) && !m.detector.Suspects(c.id) {
		m.recognize(c.id, c.term, out)
	}
}

// loseToHigher ends a tenure whose term is too low for a member, so that the process
// acquires the office in a higher one. If the member follows a coordinator of higher
// rank, that one prevails instead. For example, the member has followed a newer
// coordinator, which has failed since.
func (m *Machine) loseToHigher(msg *election.Message, out *election.Output) {
	if m.cfg.Mode == Available && msg.Term > m.term && m.roster.Outranks(m.cfg.Self, msg.Subject) {
		m.loseTenure(out)
		m.vacancy.campaignAt = m.now
	}
}

// maxUnacknowledged is the number of BEATs for which a coordinator may lack the answers
// of a follower: a new one has to receive the first answer.
const maxUnacknowledged = 4

// acknowledged reports whether the coordinator, which sent this BEAT, receives what
// this process sends. In the other modes a coordinator that doesn't is no problem:
// it has the grants of a majority.
func (m *Machine) acknowledged(beat *election.Message) bool {
	if m.cfg.Mode != Available || beat.Hold.RequesterLife == m.cfg.Life {
		m.available.unacknowledged = 0
		return true
	}
	m.available.unacknowledged = min(m.available.unacknowledged+1, maxUnacknowledged)
	return m.available.unacknowledged < maxUnacknowledged
}
