package journal

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// size is the number of entries: an input, an event or a message takes one. In a group
	// of five, an election takes up to about 40.
	size = 1024
	// listSize is the number of processes that the lists in messages may have in total.
	listSize = 2048
)

type entryKind uint8

const (
	inputEntry entryKind = iota
	eventEntry
	sentEntry
)

// entry is an input, an event or a message that was sent. It has no pointers, so that the
// garbage collector doesn't visit the ring.
type entry struct {
	what entryKind
	// kind is an InputKind, an EventKind or, of a message that was sent, a Kind.
	kind uint8
	// cause is that of the step of this input.
	cause   control.EndCause
	at      election.Tick
	peer    election.ID
	term    election.Term
	token   election.Token
	message message
}

type message struct {
	kind                      election.Kind
	held, ready, ineligible   bool
	from, to, subject, origin election.ID
	hops, life                uint32
	term                      election.Term
	lamport                   uint64
	// The list is that of listLength processes from listStart on.
	listStart  uint64
	listLength uint32
}

// Ring is the journal of one group. It belongs to one goroutine.
type Ring struct {
	repeats repeats

	// entries and lists grow up to size and listSize. Most groups never have that many.
	entries []entry
	next    uint64

	lists []election.ID
	// nextList is the number of processes in lists that were recorded.
	nextList uint64
}

// Record records a step.
func (r *Ring) Record(step *Record) {
	if step.Before.Coordinator != election.None && step.HasNewCoordinator() {
		r.repeats.epoch++
	}
	begun := r.concerns(&step.Input)
	if begun {
		r.addInput(step)
	}
	begin := func() {
		if !begun {
			r.addInput(step)
			begun = true
		}
	}
	for i := range step.Events {
		e := &step.Events[i]
		if e.Kind == election.Outdated || e.Kind == election.Refused {
			continue
		}
		begin()
		r.add(entry{what: eventEntry, kind: uint8(e.Kind), at: step.Now, peer: e.Peer, term: e.Term, token: e.Token})
	}
	for i := range step.Send {
		if m := &step.Send[i]; r.repeats.isNew(m, m.To, sentMessages) {
			begin()
			r.add(entry{what: sentEntry, kind: uint8(m.Kind), at: step.Now, message: r.newMessage(m)})
		}
	}
}

// concerns reports whether an input is recorded even if nothing results from it.
func (r *Ring) concerns(in *election.Input) bool {
	switch in.Kind {
	case election.NoInput, election.TimePassed, election.Retime:
		return false
	case election.Receive:
		return r.repeats.isNew(&in.Message, in.Message.From, receivedMessages)
	default:
		return true
	}
}

func (r *Ring) addInput(step *Record) {
	e := entry{what: inputEntry, kind: uint8(step.Kind), cause: step.Cause, at: step.Now, peer: step.Peer}
	if step.Kind == election.Receive || step.Kind == election.Undelivered {
		e.message = r.newMessage(&step.Message)
	}
	r.add(e)
}

func (r *Ring) add(e entry) {
	r.entries = put(r.entries, size, r.next, e)
	r.next++
}

// put stores the nth value of a ring, which grows up to a size.
func put[T any](ring []T, size, n uint64, value T) []T {
	if n < size {
		return append(ring, value)
	}
	ring[n%size] = value
	return ring
}

func (r *Ring) newMessage(m *election.Message) message {
	list := m.List[:min(len(m.List), listSize)]
	recorded := message{
		kind: m.Kind, held: m.Hold.Held, ready: m.Hold.Ready, ineligible: m.Hold.Ineligible,
		from: m.From, to: m.To, subject: m.Subject, origin: m.Origin, hops: m.Hops, life: m.Hold.Life,
		term: m.Term, lamport: m.Lamport, listStart: r.nextList, listLength: uint32(len(list)), //nolint:gosec // <= listSize
	}
	for _, id := range list {
		r.lists = put(r.lists, listSize, r.nextList, id)
		r.nextList++
	}
	return recorded
}

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

// repeats recognizes messages of the office that only repeat the one before, such as heartbeats.
//
// A new epoch begins when the tenure of the known coordinator has ended. The beginning of a tenure doesn't begin one:
// the sender and the receiver of its first heartbeat must agree that it is new, and the second one isn't.
type repeats struct {
	epoch uint32
	// last is the last message by process, direction, kind, and whether it is marked as held: a probe and the answer to it
	// differ only by that.
	last []memory
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
