package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// handleBeat answers a BEAT, which requests a grant or renews one. It follows the sender
// if the sender holds the office as far as this process knows: see isConfirmed.
func (m *Machine) handleBeat(msg *election.Message, out *election.Output) {
	if m.cfg.Mode == Available {
		m.answerWithoutGrant(msg, out)
		return
	}
	believed := msg.Hold.Held && (m.role >= Holder || m.isConfirmed(msg.From, msg.Term))
	if believed {
		m.follow(msg, out)
	}
	answer := m.ledger.Handle(m.requestOf(msg), m.roster.Version, m.now)
	if msg.Hold.Held && !believed {
		m.followUnconfirmed(msg, answer == grants.Granted, out)
	}
	switch answer {
	case grants.Granted:
		m.deferTo(msg)
		m.sendAnswer(election.Grant, m.requestOf(msg), msg.Term, out)
	case grants.TermTooLow:
		m.sendAnswer(election.Deny, m.requestOf(msg), m.ledger.HighestGranted(), out)
	case grants.Deferred:
		m.deferTo(msg)
		m.sendAnswer(election.Deny, m.requestOf(msg), 0, out)
	case grants.VersionTooOld:
		// A claim ends when its process adopts another list, so this refusal is final.
		m.sendAnswer(election.Deny, m.requestOf(msg), msg.Term, out)
	}
}

// deferTo postpones a campaign of this process while a process of higher rank claims the
// office: an election would only end that claim.
//
// For example, consider members 1 to 5. When the coordinator 5 crashes, 4 claims the
// office, and 3 doesn't receive the messages of that election. Without this rule, 3
// starts another election, which has a higher term and ends the claim of 4.
//
// handleBeat doesn't call deferTo for a term that was granted before. For example, the
// clock of 4 is far behind, so its claims fail, and 4 may not know why. If 3 waited for 4,
// there would be no coordinator meanwhile.
func (m *Machine) deferTo(claim *election.Message) {
	comesAfter := m.now >= m.peers[claim.From].claimsUntil // see admitsClaim
	if !claim.Hold.Held && !comesAfter && m.vacancy.campaignAt != election.Never && m.roster.Outranks(claim.From, m.cfg.Self) {
		m.vacancy.campaignAt = max(m.vacancy.campaignAt, m.now+m.claimTimeout()+m.campaignDelay())
		m.vacancy.deferredTo = claim.From
	}
}

// admitsClaim reports whether a claim may be granted or deferred now. A process whose
// claims fail yields to other candidates, with exponential backoff.
//
// For example, member 5 never gets all grants that it needs, because one of its links
// loses most messages. Member 4 could acquire the office with the grant of member 1. If 1
// granted each claim of 5, 4 would never acquire it. Instead, 1 admits claims of 5 for the
// time of two claims (claimsUntil). Then, while another process claims the office, it
// admits none for the time of two more, then four, then eight (claimsAgainAt).
//
// A claim of a term far ahead isn't admitted: nobody could claim the next term.
func (m *Machine) admitsClaim(claim *election.Message) bool {
	p := &m.peers[claim.From]
	switch {
	case !m.usable(claim.Term):
		return false
	case m.cfg.Mode == Available:
		return true
	case m.now >= p.claimsAgainAt:
		p.claimsUntil = m.now + 2*m.claimTimeout()
		p.claimsAgainAt = p.claimsUntil + 2*m.claimTimeout()<<p.failedClaims
		p.failedClaims = min(p.failedClaims+1, maxFailedClaims)
	case m.now >= p.claimsUntil:
		return !m.othersClaim(claim.From)
	}
	p.claimedUntil = m.now + m.cfg.Lease
	return true
}

// othersClaim reports whether this process claims the office, or has admitted a claim of
// another process than id during the last lease.
func (m *Machine) othersClaim(id election.ID) bool {
	if m.role == Candidate {
		return true
	}
	for other := range m.peers {
		if election.ID(other) != id && m.peers[other].claimedUntil > m.now {
			return true
		}
	}
	return false
}

// maxFailedClaims bounds the exponential backoff of admitsClaim and raiseTerm.
const maxFailedClaims = 6

// forgetClaims ends the backoff of all processes: there is a coordinator.
func (m *Machine) forgetClaims() {
	for i := range m.peers {
		p := &m.peers[i]
		p.claimsUntil, p.claimsAgainAt, p.claimedUntil, p.failedClaims = m.now, m.now, m.now, 0
	}
}

func (m *Machine) requestOf(msg *election.Message) grants.Request {
	return grants.Request{
		Holder: grants.Holder{ID: msg.From, Life: msg.Hold.Life},
		Term:   msg.Term, Held: msg.Hold.Held, Version: msg.Hold.Version, Sent: msg.Hold.Sent,
		Lease: m.commonLease(msg.Hold.Lease),
	}
}

func (m *Machine) sendAnswer(kind election.Kind, r grants.Request, term election.Term, out *election.Output) {
	answer := election.Message{Kind: kind, From: m.cfg.Self, To: r.ID, Term: term, Subject: m.coordinator}
	answer.Hold = election.Hold{
		Sent: r.Sent, RequesterLife: r.Life, Version: m.ledger.ReportedVersion(m.roster.Version, m.now),
		HighestGranted: m.ledger.HighestGrantedExcept(r.Holder, r.Term), Ready: m.ready(), Lease: r.Lease,
	}
	out.Send = append(out.Send, answer)
}

// grantPending grants the request that was deferred.
func (m *Machine) grantPending(out *election.Output) {
	r := m.ledger.Pending()
	r.Lease = m.commonLease(r.Lease) // this process may have got a shorter lease meanwhile
	answer := grants.VersionTooOld
	if m.roster.Priority(r.ID) > 0 {
		answer = m.ledger.Handle(r, m.roster.Version, m.now)
	}
	if answer != grants.Granted {
		m.ledger.DropPending()
		if answer == grants.TermTooLow && r.ID != m.cfg.Self {
			m.sendAnswer(election.Deny, r, m.ledger.HighestGranted(), out)
		}
		return
	}
	if r.ID == m.cfg.Self {
		if m.role != Follower && r.Term == m.term {
			m.support.Add(r.ID, r.Sent, r.Lease)
			m.acquireIfGranted(out)
		}
		return
	}
	m.sendAnswer(election.Grant, r, r.Term, out)
	m.followContender(out)
}
