package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/detector"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// role is the role of the process; the package comment lists the transitions.
// The roles that hold the office come last: role >= holder.
type role uint8

const (
	// follower: another process is coordinator, or none is.
	follower role = iota
	// candidate: the process has won an election and requests grants.
	candidate
	// holder: the process is the coordinator.
	holder
	// draining: the process is still the coordinator. Its application is stopping,
	// and the office then goes to the successor.
	draining
)

const (
	// maxTermsAhead limits how far the inner election may run ahead of the clock by
	// starting again and again. No member could grant a term that it wins there.
	maxTermsAhead election.Term = 2
	// maxMessageTermsAhead limits how far the term of a message may be ahead of the
	// clock. With terms of a tenth of a second it allows for clocks that differ by
	// a minute. It is too small to exhaust the terms, or to prevent others from
	// campaigning for a long time.
	maxMessageTermsAhead election.Term = 600
)

// maxTimerRounds limits how often in one step a timer can make another one due.
const maxTimerRounds = 8

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

	// coordinator holds the office in coordinatorTerm, as far as this process
	// knows.
	coordinator     election.ID
	coordinatorTerm election.Term
	// highestTerm is the highest term of any message.
	highestTerm election.Term
	// wonTerm is the last term of the inner election that has been acted on.
	wonTerm election.Term

	// term and token are those of the claim or the tenure.
	term  election.Term
	token election.Token
	// successor gets the office when the application has stopped.
	successor election.ID

	// unacknowledged counts the BEATs of the coordinator, up to maxUnacknowledged, since
	// it received an answer of this process (Available).
	unacknowledged int
	vacancy        vacancy
	contender      contender
	// deadCoordinator is the coordinator whose failure made the next election
	// necessary.
	deadCoordinator election.ID

	// The deadlines, Never when not set.
	campaignAt      election.Tick
	beatAt          election.Tick
	claimUntil      election.Tick
	drainUntil      election.Tick
	handOverAt      election.Tick
	eligibleAgainAt election.Tick
	probeAt         election.Tick
	// probeTurn is the part of the members that was probed last: see probe.
	probeTurn int

	// due is the earliest of the deadlines, including those of the parts.
	due election.Tick

	eligibility eligibility
	// stepDownRequested: an operator requested the hand-over that is under way, so
	// this process becomes ineligible for a while when it resigns.
	stepDownRequested bool
	// namedSuccessor: the last coordinator resigned in favor of this process, which
	// can claim the office without an election.
	namedSuccessor bool
	lamport        uint64
}

// New creates the process that c describes.
func New(c Config) (*Machine, error) {
	m := &Machine{}
	return m, m.Restart(c)
}

// Restart begins a new incarnation of the process. It reuses the allocated memory
// of the previous one, but none of its state.
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
	m.beginVacancy(false, false)
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

// Step handles one input.
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

// stamp sets the logical clock of the messages from index from on. The office and
// the inner election share one clock.
func (m *Machine) stamp(out *election.Output, from int) {
	for i := from; i < len(out.Send); i++ {
		m.lamport++
		out.Send[i].Lamport = m.lamport
		out.Send[i].Hold.Life = m.cfg.Life
		out.Send[i].Hold.Ineligible = m.eligibility.declared()
	}
}

// stepInner passes an input to the inner election and acts on the outcome.
func (m *Machine) stepInner(in election.Input, out *election.Output) {
	before := len(out.Events)
	m.inner.Step(in, out)
	kept := out.Events[:before]
	for _, e := range out.Events[before:] {
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
		m.heartbeat(out) // it is coordinator already: inform the process that started the election
		return
	}
	m.claim(status.Term, out)
}

// receive handles a message, of the inner election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // a process doesn't request grants of itself by message
	if msg.To != m.cfg.Self || own || msg.Term > m.maxAcceptableTerm() || !m.isMember(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	if msg.From != m.cfg.Self {
		m.peers[msg.From].life = msg.Hold.Life
		m.peers[msg.From].heardUntil = m.now + m.probeTimeout()
		// Of the coordinator, only the BEAT of its tenure counts as a sign of life.
		// For example, a coordinator that restarted without its memory is alive and
		// answers probes, but it doesn't hold the office any more.
		if msg.From != m.coordinator || msg.Kind == election.Beat && msg.Hold.Held && msg.Term == m.coordinatorTerm && m.acknowledged(msg) {
			m.markAlive(msg.From, out)
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

// maxAcceptableTerm is the highest term that a message may have now.
func (m *Machine) maxAcceptableTerm() election.Term {
	return min(election.MaxTerm, m.cfg.Clock.Ceiling(m.now)+maxMessageTermsAhead)
}

// fireTimers acts on every deadline that has passed.
func (m *Machine) fireTimers(out *election.Output) {
	for id := m.detector.Overdue(m.now); id != election.None; id = m.detector.Overdue(m.now) {
		m.handleSuspicion(id, out)
	}
	if m.now >= m.innerDeadline() {
		m.fireInner(out)
	}
	if m.now >= m.eligibleAgainAt {
		m.endStepDown(out)
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

// innerDeadline is the deadline of the inner election. One that has run too far
// ahead of the clock waits for the clock.
func (m *Machine) innerDeadline() election.Tick {
	return max(m.inner.Deadline(), m.vacancy.innerPausedUntil, m.cfg.Clock.Due(m.highestTerm-min(m.highestTerm, maxTermsAhead)))
}

// Deadline returns the moment of the next timer.
func (m *Machine) Deadline() election.Tick { return m.due }

func (m *Machine) nextDeadline() election.Tick {
	due := min(m.campaignAt, m.beatAt, m.claimUntil, m.drainUntil, m.handOverAt, m.eligibleAgainAt, m.probeAt)
	due = min(due, m.innerDeadline(), m.detector.Deadline(), m.ledger.PendingDue())
	if m.role >= holder && m.cfg.Mode != Available {
		due = min(due, m.support.Until())
	}
	return due
}
