package election

// Machine is a state machine that takes part in an election for one process.
type Machine interface {
	// Step handles one input and appends the resulting messages and events to out. It neither fails nor panics, whatever a
	// peer sends: it reports bad input as an Event.
	Step(in Input, out *Output)
	// Deadline returns the moment at which the Machine needs a TimePassed, or Never.
	Deadline() Tick
	// Status returns a copy of what the process knows.
	Status() Status
	// Rows appends the process status table to rows, highest rank first.
	Rows(rows []Row) []Row

	State
}

// State lets a simulator visit every state: copy it, and recognize it.
type State interface {
	// Clone returns an independent copy.
	Clone() Machine
	// Encode appends the state to b. States that behave alike from now on have
	// the same encoding: moments are encoded relative to now.
	Encode(b []byte, now Tick) []byte
}

// InputKind is the kind of an Input.
type InputKind uint8

// The kinds of inputs.
const (
	NoInput InputKind = iota
	// TimePassed: the time is Now.
	TimePassed
	// Receive: Message has arrived.
	Receive
	// Undelivered: Message could not be delivered, because its addressee doesn't respond.
	Undelivered
	// Suspect: Peer is believed dead.
	Suspect
	// Restore: Peer, which was believed dead, is alive.
	Restore
	// Campaign: start an election. Peer is the coordinator that is believed dead, or None. Term is the lowest term to use.
	Campaign
	// Recover: this process failed and is running again.
	Recover
	// Follow: Peer is the coordinator, in Term, and an election that is under
	// way is over. If Peer is None, there is no coordinator now.
	Follow
	// BecomeIneligible: forward messages, but don't be elected, because the application is dead.
	BecomeIneligible
	// BecomeEligible: the application is running again.
	BecomeEligible
	// Adopt: Roster is the new member list.
	Adopt
	// Ended: the incarnation Life of the process Peer has certainly ended.
	Ended
	// StepDown: hand the office over to Peer, or if that is None, to the highest process that is ready.
	StepDown
	// Stopped: the application has stopped acting as coordinator in Term, as StopRequested asked it to.
	Stopped
	// Retime: Timing holds the timeouts from now on. It doesn't affect those that have begun.
	Retime
	// Reserved: Term is on the disk as the highest one that this process may grant or claim.
	Reserved
)

var inputNames = [...]string{
	"none", "tick", "receive", "undelivered", "suspect", "restore", "campaign", "recover", "follow", "ineligible",
	"eligible", "adopt", "gone", "step-down", "stopped", "retime", "reserved",
}

func (k InputKind) String() string {
	if int(k) >= len(inputNames) {
		return "unknown"
	}
	return inputNames[k]
}

// Input is one event that a process has to handle.
type Input struct {
	Kind InputKind `json:"kind"`
	// Ineligible: the peer of a Suspect or Restore is alive but ineligible. No
	// process should wait for its answer. On a ring it forwards messages.
	Ineligible bool    `json:"ineligible,omitempty"`
	Peer       ID      `json:"peer,omitempty"`
	Life       uint32  `json:"life,omitempty"`
	Now        Tick    `json:"now"`
	Term       Term    `json:"term,omitempty"`
	Roster     *Roster `json:"-"` // Its members aren't exported.
	Timing     *Timing `json:"timing,omitempty"`
	Message    Message `json:"message,omitzero"`
}

// Output collects the results of steps. The caller owns and resets it.
type Output struct {
	// Send holds messages, in the order in which they must be sent.
	Send []Message
	// Events holds facts for the transcript, the log, the metrics and Kubernetes.
	Events []Event
}

// Reset empties the output but retains its memory.
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
	// Started: this process started an election. Peer is the coordinator that is believed dead.
	Started
	// Elected: this process won the election.
	Elected
	// Recognized: Peer is the coordinator.
	Recognized
	// MarkedCrashed and MarkedNormal: Peer's row in the table changed.
	MarkedCrashed
	MarkedNormal
	// Skipped: Peer doesn't respond and was left out of the ring.
	Skipped
	// Outdated: a message from Peer was of an older term.
	Outdated
	// Refused: a message from Peer, or an input, isn't valid here.
	Refused

	// TenureStarted: this process holds the office from now on, with Token.
	TenureStarted
	// TenureLost: this process no longer holds the office. The application must have stopped by now.
	TenureLost
	// StopRequested: the application must stop. Then the office goes to Peer.
	StopRequested
	// OfficeResigned: this process gave up the office, in favor of Peer.
	OfficeResigned
	// Learned: this process recovers, and another one named Peer as coordinator.
	Learned
	// TooSlow: a majority granted this process the office, but their answers take so long that
	// it could not renew the grants. So it waits.
	TooSlow
)

var eventNames = [...]string{
	"none", "started", "elected", "recognised", "crashed", "normal", "skipped", "outdated", "refused", "tenure",
	"lost", "stop", "resigns", "learned", "too slow",
}

func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Event is a fact that a Machine reports.
type Event struct {
	Kind  EventKind `json:"kind"`
	Peer  ID        `json:"peer,omitempty"`
	Term  Term      `json:"term,omitempty"`
	Token Token     `json:"token,omitempty"`
}

// Status is what a process knows.
type Status struct {
	// Coordinator is the coordinator in Term, as far as the process knows.
	Coordinator ID   `json:"coordinator,omitempty"`
	Term        Term `json:"term,omitempty"`
	// HandsOver: Coordinator has said that its application stops.
	HandsOver bool `json:"handsOver,omitempty"`
	// Electing: an election is under way.
	Electing bool `json:"electing,omitempty"`
	// Token and Until are set while the process itself holds the office. It may
	// act as coordinator until the moment Until on its own clock.
	Token Token `json:"token,omitempty"`
	Until Tick  `json:"until,omitempty"`
}
