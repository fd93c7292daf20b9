package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/detector"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// maxTimerRounds limits how often in one step a timer can make another one due.
const maxTimerRounds = 8

// state is what a process is, and what it knows of its group. The methods of state answer questions, or record an
// answer: they change no role and send nothing.
type state struct {
	cfg    Config
	now    election.Tick
	roster *election.Roster
	peers  []peer // by ID

	detector detector.Detector
	ledger   grants.Ledger
	support  grants.Support // without grants, unless the process is a candidate or holds the office
	tenures  tenures

	// role changes in the functions become... only: see role.go.
	role        Role
	eligibility eligibility
	// coordinator holds the office in coordinatorTerm, as far as this process
	// knows. If it is None, Machine.vacancy is what the process does about that.
	coordinator     election.ID
	coordinatorTerm election.Term
	// pace is that of the coordinator, or fullPace without one.
	pace pace
	// highestTerm is the highest term of any message, except for those that can't be right: see withinReach.
	highestTerm election.Term
	// claimedTerm is the highest one in which this process has claimed the office.
	claimedTerm election.Term
}

// Machine is one process with its office.
type Machine struct {
	state
	inner election.Machine

	// beatAt, candidacy and tenure are the state of one role, or of some: see role.go.
	beatAt    election.Tick // the next BEATs of a candidate, a holder or a draining process
	request   request       // in the last BEATs
	candidacy candidacy
	tenure    tenure
	// term is that of the candidacy or the tenure. A follower keeps that of its last one.
	term election.Term

	// drainsUntil is how long a coordinator that the member list has removed or demoted may hold the office: see mayDrain.
	drainsUntil election.Tick
	// lastBeat is the latest BEAT of the coordinator, on its clock.
	lastBeat  sentBeat
	vacancy   vacancy
	contender contender
	recovery  recovery
	probes    probes
	available available // only in Available mode

	// wonTerm is the last term of the inner election that has been acted on.
	wonTerm election.Term

	// eligibleAgainAt is when a step-down ends, Never if there is none.
	eligibleAgainAt election.Tick
	// yieldsUntil is how long a process that has stepped down isn't ready to take over from another one.
	yieldsUntil election.Tick
	// joinsAt is when the process has joined the group, unless it doesn't vote yet: see Joined.
	joinsAt election.Tick

	lamport uint64
	// due is the earliest of all deadlines, including those of the parts.
	due election.Tick
	// cause is the input that is being handled, in the words of the table of transitions.
	cause string
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
		state: state{
			cfg: c, now: c.Start, roster: c.Roster, detector: m.detector, support: m.support, peers: m.peers[:0],
			ledger: c.ledger(), pace: fullPace, highestTerm: c.Term, claimedTerm: c.claimed(),
		},
		inner: machine, wonTerm: c.Term, recovery: recovery{startAt: election.Never}, cause: "start",
		beatAt: election.Never, eligibleAgainAt: election.Never, yieldsUntil: c.Start,
	}
	m.joinsAt = max(c.Start, m.ledger.SilentUntil()) + c.Lease
	m.detector.Reset(c.SuspicionTimeout)
	m.support.Reset(c.Roster, c.Lease)
	m.tenures = newTenures(c.Tenures, &m.cfg)
	m.growPeers()
	m.admitDrain()
	m.vacancy = m.newVacancy(election.None, false, false)
	m.updateForgetful(&election.Output{})
	switch {
	case c.Coordinator == election.None, c.Coordinator == c.Self && !m.Eligible():
		m.becomeFollower()
		m.vacancy.campaignAt = c.Start + m.campaignDelay()
		if !m.isAlone() {
			m.vacancy.campaignAt += c.SuspicionTimeout // A coordinator would be heard until then.
		}
	case c.Coordinator == c.Self:
		m.becomeCandidate(c.Term)
	default:
		m.coordinator, m.coordinatorTerm = c.Coordinator, c.Term
		m.tenureBegins(c.Coordinator, c.Term, unknownStart)
		m.becomeFollower()
	}
	m.due = m.nextDeadline()
	return nil
}

// Step handles one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	m.now = max(m.now, in.Now) // it never goes back
	m.postponeSuspicionsIfLate()
	sent := len(out.Send)
	m.expireTenure(out)
	m.expireStepDown(out)
	m.cause = causeOf(&in)
	m.handle(&in, out)
	m.due = m.nextDeadline()
	for round := 0; m.now >= m.due && round < maxTimerRounds; round++ {
		m.fireTimers(out)
		m.due = m.nextDeadline()
	}
	m.stamp(out, sent)
}

// handle handles what every role handles alike, and passes the rest to the step function of the role.
func (m *Machine) handle(in *election.Input, out *election.Output) {
	switch in.Kind {
	case election.Receive:
		m.receive(in, out)
	case election.BecomeIneligible, election.StepDown, election.Stopped:
		m.stepRole(in, out)
	case election.Undelivered:
		if in.Message.Kind.Counts() {
			m.stepInner(*in, out)
		}
	case election.Suspect:
		m.suspect(in.Peer, out)
	case election.Ended:
		m.processEnded(in.Peer, in.Life, out)
	case election.Restore:
		m.markAlive(in.Peer, out)
	case election.BecomeEligible:
		m.applicationRecovered(out)
	case election.Adopt:
		m.adopt(in.Roster, out)
	case election.Retime:
		m.stepInner(*in, out)
	case election.Reserved:
		m.reserve(in.Term)
	case election.Recover, election.Follow, election.Campaign: // the others are only for the inner election
		m.recover(in.Kind, out)
	case election.TimePassed, election.NoInput:
	}
}

// stamp sets the logical clock of the messages from index from on. The office and the inner election share one clock.
func (m *Machine) stamp(out *election.Output, from int) {
	for i := from; i < len(out.Send); i++ {
		m.lamport++
		out.Send[i].Lamport = m.lamport
		out.Send[i].Hold.Life = m.cfg.Life
		out.Send[i].Hold.Ineligible = m.eligibility.declared()
		out.Send[i].Hold.Abstains = m.Forgetful()
		out.Send[i].Hold.Flaps = m.flaps(m.cfg.Self)
	}
}

// Memory returns what the process has to remember of its grants over a restart: see grants.Ledger.
func (s *state) Memory() grants.Memory { return s.ledger.Memory() }

// GrantsInForce reports whether a process, this one included, may rely on a grant of this one.
func (s *state) GrantsInForce() bool { return s.ledger.InForce(s.now) }

// ClaimedTerm returns the highest term in which this process has claimed the office.
func (s *state) ClaimedTerm() election.Term { return s.claimedTerm }

// Deadline returns the moment of the next timer.
func (m *Machine) Deadline() election.Tick { return m.due }

func (m *Machine) nextDeadline() election.Tick {
	return min(m.innerDeadline(), m.detector.Deadline(), m.ledger.PendingDue(), m.roleDeadline())
}
