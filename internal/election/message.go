package election

// Kind is the kind of a message, spelled as in the source texts.
type Kind uint8

// The kinds of messages.
const (
	NoKind Kind = iota

	// The bully and the status table. RingSkip also uses Election and Coordinator.
	Election
	OK
	Coordinator
	Request
	Table
	Update

	// The rings.
	ElectMe
	NewCoordinator
	Elect
	Inquiry
	Reply

	// Stale answers a message of an older term with the newer term.
	Stale

	// The messages of the office. They don't belong to an election.
	Beat
	Grant
	Deny
	Resigned
	// Probe is a sign of life of a process that knows no coordinator or may
	// take over from the present one, and the answer to it.
	Probe

	kinds
)

var kindNames = [kinds]string{
	"NONE", "ELECTION", "OK", "COORDINATOR", "REQUEST", "TABLE", "UPDATE", "ELECT_ME", "NEW_COORDINATOR",
	"ELECT", "INQUIRY", "REPLY", "STALE", "BEAT", "GRANT", "DENY", "RESIGNED", "PROBE",
}

func (k Kind) String() string {
	if k >= kinds {
		return "UNKNOWN"
	}
	return kindNames[k]
}

// Counts reports whether messages of this kind count as messages of an
// election. The messages of the office never count.
func (k Kind) Counts() bool { return k > NoKind && k <= Stale }

// Kinds returns all kinds that count.
func Kinds() []Kind {
	all := make([]Kind, 0, Stale)
	for k := Election; k <= Stale; k++ {
		all = append(all, k)
	}
	return all
}

// Message is a message from one process to another. It is a value: the process
// that has the message owns the slice in it.
type Message struct {
	Kind Kind `json:"kind"`
	From ID   `json:"from"`
	To   ID   `json:"to"`
	Term Term `json:"term,omitempty"`
	// Lamport is the sender's logical clock ([ImprovedBully], assumption 6).
	Lamport uint64 `json:"lamport,omitempty"`
	// Subject is the process that the message is about: the coordinator that is believed dead (ELECTION), the candidate
	// (ELECT_ME, ELECT), the process that inquires (INQUIRY), the coordinator (TABLE, REPLY, NEW_COORDINATOR, BEAT), or
	// the named successor (RESIGNED).
	Subject ID `json:"subject,omitempty"`
	// Origin is the process that put a message on the ring, and removes it again.
	Origin ID `json:"origin,omitempty"`
	// Hops counts the places on the ring that the message has passed. It limits
	// a message to one round, even if its origin has failed.
	Hops uint32 `json:"hops,omitempty"`
	// List holds the identifiers on RingSkip's lists; in TABLE, the rows that differ from what the coordinator's rank
	// implies; and in BEAT, the processes that the coordinator suspects and, after a None, those that are alive but
	// ineligible.
	List []ID `json:"list,omitempty"`

	Hold Hold `json:"hold,omitzero"`
}

// Hold is the part of a message that concerns the office: see package office.
type Hold struct {
	// Sent is the moment of the BEAT or PROBE on the sender's own clock. The answer returns it.
	Sent Tick
	// Life is the sender's incarnation. RequesterLife is, in an answer, the incarnation that sent the BEAT or PROBE: a
	// grant to one incarnation doesn't count for the next.
	Life, RequesterLife uint32
	// Version is the member list that the sender has adopted. In an answer it is 0
	// while grants under older lists are in force.
	Version uint32
	// Abstains: the sender doesn't vote under its list: see office.Machine.Forgetful.
	Abstains bool
	// HighestGranted is, in an answer, the highest term that the member granted to any process other than the requester.
	HighestGranted Term
	// Settled is, in the BEAT of a coordinator, that its list has settled.
	Settled bool
	// ElectionTerm is, in the answer to a PROBE, the term of the sender's last election. It is above the term of the
	// office if elections failed since.
	ElectionTerm Term
	// Held: the sender of a BEAT already holds the office, rather than requesting it. In a PROBE it marks the answer, and
	// in a RESIGNED the end of a claim that was never a tenure. In a TABLE or REPLY, the subject holds the office in the
	// term of the message.
	Held bool
	// Ineligible: the sender isn't eligible, because its application is dead or it has stepped down.
	Ineligible bool
	// HandsOver: the sender of a BEAT still holds the office, but its application has been asked to stop.
	HandsOver bool
	// Flaps: the tenures of the sender are short again and again, so it comes last.
	Flaps bool
	// Ready: the sender is eligible and could take the office at once. In a RESIGNED, the
	// tenure ended by a hand-over or because an operator requested it.
	Ready bool
	// Lease is, in a BEAT, the lease for which the sender requests a grant, and in a GRANT the one for which the member
	// has granted. 0 stands for the lease that the receiver is configured with.
	Lease Tick
	// Heartbeat is, in the BEAT of a coordinator, the time until its next one. 0 stands
	// for the interval that the receiver is configured with.
	Heartbeat Tick
}
