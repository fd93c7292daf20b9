package journal

import "github.com/conclave-dev/conclave/internal/election"

// direction tells received messages from those that were sent.
type direction uint8

const (
	receivedMessages direction = iota
	sentMessages
	directions
)

// officeKinds is the number of kinds of messages that are repeated: Beat, Grant, Deny and
// Probe. Resigned, which isn't, is between them.
const officeKinds = election.Probe - election.Beat + 1

// content is what makes a message of the office differ from the one before.
type content struct {
	// epoch is the number of tenures that have ended, as this process saw it.
	epoch   uint32
	subject election.ID
	term    election.Term
}

type memory [directions][officeKinds][2]content

// repeats recognizes messages of the office that only repeat the one before, such as
// heartbeats.
type repeats struct {
	coordinator election.ID
	epoch       uint32
	// last is the last message by process, direction, kind, and whether it is marked as held:
	// a probe and the answer to it differ only by that.
	last []memory
}

// follow begins a new epoch when the tenure of the known coordinator has ended. The beginning
// of a tenure doesn't begin one: the sender and the receiver of its first heartbeat must
// agree that it is new, and the second one isn't.
func (r *repeats) follow(coordinator election.ID) {
	if r.coordinator != election.None && r.coordinator != coordinator {
		r.epoch++
	}
	r.coordinator = coordinator
}

// isNew reports whether a message from or to a process differs from the last one.
func (r *repeats) isNew(m *election.Message, peer election.ID, way direction) bool {
	switch m.Kind {
	case election.Beat, election.Grant, election.Deny, election.Probe:
	default:
		return true
	}
	if peer > election.MaxID {
		return true
	}
	for election.ID(len(r.last)) <= peer { // only after a change of the member list
		r.last = append(r.last, memory{})
	}
	held := 0
	if m.Hold.Held {
		held = 1
	}
	last := &r.last[peer][way][m.Kind-election.Beat][held]
	now := content{epoch: r.epoch + 1, subject: m.Subject, term: m.Term}
	if *last == now {
		return false
	}
	*last = now
	return true
}
