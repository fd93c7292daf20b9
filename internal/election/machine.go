package election

// Machine is a state machine that takes part in an election for one process.
type Machine interface {
	// Step takes one input and appends what follows from it to out. Whatever a
	// peer sends, it neither fails nor panics: bad input is an Event.
	Step(in Input, out *Output)
	// Deadline is the moment at which the Machine wants a Tick, or Never.
	Deadline() Tick
	// Status says what the process knows. It is a copy.
	Status() Status
	// Rows appends the process status table to rows, highest rank first.
	Rows(rows []Row) []Row

	State
}

// State lets a simulator visit every state: copy it, and know it again.
type State interface {
	// Clone is an independent copy.
	Clone() Machine
	// Encode appends the state to b such that states that behave alike from now
	// on are encoded alike: moments are written relative to now.
	Encode(b []byte, now Tick) []byte
}

// InputKind is the kind of an Input.
type InputKind uint8

// The kinds of inputs.
const (
	NoInput InputKind = iota
	// TimePassed: up to Now.
	TimePassed
	// Receive: Message has arrived.
	Receive
	// Undelivered: Message could not be delivered, its addressee doesn't respond.
	Undelivered
	// Suspect: Peer is believed dead.
	Suspect
	// Restore: Peer, which was believed dead, has been heard of.
	Restore
	// Campaign: start an election; Peer is the coordinator that is thought dead,
	// or None. Term is the least term to use.
	Campaign
	// Recover: this process failed and is back.
	Recover
	// Follow: Peer is the coordinator, in Term, and an election that is under way
	// is over. With None: there is no coordinator now.
	Follow
	// BecomeIneligible: the application is dead; forward, but don't be elected.
	BecomeIneligible
	// BecomeEligible: the application is alive again.
	BecomeEligible
	// Adopt: Roster is the new member list.
	Adopt
	// Ended: the process Peer, in its life Life, is known to have ended.
	Ended
	// StepDown: give up the office, to Peer or to whoever is elected.
	StepDown
	// Stopped: the application has stopped acting as coordinator in Term, as it
	// was told to by StopRequested.
	Stopped
	// Retime: Timing are the waits from now on. Those that have begun last as long
	// as they did.
	Retime
)

var inputNames = [...]string{
	"none", "tick", "receive", "undelivered", "suspect", "restore", "campaign", "recover", "follow", "ineligible",
	"eligible", "adopt", "gone", "step-down", "stopped", "retime",
}

func (k InputKind) String() string {
	if int(k) >= len(inputNames) {
		return "unknown"
	}
	return inputNames[k]
}

// Input is one thing that happens to a process.
type Input struct {
	Kind InputKind
	// Ineligible: the suspect lives, but doesn't stand. Nobody should wait for its
	// answer; on a ring it sends on what comes.
	Ineligible bool
	Peer       ID
	Life       uint32
	Now        Tick
	Term       Term
	Roster     *Roster
	Timing     *Timing
	Message    Message
}

// Output collects what follows from steps. The caller owns and resets it.
type Output struct {
	// Send are messages, in the order in which they must leave.
	Send []Message
	// Events are facts for transcript, log, metrics and Kubernetes alike.
	Events []Event
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() { o.Send, o.Events = o.Send[:0], o.Events[:0] }

// Emit appends an event.
func (o *Output) Emit(kind EventKind, term Term, peer ID) {
	o.Events = append(o.Events, Event{Kind: kind, Term: term, Peer: peer})
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	NoEvent EventKind = iota
	// Started: an election; Peer is the coordinator thought dead.
	Started
	// Elected: this process has won the election.
	Elected
	// Recognized: Peer is the coordinator.
	Recognized
	// MarkedCrashed and MarkedNormal: Peer's row in the table.
	MarkedCrashed
	MarkedNormal
	// Skipped: Peer doesn't respond and was left out of the ring.
	Skipped
	// Outdated: a message from Peer was of an older term.
	Outdated
	// Refused: a message from Peer, or an input, makes no sense here.
	Refused

	// TenureStarted: this process holds the office from now on, with Token.
	TenureStarted
	// TenureLost: it no longer does; the application must have stopped by now.
	TenureLost
	// StopRequested: the application must stop, then the office goes to Peer.
	StopRequested
	// OfficeResigned: the office was given up, to Peer.
	OfficeResigned
)

var eventNames = [...]string{
	"none", "started", "elected", "recognised", "crashed", "normal", "skipped", "outdated", "refused", "tenure",
	"lost", "stop", "resigns",
}

func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Event is a fact.
type Event struct {
	Kind  EventKind
	Peer  ID
	Term  Term
	Token Token
}

// Status is what a process knows.
type Status struct {
	// Coordinator is who leads, as far as the process knows, in Term.
	Coordinator ID
	Term        Term
	// Electing says that an election is under way.
	Electing bool
	// Token and Until are set while the process itself holds the office: it may
	// act as coordinator until that moment on its own clock.
	Token Token
	Until Tick
}
