package election

// Kind is the kind of a message, spelled as in the source texts.
type Kind uint8

// The kinds of messages.
const (
	NoKind Kind = iota

	// The bully and the status table.
	Election
	OK
	Coordinator
	Request
	Table
	Update

	// The rings. RingSkip uses Election and Coordinator.
	ElectMe
	NewCoordinator
	Elect
	Inquiry
	Reply

	// Stale answers a message of an older term with the newer one.
	Stale

	// What holds and hands over the office; not part of any election.
	Beat
	Grant
	Deny
	Resigned
	// Probe is a sign of life of a process that knows no coordinator, and the
	// answer to it.
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
// election. Signs of life, grants and what belongs to them never do.
func (k Kind) Counts() bool { return k > NoKind && k <= Stale }

// Kinds are all kinds that count.
func Kinds() []Kind {
	all := make([]Kind, 0, Stale)
	for k := Election; k <= Stale; k++ {
		all = append(all, k)
	}
	return all
}

// Message is what one process tells another. It is a value: a slice in it
// belongs to the one who holds the message.
type Message struct {
	Kind     Kind
	From, To ID
	Term     Term
	// Lamport is the sender's logical clock (seed 004, assumption 6).
	Lamport uint64
	// Subject is whom the message is about: the coordinator that is thought
	// dead (ELECTION), the candidate (ELECT_ME, ELECT), the process that asks
	// (INQUIRY), the coordinator (TABLE, REPLY, NEW_COORDINATOR, BEAT), the
	// successor (RESIGNED).
	Subject ID
	// Origin is who put a message on the ring, and takes it off again.
	Origin ID
	// Hops counts the places on the ring that the message has passed. Nothing
	// goes round more than once, even when its origin is gone.
	Hops uint32
	// List holds the identifiers on RingSkip's lists, and in TABLE the rows
	// that differ from what the coordinator's rank implies; in BEAT, whom the
	// coordinator believes dead, and behind a None those who don't stand.
	List []ID

	Hold Hold
}

// Hold is the part of a message that concerns the office: see package office.
type Hold struct {
	// Sent is the holder's own clock at the BEAT; a GRANT or DENY brings it back.
	Sent Tick
	// Life tells the lives of a process apart. RequesterLife is, in an answer, the life
	// that sent the BEAT: what was granted to one isn't granted to the next.
	Life, RequesterLife uint32
	// Version is the member list that the sender has adopted.
	Version uint32
	// HighestGranted, in an answer, is the highest term that the member granted to anyone
	// but the one it answers.
	HighestGranted Term
	// Held says that the sender of a BEAT has tenure already, rather than asking
	// for it; in a DENY, that the sender knows a coordinator that has.
	Held bool
	// Ineligible says that the sender doesn't stand: its application is dead, or it has
	// stepped down.
	Ineligible bool
	// Ready says that the sender could take the office.
	Ready bool
}
