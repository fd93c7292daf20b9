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
	answer := m.answerTo(m.requestOf(msg))
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
	case grants.Unreserved: // It may never be granted, so no campaign waits for it.
		m.sendAnswer(election.Deny, m.requestOf(msg), 0, out)
	case grants.NoVote:
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
// handleBeat doesn't call deferTo for a term that was granted before: the claim may fail
// again and again. If 3 waited for 4, there would be no coordinator meanwhile.
func (m *Machine) deferTo(claim *election.Message) {
	if !claim.Hold.Held && m.vacancy.campaignAt != election.Never && m.precedes(claim.From, m.cfg.Self) {
		m.vacancy.campaignAt = max(m.vacancy.campaignAt, m.now+m.claimTimeout()+m.campaignDelay())
		m.vacancy.deferredTo = claim.From
	}
}

// endDeferral ends what deferTo did: the process has given up its claim, or is suspected.
func (m *Machine) endDeferral(id election.ID) {
	if m.vacancy.deferredTo == id && m.vacancy.campaignAt != election.Never {
		m.vacancy.deferredTo = election.None
		m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+m.campaignDelay()+m.backoff())
	}
}

// answerTo answers a request for a grant.
func (s *state) answerTo(r grants.Request) grants.Answer {
	if s.Forgetful() {
		return grants.NoVote
	}
	return s.ledger.Handle(r, s.roster.Version, s.now)
}

// reportedVersion is the list that this process reports as adopted. What an earlier process granted whose state
// directory was lost is unknown to it.
func (s *state) reportedVersion() uint32 {
	if s.Forgetful() {
		return 0
	}
	return s.ledger.ReportedVersion(s.roster.Version, s.now)
}

// ReportsList reports whether this process tells others that it has adopted its present list.
func (s *state) ReportsList() bool { return s.reportedVersion() == s.roster.Version }

// Joined reports whether the process votes, and the coordinator knows that it is ready for the office, or ineligible. A
// process waits for the latter at most a lease: it may reach nobody.
func (m *Machine) Joined(now election.Tick) bool {
	votes := !m.Forgetful() && (m.cfg.Mode == Available || !m.ledger.WaitingAfterRestart(now))
	return votes && now >= m.joinsAt
}

func (s *state) requestOf(msg *election.Message) grants.Request {
	return grants.Request{
		Holder: grants.Holder{ID: msg.From, Life: msg.Hold.Life},
		Term:   msg.Term, Held: msg.Hold.Held, Version: msg.Hold.Version, Sent: msg.Hold.Sent,
		Lease: s.commonLease(msg.Hold.Lease),
	}
}

func (m *Machine) sendAnswer(kind election.Kind, r grants.Request, term election.Term, out *election.Output) {
	answer := election.Message{Kind: kind, From: m.cfg.Self, To: r.ID, Term: term, Subject: m.coordinator}
	answer.Hold = election.Hold{
		Sent: r.Sent, RequesterLife: r.Life, Version: m.reportedVersion(),
		HighestGranted: m.ledger.HighestGrantedExcept(r.Holder, r.Term), Ready: m.ready(), Lease: r.Lease,
	}
	out.Send = append(out.Send, answer)
	// A holder counts on a member with the same list: see recordAnswer.
	if kind == election.Grant && r.Held && answer.Hold.Version == r.Version && (answer.Hold.Ready || !m.Eligible()) {
		m.joinsAt = min(m.joinsAt, m.now)
	}
}

// grantPending grants the request that was deferred.
func (m *Machine) grantPending(out *election.Output) {
	r := m.ledger.Pending()
	r.Lease = m.commonLease(r.Lease) // this process may have got a shorter lease meanwhile
	answer := grants.NoVote
	if m.roster.Priority(r.ID) > 0 {
		answer = m.answerTo(r)
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
