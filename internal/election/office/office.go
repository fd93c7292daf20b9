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
	candidate
	// holding: it is the coordinator.
	holder
	// draining: it still is; its application is stopping for a successor.
	draining
)

// ahead is how far the election inside may run ahead of the clock by starting
// again and again: nobody could grant what it wins there. absurd is how far ahead
// a message may be: enough for clocks that differ by a minute, where a term is a
// tenth of a second; too little to use the terms up, or to keep others from
// campaigning for long.
const (
	maxTermsAhead        election.Term = 2
	maxMessageTermsAhead election.Term = 600
)

// maxTimerRounds bounds how often in one step a timer can make another one due.
const maxTimerRounds = 8

// peer is what is known of another process.
type peer struct {
	life uint32
	// resigned is the last term that it gave up, in its life resignedLife.
	resignedTerm election.Term
	resignedLife uint32
	// standing: it could take the office, since readySince.
	ready      bool
	readySince election.Tick
	// aliveUntil is until when the last message from it counts as a sign of life.
	aliveUntil election.Tick
	// barred: it refused the present claim for good.
	refusedClaim bool
	// away: it doesn't stand, as it says itself or as the coordinator said.
	ineligible bool
	// passed: the election inside was told to pass it over, because it is away.
	skipped bool
	// notBefore is when the office may be handed to it again, after it didn't
	// take it.
	notBefore election.Tick
}

// hasResigned reports whether the sender of a BEAT has given up its term since.
func (p *peer) hasResigned(beat *election.Message) bool {
	return beat.Hold.Life == p.resignedLife && beat.Term <= p.resignedTerm
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

	// leader holds the office in coordinatorTerm, as far as is known.
	coordinator     election.ID
	coordinatorTerm election.Term
	// seen is the highest term of any message.
	highestTerm election.Term
	// won is the last term of the election inside that has been acted on.
	wonTerm election.Term

	// term and token are those of the claim or the tenure.
	term  election.Term
	token election.Token
	// successor is who gets the office when the application has stopped.
	successor election.ID

	// dead is the coordinator whose end made the next election necessary.
	deadCoordinator election.ID

	// The deadlines, Never when not set.
	campaignAt      election.Tick
	beatAt          election.Tick
	claimUntil      election.Tick
	drainUntil      election.Tick
	handOverAt      election.Tick
	eligibleAgainAt election.Tick
	probeAt         election.Tick
	// turn is which of the others were hailed last: see hail.
	probeTurn int

	// due is the earliest of them, and of those of the parts.
	due election.Tick

	// withdrawn: this process doesn't stand, because its application is dead, or
	// for a while because it was asked to step down: until eligibleAgainAt.
	withdrawn bool
	appDead   bool
	// aside: the election inside doesn't elect this process, which reaches too few.
	aside bool
	// leaving: the office was asked to be given up, so this process stays away
	// from it for a while.
	stepDownRequested bool
	// heir: the last coordinator resigned in favour of this process, which needs
	// no election.
	namedSuccessor bool
	lamport        uint64
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
	inner.NoPreemption = true
	if c.MemoryLost {
		inner.Coordinator = election.None
	}
	machine, err := c.NewElection(inner)
	if err != nil {
		return err
	}
	*m = Machine{
		cfg: c, inner: machine, now: c.Start, roster: c.Roster,
		detector: m.detector, support: m.support, peers: m.peers[:0],
		ledger:      c.ledger(),
		highestTerm: c.Term, wonTerm: c.Term,
		campaignAt: election.Never, beatAt: election.Never, claimUntil: election.Never, drainUntil: election.Never,
		handOverAt: election.Never, eligibleAgainAt: election.Never, probeAt: election.Never,
	}
	m.detector.Reset(c.SuspicionTimeout)
	m.support.Reset(c.Roster, c.Lease, c.Clock.Ceiling(c.Start))
	m.growPeers()
	switch c.Coordinator {
	case election.None:
		m.campaignAt = c.Start + c.SuspicionTimeout + m.campaignDelay()
	case c.Self:
		m.role, m.term = candidate, c.Term
		m.claimUntil, m.beatAt = c.Start+m.claimTimeout(), c.Start
	default:
		m.coordinator, m.coordinatorTerm = c.Coordinator, c.Term
	}
	m.updateWatch()
	m.due = m.nextDeadline()
	return nil
}

// fit makes room for all who may be heard of: see known.
func (m *Machine) growPeers() {
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
func (m *Machine) isMember(id election.ID) bool {
	return m.roster.Has(id) || m.roster.Previous != nil && m.roster.Previous.Has(id)
}

// Step takes one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	m.now = max(m.now, in.Now)
	in.Now = m.now
	m.expireTenure(out)
	sent := len(out.Send)
	switch in.Kind {
	case election.Receive:
		m.receive(&in, out)
	case election.Undelivered:
		if in.Message.Kind.Counts() {
			m.stepInner(in, out)
		}
	case election.Campaign:
		if m.coordinator == election.None && m.role == follower {
			m.campaignAt = m.now
		}
	case election.Suspect:
		m.suspect(in.Peer, out)
	case election.Ended:
		m.processEnded(in.Peer, in.Life, out)
	case election.Restore:
		m.markAlive(in.Peer, out)
	case election.BecomeIneligible:
		m.applicationDied(out)
	case election.BecomeEligible:
		m.applicationRecovered(out)
	case election.Adopt:
		m.adopt(in.Roster, out)
	case election.StepDown:
		m.stepDown(in.Peer, out)
	case election.Stopped:
		if m.role == draining && in.Term == m.term {
			m.resign(m.successor, out)
		}
	case election.Retime:
		m.stepInner(in, out)
	case election.Recover, election.Follow:
		out.Emit(election.Refused, in.Term, in.Peer)
	case election.TimePassed, election.NoInput:
	}
	m.due = m.nextDeadline()
	for round := 0; m.now >= m.due && round < maxTimerRounds; round++ {
		m.fireTimers(out)
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

// stepInner runs the election inside and acts on its outcome.
func (m *Machine) stepInner(in election.Input, out *election.Output) {
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
	m.highestTerm = max(m.highestTerm, status.Term)
	if status.Coordinator != m.cfg.Self || status.Term <= m.wonTerm {
		return
	}
	m.wonTerm = status.Term
	if m.role == holder || m.role == draining {
		m.heartbeat(out) // it leads already; whoever doubted it should hear that
		return
	}
	m.claim(status.Term, out)
}

// receive takes a message, of the election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // nobody holds an office by asking itself
	if msg.To != m.cfg.Self || own || msg.Term > m.maxAcceptableTerm() || !m.isMember(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	if msg.From != m.cfg.Self {
		m.peers[msg.From].life = msg.Hold.Life
		m.peers[msg.From].aliveUntil = m.now + m.probeTimeout()
		if msg.From != m.coordinator || msg.Kind == election.Beat && msg.Hold.Held && msg.Term == m.coordinatorTerm {
			m.markAlive(msg.From, out) // of the coordinator, only its BEAT says that it leads
		}
		m.recordEligibility(msg, out)
	}
	switch msg.Kind {
	case election.Beat:
		m.handleBeat(msg, out)
	case election.Grant:
		m.handleGrant(msg, out)
	case election.Deny:
		m.handleDeny(msg, out)
	case election.Resigned:
		m.handleResigned(msg, out)
	case election.Probe:
		m.handleProbe(msg, out)
	default:
		m.stepInner(*in, out)
	}
}

// innerDeadline is when the election inside wants a Tick. One that has run too far
// ahead of the clock waits for it.
func (m *Machine) innerDeadline() election.Tick {
	return max(m.inner.Deadline(), m.cfg.Clock.Due(m.highestTerm-min(m.highestTerm, maxTermsAhead)))
}

// horizon is the highest term that makes sense now.
func (m *Machine) maxAcceptableTerm() election.Term {
	return min(election.MaxTerm, m.cfg.Clock.Ceiling(m.now)+maxMessageTermsAhead)
}

// timers acts on every deadline that has come.
func (m *Machine) fireTimers(out *election.Output) {
	for id := m.detector.Overdue(m.now); id != election.None; id = m.detector.Overdue(m.now) {
		m.handleSuspicion(id, out)
	}
	if m.now >= m.innerDeadline() {
		m.stepInner(election.Input{Kind: election.TimePassed, Now: m.now}, out)
	}
	if m.now >= m.eligibleAgainAt {
		m.eligibleAgainAt = election.Never
		m.becomeEligible(out)
	}
	if m.now >= m.ledger.PendingDue() {
		m.grantPending(out)
	}
	if m.now >= m.claimUntil {
		m.claimTimedOut(out)
	}
	if m.now >= m.drainUntil {
		m.resign(m.successor, out)
	}
	if m.now >= m.handOverAt {
		m.considerHandOver(out)
	}
	if m.now >= m.beatAt {
		m.heartbeat(out)
	}
	if m.now >= m.probeAt {
		m.probe(out)
	}
	m.updateReachability(out)
	if m.now >= m.campaignAt {
		m.campaign(out)
	}
}

// Deadline is when the next of the timers is due.
func (m *Machine) Deadline() election.Tick { return m.due }

func (m *Machine) nextDeadline() election.Tick {
	due := min(m.campaignAt, m.beatAt, m.claimUntil, m.drainUntil, m.handOverAt, m.eligibleAgainAt, m.probeAt)
	due = min(due, m.innerDeadline(), m.detector.Deadline(), m.ledger.PendingDue())
	if m.role >= holder && m.cfg.Mode != Available {
		due = min(due, m.support.Until())
	}
	return due
}
