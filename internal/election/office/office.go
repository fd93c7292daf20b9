package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/detector"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

type role uint8

const (
	// follower: someone else leads, or nobody.
	follower role = iota
	// claiming: this process has won an election and asks for grants.
	claiming
	// holding: it is the coordinator.
	holding
	// draining: it still is; its application is stopping for a successor.
	draining
)

// ahead is how far the election inside may run ahead of the clock by starting
// again and again: nobody could grant what it wins there. absurd is how far ahead
// a message may be: enough for clocks that differ by a minute, where a term is a
// tenth of a second; too little to use the terms up, or to keep others from
// campaigning for long.
const (
	ahead  election.Term = 2
	absurd election.Term = 600
)

// roundsMax bounds how often in one step a timer can make another one due.
const roundsMax = 8

// peer is what is known of another process.
type peer struct {
	life uint32
	// resigned is the last term that it gave up, in its life resignedLife.
	resigned     election.Term
	resignedLife uint32
	// standing: it could take the office, since standingSince.
	standing      bool
	standingSince election.Tick
	// heardUntil is until when the last message from it counts as a sign of life.
	heardUntil election.Tick
	// barred: it refused the present claim for good.
	barred bool
	// away: it doesn't stand, as it says itself or as the coordinator said.
	away bool
	// passed: the election inside was told to pass it over, because it is away.
	passed bool
	// notBefore is when the office may be handed to it again, after it didn't
	// take it.
	notBefore election.Tick
}

// gaveUp reports whether the sender of a BEAT has given up its term since.
func (p *peer) gaveUp(beat *election.Message) bool {
	return beat.Hold.Life == p.resignedLife && beat.Term <= p.resigned
}

// Machine is one process with its office.
type Machine struct {
	cfg    Config
	inner  election.Machine
	now    election.Tick
	roster *election.Roster
	peers  []peer // by ID

	role     role
	detector detector.Detector
	ledger   grants.Ledger
	support  grants.Support

	// leader holds the office in leaderTerm, as far as is known.
	leader     election.ID
	leaderTerm election.Term
	// seen is the highest term of any message.
	seen election.Term
	// won is the last term of the election inside that has been acted on.
	won election.Term

	// term and token are those of the claim or the tenure.
	term  election.Term
	token election.Token
	// successor is who gets the office when the application has stopped.
	successor election.ID

	// dead is the coordinator whose end made the next election necessary.
	dead election.ID

	// The deadlines, Never when not set.
	campaignAt election.Tick
	beatAt     election.Tick
	claimUntil election.Tick
	drainUntil election.Tick
	handOverAt election.Tick
	standAgain election.Tick
	hailAt     election.Tick
	// turn is which of the others were hailed last: see hail.
	turn int

	// due is the earliest of them, and of those of the parts.
	due election.Tick

	// withdrawn: this process doesn't stand, because its application is dead, or
	// for a while because it was asked to step down: until standAgain.
	withdrawn bool
	appDead   bool
	// aside: the election inside doesn't elect this process, which reaches too few.
	aside bool
	// leaving: the office was asked to be given up, so this process stays away
	// from it for a while.
	leaving bool
	// heir: the last coordinator resigned in favour of this process, which needs
	// no election.
	heir    bool
	lamport uint64
}

// New makes the process that c describes.
func New(c Config) (*Machine, error) {
	m := &Machine{}
	return m, m.Restart(c)
}

// Restart begins a new life of the process in the memory of the old one.
func (m *Machine) Restart(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	inner := c.Config
	inner.Orderly = true
	if c.Fresh {
		inner.Coordinator = election.None
	}
	machine, err := c.Elect(inner)
	if err != nil {
		return err
	}
	*m = Machine{
		cfg: c, inner: machine, now: c.Start, roster: c.Roster,
		detector: m.detector, support: m.support, peers: m.peers[:0],
		ledger: c.ledger(),
		seen:   c.Term, won: c.Term,
		campaignAt: election.Never, beatAt: election.Never, claimUntil: election.Never, drainUntil: election.Never,
		handOverAt: election.Never, standAgain: election.Never, hailAt: election.Never,
	}
	m.detector.Open(c.Patience)
	m.support.Open(c.Roster, c.Lease, c.Clock.Ceiling(c.Start))
	m.fit()
	switch c.Coordinator {
	case election.None:
		m.campaignAt = c.Start + c.Patience + m.stagger()
	case c.Self:
		m.role, m.term = claiming, c.Term
		m.claimUntil, m.beatAt = c.Start+m.patience(), c.Start
	default:
		m.leader, m.leaderTerm = c.Coordinator, c.Term
	}
	m.watch()
	m.due = m.nextDeadline()
	return nil
}

// fit makes room for all who may be heard of: see known.
func (m *Machine) fit() {
	top := m.roster.Top()
	if m.roster.Previous != nil {
		top = max(top, m.roster.Previous.Top())
	}
	for election.ID(len(m.peers)) <= top {
		m.peers = append(m.peers, peer{})
	}
}

// eachMember visits the members of the list, and of the one before it while
// that has a say.
func (m *Machine) eachMember(visit func(election.ID)) {
	for _, other := range m.roster.Ring() {
		visit(other.ID)
	}
	if m.support.Settled() {
		return
	}
	for _, other := range m.roster.Previous.Ring() {
		if !m.roster.Has(other.ID) {
			visit(other.ID)
		}
	}
}

// known reports whether id is on a list in force.
func (m *Machine) known(id election.ID) bool {
	return m.roster.Has(id) || m.roster.Previous != nil && m.roster.Previous.Has(id)
}

// Step takes one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	m.now = max(m.now, in.Now)
	in.Now = m.now
	m.expire(out)
	sent := len(out.Send)
	switch in.Kind {
	case election.Receive:
		m.receive(&in, out)
	case election.Undelivered:
		if in.Message.Kind.Counts() {
			m.innerStep(in, out)
		}
	case election.Campaign:
		if m.leader == election.None && m.role == follower {
			m.campaignAt = m.now
		}
	case election.Suspect:
		m.suspect(in.Peer, out)
	case election.Ended:
		m.gone(in.Peer, in.Life, out)
	case election.Restore:
		m.alive(in.Peer, out)
	case election.BecomeIneligible:
		m.withdraw(out)
	case election.BecomeEligible:
		m.revive(out)
	case election.Adopt:
		m.adopt(in.Roster, out)
	case election.StepDown:
		m.stepDown(in.Peer, out)
	case election.Stopped:
		if m.role == draining && in.Term == m.term {
			m.resign(m.successor, out)
		}
	case election.Retime:
		m.innerStep(in, out)
	case election.Recover, election.Follow:
		out.Emit(election.Refused, in.Term, in.Peer)
	case election.TimePassed, election.NoInput:
	}
	m.due = m.nextDeadline()
	for round := 0; m.now >= m.due && round < roundsMax; round++ {
		m.timers(out)
		m.due = m.nextDeadline()
	}
	m.stamp(out, sent)
}

// stamp puts the logical clock on what is sent: one clock for the office and
// the election inside.
func (m *Machine) stamp(out *election.Output, from int) {
	for i := from; i < len(out.Send); i++ {
		m.lamport++
		out.Send[i].Lamport = m.lamport
		out.Send[i].Hold.Life = m.cfg.Life
		out.Send[i].Hold.Ineligible = m.withdrawn
	}
}

// innerStep runs the election inside and acts on its outcome.
func (m *Machine) innerStep(in election.Input, out *election.Output) {
	told := len(out.Events)
	m.inner.Step(in, out)
	kept := out.Events[:told]
	for _, e := range out.Events[told:] {
		if e.Kind != election.Recognized {
			kept = append(kept, e)
		}
	}
	out.Events = kept
	status := m.inner.Status()
	m.seen = max(m.seen, status.Term)
	if status.Coordinator != m.cfg.Self || status.Term <= m.won {
		return
	}
	m.won = status.Term
	if m.role == holding || m.role == draining {
		m.beat(out) // it leads already; whoever doubted it should hear that
		return
	}
	m.claim(status.Term, out)
}

// receive takes a message, of the election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // nobody holds an office by asking itself
	if msg.To != m.cfg.Self || own || msg.Term > m.horizon() || !m.known(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	if msg.From != m.cfg.Self {
		m.peers[msg.From].life = msg.Hold.Life
		m.peers[msg.From].heardUntil = m.now + m.vacantPatience()
		if msg.From != m.leader || msg.Kind == election.Beat && msg.Hold.Held && msg.Term == m.leaderTerm {
			m.alive(msg.From, out) // of the coordinator, only its BEAT says that it leads
		}
		m.present(msg, out)
	}
	switch msg.Kind {
	case election.Beat:
		m.beaten(msg, out)
	case election.Grant:
		m.granted(msg, out)
	case election.Deny:
		m.denied(msg, out)
	case election.Resigned:
		m.resigned(msg, out)
	case election.Probe:
		m.hailed(msg, out)
	default:
		m.innerStep(*in, out)
	}
}

// innerDue is when the election inside wants a Tick. One that has run too far
// ahead of the clock waits for it.
func (m *Machine) innerDue() election.Tick {
	return max(m.inner.Deadline(), m.cfg.Clock.Due(m.seen-min(m.seen, ahead)))
}

// horizon is the highest term that makes sense now.
func (m *Machine) horizon() election.Term {
	return min(election.MaxTerm, m.cfg.Clock.Ceiling(m.now)+absurd)
}

// timers acts on every deadline that has come.
func (m *Machine) timers(out *election.Output) {
	for id := m.detector.Overdue(m.now); id != election.None; id = m.detector.Overdue(m.now) {
		m.silent(id, out)
	}
	if m.now >= m.innerDue() {
		m.innerStep(election.Input{Kind: election.TimePassed, Now: m.now}, out)
	}
	if m.now >= m.standAgain {
		m.standAgain = election.Never
		m.stand(out)
	}
	if m.now >= m.ledger.Due() {
		m.grantWaiting(out)
	}
	if m.now >= m.claimUntil {
		m.giveUp(out)
	}
	if m.now >= m.drainUntil {
		m.resign(m.successor, out)
	}
	if m.now >= m.handOverAt {
		m.considerHandOver(out)
	}
	if m.now >= m.beatAt {
		m.beat(out)
	}
	if m.now >= m.hailAt {
		m.hail(out)
	}
	m.standIfUseful(out)
	if m.now >= m.campaignAt {
		m.campaign(out)
	}
}

// Deadline is when the next of the timers is due.
func (m *Machine) Deadline() election.Tick { return m.due }

func (m *Machine) nextDeadline() election.Tick {
	due := min(m.campaignAt, m.beatAt, m.claimUntil, m.drainUntil, m.handOverAt, m.standAgain, m.hailAt)
	due = min(due, m.innerDue(), m.detector.Deadline(), m.ledger.Due())
	if m.role >= holding && m.cfg.Mode != Available {
		due = min(due, m.support.Until())
	}
	return due
}
