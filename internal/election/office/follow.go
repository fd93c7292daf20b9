package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// beaten answers a BEAT, and follows whoever sent it if that process holds the
// office.
func (m *Machine) handleBeat(msg *election.Message, out *election.Output) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	if m.peers[msg.From].hasResigned(msg) || m.roster.Priority(msg.From) == 0 {
		out.Emit(election.Outdated, msg.Term, msg.From)
		return
	}
	if m.role == candidate && !msg.Hold.Held && msg.Term > m.term && m.roster.Outranks(msg.From, m.cfg.Self) {
		// In the same term it wouldn't help the other one: a member that granted
		// this process grants nobody else in that term.
		m.abandonClaim(out)
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

// deferTo leaves the office to a higher process that claims it, for a while: a
// new election would only end its claim. One that claims a term that was granted
// before doesn't get it: its clock may be far behind, and it may not know.
func (m *Machine) deferTo(claim *election.Message) {
	if !claim.Hold.Held && m.campaignAt != election.Never && m.roster.Outranks(claim.From, m.cfg.Self) {
		m.campaignAt = max(m.campaignAt, m.now+m.claimTimeout()+m.campaignDelay())
	}
}

func requestOf(msg *election.Message) grants.Request {
	return grants.Request{
		Holder: grants.Holder{ID: msg.From, Life: msg.Hold.Life},
		Term:   msg.Term, Held: msg.Hold.Held, Version: msg.Hold.Version, Sent: msg.Hold.Sent,
	}
}

func (m *Machine) sendAnswer(kind election.Kind, r grants.Request, term election.Term, out *election.Output) {
	answer := election.Message{Kind: kind, From: m.cfg.Self, To: r.ID, Term: term}
	answer.Hold = election.Hold{
		Sent: r.Sent, RequesterLife: r.Life, Version: m.ledger.ReportedVersion(m.roster.Version, m.now),
		HighestGranted: m.ledger.HighestGrantedExcept(r.Holder, r.Term), Ready: m.ready(),
	}
	out.Send = append(out.Send, answer)
}

// grantPending grants the request that was kept for later.
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

// follow takes notice of a process that holds the office.
func (m *Machine) follow(msg *election.Message, out *election.Output) {
	id, term := msg.From, msg.Term
	if m.role >= holder {
		if term < m.term || term == m.term && m.roster.Outranks(m.cfg.Self, id) {
			out.Emit(election.Outdated, term, id)
			return // Available, after a partition: the other one will hear of us
		}
		m.loseTenure(out)
	}
	switch {
	case term < m.coordinatorTerm:
		out.Emit(election.Outdated, term, id)
		return
	case term == m.coordinatorTerm && m.coordinator != election.None && m.coordinator != id && !m.roster.Outranks(id, m.coordinator):
		return
	}
	if m.role == candidate {
		m.abandonClaim(out)
	}
	m.campaignAt = election.Never
	if m.coordinator != id || m.coordinatorTerm != term {
		m.recordSuccession(id, out)
		m.coordinator, m.coordinatorTerm, m.deadCoordinator, m.namedSuccessor = id, term, election.None, false
		m.readmitAll(out)
		m.peers[id].notBefore = 0
		out.Emit(election.Recognized, term, id)
		m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Peer: id, Term: term}, out)
		m.updateWatch()
	}
	m.applyAbsent(msg.List, out)
}

// succeeded notes that by holds the office. Whoever held it before and hasn't
// resigned is believed dead, until it is heard of.
func (m *Machine) recordSuccession(by election.ID, out *election.Output) {
	before := m.coordinator
	m.coordinator = by
	if before == election.None || before == by || before == m.cfg.Self || m.peers[before].resignedTerm >= m.coordinatorTerm {
		return
	}
	m.suspect(before, out)
}

// applyAbsent takes over whom the coordinator believes dead, and who doesn't
// stand: see absent.
func (m *Machine) applyAbsent(absent []election.ID, out *election.Output) {
	dead, away := absent, []election.ID(nil)
	if i := slices.Index(absent, election.None); i >= 0 {
		dead, away = absent[:i], absent[i+1:]
	}
	for id := range m.peers {
		if id := election.ID(id); id != m.coordinator && id != m.cfg.Self {
			m.peers[id].ineligible = election.IDs(away).Has(id)
		}
	}
	if len(dead) == 0 && len(m.detector.All()) == 0 {
		return
	}
	suspects := election.IDs(dead)
	for _, id := range m.detector.All().Clone() {
		if !suspects.Has(id) {
			m.markAlive(id, out)
		}
	}
	for _, id := range dead {
		if id != m.cfg.Self && id != m.coordinator && m.roster.Has(id) {
			m.suspect(id, out)
		}
	}
}

// watch has the detector look after those from whom this process must hear: a
// follower from its coordinator, everyone else from all.
func (m *Machine) updateWatch() {
	if m.role == follower && m.coordinator != election.None {
		m.detector.Unwatch(m.cfg.SuspicionTimeout)
		m.detector.Watch(m.coordinator, m.now)
		m.probeAt = election.Never
		if m.mayTakeOver() {
			m.probeAt = m.now
		}
		return
	}
	m.detector.Unwatch(m.probeTimeout())
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			m.detector.Watch(id, m.now)
		}
	})
	m.probeAt = m.now + m.cfg.Heartbeat
}

// maxProbesPerTurn bounds how many others a process hails at a time. If everyone hailed
// everyone in a large group, the hails would take all the time in which somebody
// could be elected: a hundred processes would send a hundred thousand a second.
const maxProbesPerTurn = 16

// turns is in how many parts the others are hailed, one with each heartbeat.
func (m *Machine) probeTurns() int { return 1 + (m.roster.Len()-2)/maxProbesPerTurn }

// probeTimeout is the silence after which a process is suspected that is
// heard of by its hails: as long as ever in a group that is hailed at once.
func (m *Machine) probeTimeout() election.Tick {
	if m.role == follower {
		return m.cfg.SuspicionTimeout * election.Tick(m.probeTurns())
	}
	return m.cfg.SuspicionTimeout // It answers the BEATs of this one.
}

// hail lets everyone know that this process lives, while there is no
// coordinator that would tell them: so the dead are found, and processes that
// suspect each other don't wait for each other's signs of life for ever. A
// process that waits to take over finds out whom it reaches.
func (m *Machine) probe(out *election.Output) {
	m.probeAt = election.Never
	if m.role != follower || m.coordinator != election.None && !m.mayTakeOver() {
		return
	}
	m.probeAt = m.now + m.cfg.Heartbeat
	turns := m.probeTurns()
	m.probeTurn = (m.probeTurn + 1) % turns
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self && int(id)%turns == m.probeTurn {
			out.Send = append(out.Send, election.Message{Kind: election.Probe, From: m.cfg.Self, To: id, Term: m.coordinatorTerm})
		}
	})
}

// hailed answers a hail, unless this process hails by itself.
func (m *Machine) handleProbe(msg *election.Message, out *election.Output) {
	if msg.Hold.Held || m.coordinator == election.None {
		return
	}
	answer := election.Message{Kind: election.Probe, From: m.cfg.Self, To: msg.From, Term: m.coordinatorTerm}
	answer.Hold.Held = true
	out.Send = append(out.Send, answer)
}

// alive notes a sign of life.
func (m *Machine) markAlive(id election.ID, out *election.Output) {
	if m.detector.Observe(id, m.now) {
		if m.deadCoordinator == id {
			m.deadCoordinator = election.None
		}
		m.stepInner(election.Input{Kind: election.Restore, Now: m.now, Peer: id}, out)
	}
}

// present takes notice of whether the sender stands.
func (m *Machine) recordEligibility(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	p.ineligible = msg.Hold.Ineligible
	if p.skipped && !p.ineligible {
		m.readmit(msg.From, out)
	}
}

// skipIneligible keeps the election inside from waiting for the answers of those who
// live, but don't stand. A ring waits for nobody's, and still goes through them.
func (m *Machine) skipIneligible(out *election.Output) {
	for id := range m.peers {
		if p := &m.peers[id]; p.ineligible && !p.skipped && m.roster.Has(election.ID(id)) {
			p.skipped = true
			m.stepInnerQuietly(election.Suspect, election.ID(id), out)
		}
	}
}

// readmit ends that: there is a coordinator.
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

// pretend tells the election inside that a process has died or is back, and
// nobody else: that is not what has happened.
func (m *Machine) stepInnerQuietly(kind election.InputKind, id election.ID, out *election.Output) {
	told := len(out.Events)
	m.stepInner(election.Input{Kind: kind, Ineligible: true, Now: m.now, Peer: id}, out)
	kept := out.Events[:told]
	for _, e := range out.Events[told:] {
		if e.Peer != id || e.Kind != election.MarkedCrashed && e.Kind != election.MarkedNormal {
			kept = append(kept, e)
		}
	}
	out.Events = kept
}

// suspect notes that a process is believed dead.
func (m *Machine) suspect(id election.ID, out *election.Output) {
	if id == m.cfg.Self || !m.isMember(id) {
		out.Emit(election.Refused, 0, id)
		return
	}
	if m.detector.Suspect(id) {
		m.handleSuspicion(id, out)
	}
}

// silent acts on a suspicion.
func (m *Machine) handleSuspicion(id election.ID, out *election.Output) {
	m.peers[id].ready = false
	m.stepInner(election.Input{Kind: election.Suspect, Now: m.now, Peer: id}, out)
	if id == m.coordinator {
		m.coordinatorLost(id, out)
	}
}

// gone notes that one life of a process has ended for sure.
func (m *Machine) processEnded(id election.ID, life uint32, out *election.Output) {
	if id == m.cfg.Self || !m.isMember(id) {
		out.Emit(election.Refused, 0, id)
		return
	}
	if m.cfg.Mode == Majority {
		m.ledger.ProcessEnded(grants.Holder{ID: id, Life: life}, m.now)
	}
	if known := m.peers[id].life; known == life || known == 0 {
		m.suspect(id, out)
	}
}

// coordinatorLost leaves the office vacant. A process that the election inside has
// found to be the next claims it; the others wait for their turn.
func (m *Machine) coordinatorLost(dead election.ID, out *election.Output) {
	m.coordinator, m.deadCoordinator, m.namedSuccessor = election.None, dead, false
	m.skipIneligible(out)
	m.updateWatch()
	m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Term: m.coordinatorTerm}, out)
	if m.role == follower {
		m.campaignAt = m.now + m.campaignDelay()
	}
}

// resigned frees what was granted to a process that gave up its claim or its
// office, and makes room for its successor.
func (m *Machine) handleResigned(msg *election.Message, out *election.Output) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	p := &m.peers[msg.From]
	if p.resignedLife != msg.Hold.Life {
		p.resignedLife, p.resignedTerm = msg.Hold.Life, 0
	}
	p.resignedTerm = max(p.resignedTerm, msg.Term)
	m.ledger.Release(grants.Holder{ID: msg.From, Life: msg.Hold.Life}, msg.Term, m.now)
	if m.coordinator != msg.From || m.coordinatorTerm > msg.Term {
		return
	}
	m.coordinatorLost(election.None, out)
	switch heir := msg.Subject; {
	case m.role != follower || heir == election.None:
	case heir == m.cfg.Self:
		m.campaignAt, m.namedSuccessor = m.now, true
	case m.isMember(heir) && !m.detector.Suspects(heir):
		m.campaignAt += m.cfg.Stagger // it may be of lower rank, and comes first all the same
	}
}
