package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// handleBeat answers a BEAT. It also follows the sender if that holds the office.
func (m *Machine) handleBeat(msg *election.Message, out *election.Output) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	if m.peers[msg.From].hasResigned(msg) || m.roster.Priority(msg.From) == 0 {
		out.Emit(election.Outdated, msg.Term, msg.From)
		return
	}
	if m.role == candidate && !msg.Hold.Held && msg.Term > m.term && m.roster.Outranks(msg.From, m.cfg.Self) {
		// In the same term that wouldn't help the sender: a member that granted this
		// process grants no other in that term.
		m.abandonClaim(out)
	}
	if m.cfg.Mode == Available && msg.Hold.Held {
		m.handleHeldBeat(msg, out)
		return
	}
	if msg.Hold.Held {
		m.follow(msg, out)
	}
	if m.cfg.Mode == Available {
		if msg.Term < m.coordinatorTerm {
			m.sendAnswer(election.Deny, requestOf(msg), m.coordinatorTerm, out)
			return
		}
		m.deferTo(msg)
		m.sendAnswer(election.Grant, requestOf(msg), msg.Term, out)
		return
	}
	switch m.ledger.Handle(requestOf(msg), m.roster.Version, m.now) {
	case grants.Granted:
		m.deferTo(msg)
		m.sendAnswer(election.Grant, requestOf(msg), msg.Term, out)
	case grants.TermTooLow:
		m.sendAnswer(election.Deny, requestOf(msg), m.ledger.HighestGranted(), out)
	case grants.Deferred, grants.VersionTooOld:
		m.deferTo(msg)
		m.sendAnswer(election.Deny, requestOf(msg), 0, out)
	}
}

// deferTo postpones a campaign of this process while a higher one claims the
// office: an election would only end that claim. The caller excludes a claim of a
// term that was granted before, since it can't succeed. Its sender's clock may be
// far behind, and the sender may not know.
func (m *Machine) deferTo(claim *election.Message) {
	if !claim.Hold.Held && m.campaignAt != election.Never && m.roster.Outranks(claim.From, m.cfg.Self) {
		m.campaignAt = max(m.campaignAt, m.now+m.claimTimeout()+m.campaignDelay())
		m.vacancy.deferredTo = claim.From
	}
}

func requestOf(msg *election.Message) grants.Request {
	return grants.Request{
		Holder: grants.Holder{ID: msg.From, Life: msg.Hold.Life},
		Term:   msg.Term, Held: msg.Hold.Held, Version: msg.Hold.Version, Sent: msg.Hold.Sent,
	}
}

func (m *Machine) sendAnswer(kind election.Kind, r grants.Request, term election.Term, out *election.Output) {
	answer := election.Message{Kind: kind, From: m.cfg.Self, To: r.ID, Term: term, Subject: m.coordinator}
	answer.Hold = election.Hold{
		Sent: r.Sent, RequesterLife: r.Life, Version: m.ledger.ReportedVersion(m.roster.Version, m.now),
		HighestGranted: m.ledger.HighestGrantedExcept(r.Holder, r.Term), Ready: m.ready(),
	}
	out.Send = append(out.Send, answer)
}

// grantPending grants the request that was deferred.
func (m *Machine) grantPending(out *election.Output) {
	r := m.ledger.Pending()
	if m.roster.Priority(r.ID) == 0 || m.ledger.Handle(r, m.roster.Version, m.now) != grants.Granted {
		m.ledger.ProcessEnded(r.Holder, m.now)
		return
	}
	if r.ID == m.cfg.Self {
		if m.role != follower && r.Term == m.term {
			m.support.Add(r.ID, r.Sent)
			m.acquireIfGranted(out)
		}
		return
	}
	m.sendAnswer(election.Grant, r, r.Term, out)
}
