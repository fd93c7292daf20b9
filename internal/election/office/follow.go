package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// beaten answers a BEAT, and follows whoever sent it if that process holds the
// office.
func (m *Machine) beaten(msg *election.Message, out *election.Output) {
	m.seen = max(m.seen, msg.Term)
	if m.peers[msg.From].gaveUp(msg) || m.roster.Priority(msg.From) == 0 {
		out.Emit(election.Outdated, msg.Term, msg.From)
		return
	}
	if m.role == claiming && !msg.Hold.Held && msg.Term > m.term && m.roster.Outranks(msg.From, m.cfg.Self) {
		// In the same term it wouldn't help the other one: a member that granted
		// this process grants nobody else in that term.
		m.abandon(out)
	}
	if msg.Hold.Held {
		m.follow(msg, out)
	}
	if m.cfg.Mode == Available {
		if msg.Term < m.leaderTerm {
			m.answer(election.Deny, requestOf(msg), m.leaderTerm, out)
			return
		}
		m.leaveTo(msg)
		m.answer(election.Grant, requestOf(msg), msg.Term, out)
		return
	}
	switch m.ledger.Ask(requestOf(msg), m.roster.Version, m.now) {
	case grants.Granted:
		m.leaveTo(msg)
		m.answer(election.Grant, requestOf(msg), msg.Term, out)
	case grants.TooLow:
		m.answer(election.Deny, requestOf(msg), m.ledger.Bar(), out)
	case grants.Later, grants.OldList:
		m.leaveTo(msg)
		m.answer(election.Deny, requestOf(msg), 0, out)
	}
}

// leaveTo leaves the office to a higher process that claims it, for a while: a
// new election would only end its claim. One that claims a term that was granted
// before doesn't get it: its clock may be far behind, and it may not know.
func (m *Machine) leaveTo(claim *election.Message) {
	if !claim.Hold.Held && m.campaignAt != election.Never && m.roster.Outranks(claim.From, m.cfg.Self) {
		m.campaignAt = max(m.campaignAt, m.now+m.patience()+m.stagger())
	}
}

func requestOf(msg *election.Message) grants.Request {
	return grants.Request{
		Holder: grants.Holder{ID: msg.From, Life: msg.Hold.Life},
		Term:   msg.Term, Held: msg.Hold.Held, Version: msg.Hold.Version, Sent: msg.Hold.Sent,
	}
}

func (m *Machine) answer(kind election.Kind, r grants.Request, term election.Term, out *election.Output) {
	answer := election.Message{Kind: kind, From: m.cfg.Self, To: r.ID, Term: term}
	answer.Hold = election.Hold{
		Sent: r.Sent, Asker: r.Life, Version: m.ledger.Adopted(m.roster.Version, m.now),
		Bar: m.ledger.BarFor(r.Holder, r.Term), Ready: m.ready(),
	}
	out.Send = append(out.Send, answer)
}

// grantWaiting grants the request that was kept for later.
func (m *Machine) grantWaiting(out *election.Output) {
	r := m.ledger.Waiting()
	if m.roster.Priority(r.ID) == 0 || m.ledger.Ask(r, m.roster.Version, m.now) != grants.Granted {
		m.ledger.ProcessEnded(r.Holder, m.now)
		return
	}
	if r.ID == m.cfg.Self {
		if m.role != follower && r.Term == m.term {
			m.support.Add(r.ID, r.Sent)
			m.secure(out)
		}
		return
	}
	m.answer(election.Grant, r, r.Term, out)
}

// follow takes notice of a process that holds the office.
func (m *Machine) follow(msg *election.Message, out *election.Output) {
	id, term := msg.From, msg.Term
	if m.role >= holding {
		if term < m.term || term == m.term && m.roster.Outranks(m.cfg.Self, id) {
			out.Emit(election.Outdated, term, id)
			return // Available, after a partition: the other one will hear of us
		}
		m.lose(out)
	}
	switch {
	case term < m.leaderTerm:
		out.Emit(election.Outdated, term, id)
		return
	case term == m.leaderTerm && m.leader != election.None && m.leader != id && !m.roster.Outranks(id, m.leader):
		return
	}
	if m.role == claiming {
		m.abandon(out)
	}
	m.campaignAt = election.Never
	if m.leader != id || m.leaderTerm != term {
		m.succeeded(id, out)
		m.leader, m.leaderTerm, m.dead, m.heir = id, term, election.None, false
		m.readmit(out)
		m.peers[id].notBefore = 0
		out.Emit(election.Recognized, term, id)
		m.innerStep(election.Input{Kind: election.Follow, Now: m.now, Peer: id, Term: term}, out)
		m.watch()
	}
	m.shareAbsent(msg.List, out)
}

// succeeded notes that by holds the office. Whoever held it before and hasn't
// resigned is believed dead, until it is heard of.
func (m *Machine) succeeded(by election.ID, out *election.Output) {
	before := m.leader
	m.leader = by
	if before == election.None || before == by || before == m.cfg.Self || m.peers[before].resigned >= m.leaderTerm {
		return
	}
	m.suspect(before, out)
}

// shareAbsent takes over whom the coordinator believes dead, and who doesn't
// stand: see absent.
func (m *Machine) shareAbsent(absent []election.ID, out *election.Output) {
	dead, away := absent, []election.ID(nil)
	if i := slices.Index(absent, election.None); i >= 0 {
		dead, away = absent[:i], absent[i+1:]
	}
	for id := range m.peers {
		if id := election.ID(id); id != m.leader && id != m.cfg.Self {
			m.peers[id].away = election.IDs(away).Has(id)
		}
	}
	if len(dead) == 0 && len(m.detector.All()) == 0 {
		return
	}
	suspects := election.IDs(dead)
	for _, id := range m.detector.All().Clone() {
		if !suspects.Has(id) {
			m.alive(id, out)
		}
	}
	for _, id := range dead {
		if id != m.cfg.Self && id != m.leader && m.roster.Has(id) {
			m.suspect(id, out)
		}
	}
}

// watch has the detector look after those from whom this process must hear: a
// follower from its coordinator, everyone else from all.
func (m *Machine) watch() {
	if m.role == follower && m.leader != election.None {
		m.detector.Unwatch(m.cfg.Patience)
		m.detector.Watch(m.leader, m.now)
		m.hailAt = election.Never
		if m.waitsAbove() {
			m.hailAt = m.now
		}
		return
	}
	m.detector.Unwatch(m.vacantPatience())
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			m.detector.Watch(id, m.now)
		}
	})
	m.hailAt = m.now + m.cfg.Heartbeat
}

// hailsMax bounds how many others a process hails at a time. If everyone hailed
// everyone in a large group, the hails would take all the time in which somebody
// could be elected: a hundred processes would send a hundred thousand a second.
const hailsMax = 16

// turns is in how many parts the others are hailed, one with each heartbeat.
func (m *Machine) turns() int { return 1 + (m.roster.Len()-2)/hailsMax }

// vacantPatience is the silence after which a process is suspected that is
// heard of by its hails: as long as ever in a group that is hailed at once.
func (m *Machine) vacantPatience() election.Tick {
	if m.role == follower {
		return m.cfg.Patience * election.Tick(m.turns())
	}
	return m.cfg.Patience // It answers the BEATs of this one.
}

// hail lets everyone know that this process lives, while there is no
// coordinator that would tell them: so the dead are found, and processes that
// suspect each other don't wait for each other's signs of life for ever. A
// process that waits to take over finds out whom it reaches.
func (m *Machine) hail(out *election.Output) {
	m.hailAt = election.Never
	if m.role != follower || m.leader != election.None && !m.waitsAbove() {
		return
	}
	m.hailAt = m.now + m.cfg.Heartbeat
	turns := m.turns()
	m.turn = (m.turn + 1) % turns
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self && int(id)%turns == m.turn {
			out.Send = append(out.Send, election.Message{Kind: election.Probe, From: m.cfg.Self, To: id, Term: m.leaderTerm})
		}
	})
}

// hailed answers a hail, unless this process hails by itself.
func (m *Machine) hailed(msg *election.Message, out *election.Output) {
	if msg.Hold.Held || m.leader == election.None {
		return
	}
	answer := election.Message{Kind: election.Probe, From: m.cfg.Self, To: msg.From, Term: m.leaderTerm}
	answer.Hold.Held = true
	out.Send = append(out.Send, answer)
}

// alive notes a sign of life.
func (m *Machine) alive(id election.ID, out *election.Output) {
	if m.detector.Heard(id, m.now) {
		if m.dead == id {
			m.dead = election.None
		}
		m.innerStep(election.Input{Kind: election.Restore, Now: m.now, Peer: id}, out)
	}
}

// present takes notice of whether the sender stands.
func (m *Machine) present(msg *election.Message, out *election.Output) {
	p := &m.peers[msg.From]
	p.away = msg.Hold.Ineligible
	if p.passed && !p.away {
		m.readmitOne(msg.From, out)
	}
}

// passOver keeps the election inside from waiting for the answers of those who
// live, but don't stand. A ring waits for nobody's, and still goes through them.
func (m *Machine) passOver(out *election.Output) {
	for id := range m.peers {
		if p := &m.peers[id]; p.away && !p.passed && m.roster.Has(election.ID(id)) {
			p.passed = true
			m.pretend(election.Suspect, election.ID(id), out)
		}
	}
}

// readmit ends that: there is a coordinator.
func (m *Machine) readmit(out *election.Output) {
	for id := range m.peers {
		if m.peers[id].passed {
			m.readmitOne(election.ID(id), out)
		}
	}
}

func (m *Machine) readmitOne(id election.ID, out *election.Output) {
	m.peers[id].passed = false
	if !m.detector.Suspects(id) {
		m.pretend(election.Restore, id, out)
	}
}

// pretend tells the election inside that a process has died or is back, and
// nobody else: that is not what has happened.
func (m *Machine) pretend(kind election.InputKind, id election.ID, out *election.Output) {
	told := len(out.Events)
	m.innerStep(election.Input{Kind: kind, Ineligible: true, Now: m.now, Peer: id}, out)
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
	if id == m.cfg.Self || !m.known(id) {
		out.Emit(election.Refused, 0, id)
		return
	}
	if m.detector.Suspect(id) {
		m.silent(id, out)
	}
}

// silent acts on a suspicion.
func (m *Machine) silent(id election.ID, out *election.Output) {
	m.peers[id].standing = false
	m.innerStep(election.Input{Kind: election.Suspect, Now: m.now, Peer: id}, out)
	if id == m.leader {
		m.leaderLost(id, out)
	}
}

// gone notes that one life of a process has ended for sure.
func (m *Machine) gone(id election.ID, life uint32, out *election.Output) {
	if id == m.cfg.Self || !m.known(id) {
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

// leaderLost leaves the office vacant. A process that the election inside has
// found to be the next claims it; the others wait for their turn.
func (m *Machine) leaderLost(dead election.ID, out *election.Output) {
	m.leader, m.dead, m.heir = election.None, dead, false
	m.passOver(out)
	m.watch()
	m.innerStep(election.Input{Kind: election.Follow, Now: m.now, Term: m.leaderTerm}, out)
	if m.role == follower {
		m.campaignAt = m.now + m.stagger()
	}
}

// resigned frees what was granted to a process that gave up its claim or its
// office, and makes room for its successor.
func (m *Machine) resigned(msg *election.Message, out *election.Output) {
	m.seen = max(m.seen, msg.Term)
	p := &m.peers[msg.From]
	if p.resignedLife != msg.Hold.Life {
		p.resignedLife, p.resigned = msg.Hold.Life, 0
	}
	p.resigned = max(p.resigned, msg.Term)
	m.ledger.Release(grants.Holder{ID: msg.From, Life: msg.Hold.Life}, msg.Term, m.now)
	if m.leader != msg.From || m.leaderTerm > msg.Term {
		return
	}
	m.leaderLost(election.None, out)
	switch heir := msg.Subject; {
	case m.role != follower || heir == election.None:
	case heir == m.cfg.Self:
		m.campaignAt, m.heir = m.now, true
	case m.known(heir) && !m.detector.Suspects(heir):
		m.campaignAt += m.cfg.Stagger // it may be of lower rank, and comes first all the same
	}
}
