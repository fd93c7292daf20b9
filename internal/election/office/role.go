package office

import "github.com/conclave-dev/conclave/internal/election"

// Role is the role of the process. The package comment has all transitions. Only the functions become... change the
// role, together with the state and the timers that exist in that role.
type Role uint8

// The roles. Those that hold the office come last: role >= Holder.
const (
	// Follower: another process is coordinator, or none is.
	Follower Role = iota
	// Candidate: the process has won an election and requests grants.
	Candidate
	// Holder: the process is the coordinator.
	Holder
	// Draining: the process is still the coordinator. Its application is stopping,
	// and the office then goes to the successor.
	Draining
)

var roleNames = [...]string{"follower", "candidate", "holder", "draining"}

func (r Role) String() string { return roleNames[r%4] }

// Role returns the role of the process.
func (s *state) Role() Role { return s.role }

// Transition is a change of the role. A candidate that claims the office in another term becomes candidate again.
type Transition struct {
	From, To Role
	// Cause is the input or the timer that caused the change.
	Cause string
}

// candidacy is the state of a candidate.
type candidacy struct {
	// since is when the members could grant the claim first, or when it was last prolonged.
	since election.Tick
	// slowAt is from when on grants that couldn't be renewed show that the members answer slowly:
	// see awaitRenewable. It is Never before the first ones.
	slowAt election.Tick
	// waits: this process can't grant its own claim yet, because another one may still hold the office. Nothing depends
	// on it.
	waits bool
}

// tenure is the state of a holder or a draining process.
type tenure struct {
	token election.Token
	// delays and silenced determine the pace.
	delays   delays
	silenced silenced
	// A draining process resigns in favor of successor, which may be None until then, when its
	// application has stopped, and at drainUntil at the latest.
	successor  election.ID
	drainUntil election.Tick
	// stepDownRequested: an operator requested the hand-over, so this process
	// becomes ineligible for a while when it resigns.
	stepDownRequested bool
}

// become changes the role.
func (m *Machine) become(to Role) {
	if m.cfg.OnTransition != nil {
		m.cfg.OnTransition(Transition{From: m.role, To: to, Cause: m.cause})
	}
	m.role = to
	m.vacancy.campaignAt = election.Never
	m.recovery.finish()
}

// becomeFollower makes the process a follower, of a coordinator or of none. The caller decides when it campaigns.
func (m *Machine) becomeFollower() {
	m.become(Follower)
	m.beatAt, m.request, m.tenure = election.Never, request{}, tenure{}
	m.updateWatch()
}

// becomeCandidate makes the process request the office in a term.
func (m *Machine) becomeCandidate(term election.Term) {
	m.become(Candidate)
	m.term, m.claimedTerm = term, max(m.claimedTerm, term)
	m.candidacy = candidacy{since: m.now, slowAt: election.Never}
	m.beatAt = m.now
	for i := range m.peers { // Only the answers to this claim count.
		m.peers[i].refusedClaim, m.peers[i].ready = false, false
	}
	m.updateWatch()
}

// becomeHolder makes the process the coordinator. It informs the others at once.
func (m *Machine) becomeHolder(out *election.Output) {
	m.become(Holder)
	m.joinsAt = min(m.joinsAt, m.now)
	m.tenure = tenure{
		token:    election.TokenOf(m.term, m.roster.Place(m.cfg.Self)),
		silenced: silenced{id: m.vacancy.lost, life: m.vacancy.lostLife, until: m.now + m.cfg.Lease},
	}
	m.beatAt, m.pace = m.now, m.cfg.nextPace(m.pace, false)
	m.tenure.delays = m.cfg.newDelays(m.pace, m.now)
	m.countFailedSuccession(m.cfg.Self)
	m.vacancy = m.noVacancy()
	m.recordSuccession(m.cfg.Self, out)
	m.coordinatorTerm = m.term
	m.tenureBegins(m.cfg.Self, m.term, m.now)
	m.readmitAll(out)
	out.Events = append(out.Events, election.Event{
		Kind: election.TenureStarted, Peer: m.cfg.Self, Term: m.term, Token: m.tenure.token,
	})
	m.stepInner(election.Input{Kind: election.Follow, Peer: m.cfg.Self, Term: m.term}, out)
}

// becomeDraining requests the application to stop. The office goes to the successor
// when the application has stopped, or when the drain timeout has passed.
func (m *Machine) becomeDraining(successor election.ID, out *election.Output) {
	m.become(Draining)
	m.tenure.successor, m.tenure.drainUntil = successor, m.now+m.cfg.DrainTimeout
	m.beatAt = m.now // the others learn it before the application has stopped
	out.Emit(election.StopRequested, m.term, successor)
}

// roleDeadline is the earliest timer of the role.
func (m *Machine) roleDeadline() election.Tick {
	switch m.role {
	case Follower:
		return min(m.vacancy.campaignAt, m.probes.at)
	case Candidate:
		return m.beatAt
	case Holder:
		return min(m.beatAt, m.until())
	default:
		return min(m.beatAt, m.until(), m.tenure.drainUntil)
	}
}

// fireTimers acts on every deadline that has passed. A role that ends makes way for the timers of a follower.
func (m *Machine) fireTimers(out *election.Output) {
	m.fireCommonTimers(out)
	switch m.role {
	case Candidate:
		m.tickCandidate(out)
	case Holder:
		m.tickTenure(out)
	case Draining:
		m.tickDraining(out)
	case Follower:
	}
	if m.role == Follower {
		m.tickFollower(out)
	}
}

// fireCommonTimers acts on the deadlines that exist in every role.
func (m *Machine) fireCommonTimers(out *election.Output) {
	m.detectSilence(out)
	if m.now >= m.innerDeadline() {
		m.cause = "election"
		m.fireInner(out)
	}
	if m.now >= m.ledger.PendingDue() {
		m.cause = "deferred grant"
		m.grantPending(out)
	}
}

// causeOf names an input in the table of transitions.
func causeOf(in *election.Input) string {
	switch {
	case in.Kind == election.Undelivered, in.Kind == election.Receive && in.Message.Kind.Counts():
		return "election"
	case in.Kind == election.Receive:
		return in.Message.Kind.String()
	}
	return in.Kind.String()
}
