// Package journal remembers an agent's part of recent elections, in memory.
//
// A Ring has a fixed size. To record a step allocates nothing, makes no
// system call and takes no lock, so that it doesn't delay a failover. Heartbeats that only
// repeat the last one aren't recorded: an idle agent compares a few numbers.
//
// What is recorded, and what isn't:
//
//   - every message of an election, in both directions
//   - the messages of the office: BEAT, GRANT, DENY and PROBE only if they differ from the
//     last one of their kind to or from that process since the last tenure ended
//   - every event of the machine, except that a message was outdated or refused
//   - inputs other than messages, and the passage of time if something resulted from it
//
// The ring overwrites the oldest entries. A restart of the agent, or joining the group
// again with other settings, loses them all.
//
// These words have one meaning each, except for record:
//
//	word        package                        what it is for
//	journal     agent/journal,                 the agent's memory of recent elections; operators read it from
//	            protocol/journal               running agents
//	transcript  transcript                     the journals of all agents of a group, merged: what
//	                                           kubectl conclave explain prints
//	trace       agent/trace                    a trace file has all inputs and outputs of an agent's Machine;
//	                                           tests replay it to prove that nothing else has influenced the Machine
//	script      election/electiontest/script   commands that run the processes of a test by hand, with the
//	                                           expected outputs beside them
//	record      agent/state                    what an agent stores of a group on its disk, to start again
//	            chaos                          one fault, and what was observed of the failover after it
package journal

import "github.com/conclave-dev/conclave/internal/election"

const (
	// size is the number of entries: an input, an event or a message takes one. In a group
	// of five, an election takes up to about 40.
	size = 1024
	// listSize is the number of processes that the lists in messages may have in total.
	listSize = 2048
)

// entryKind tells what an entry is.
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
	// cause is why the coordinator gives up the office in the step of this input, 0 if it doesn't. It is a group.Cause.
	cause uint8
	// at is when the step happened.
	at election.Tick
	// peer is that of an input or an event.
	peer election.ID
	// term and token are those of an event.
	term  election.Term
	token election.Token
	// message is the one that was sent or received.
	message message
}

// message is the part of an election.Message that is recorded.
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
	// repeats is the only field with pointers. It comes first, so that the garbage collector
	// skips the rest.
	repeats repeats

	entries [size]entry
	// next is the number of entries that were recorded.
	next uint64

	lists [listSize]election.ID
	// nextList is the number of processes in lists that were recorded.
	nextList uint64
}

// Record records a step. coordinator is the one that the process knows after it, and cause why the coordinator
// gives up the office in it, 0 if it doesn't.
func (r *Ring) Record(in *election.Input, send []election.Message, events []election.Event, coordinator election.ID, cause uint8) {
	r.repeats.follow(coordinator)
	begun := r.concerns(in)
	if begun {
		r.addInput(in, cause)
	}
	begin := func() {
		if !begun {
			r.addInput(in, cause)
			begun = true
		}
	}
	for i := range events {
		e := &events[i]
		if e.Kind == election.Outdated || e.Kind == election.Refused {
			continue
		}
		begin()
		r.add(entry{what: eventEntry, kind: uint8(e.Kind), at: in.Now, peer: e.Peer, term: e.Term, token: e.Token})
	}
	for i := range send {
		if m := &send[i]; r.repeats.isNew(m, m.To, sentMessages) {
			begin()
			r.add(entry{what: sentEntry, kind: uint8(m.Kind), at: in.Now, message: r.newMessage(m)})
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

func (r *Ring) addInput(in *election.Input, cause uint8) {
	e := entry{what: inputEntry, kind: uint8(in.Kind), cause: cause, at: in.Now, peer: in.Peer}
	if in.Kind == election.Receive || in.Kind == election.Undelivered {
		e.message = r.newMessage(&in.Message)
	}
	r.add(e)
}

func (r *Ring) add(e entry) {
	r.entries[r.next%size] = e
	r.next++
}

func (r *Ring) newMessage(m *election.Message) message {
	list := m.List[:min(len(m.List), listSize)]
	recorded := message{
		kind: m.Kind, held: m.Hold.Held, ready: m.Hold.Ready, ineligible: m.Hold.Ineligible,
		from: m.From, to: m.To, subject: m.Subject, origin: m.Origin, hops: m.Hops, life: m.Hold.Life,
		term: m.Term, lamport: m.Lamport, listStart: r.nextList, listLength: uint32(len(list)), //nolint:gosec // <= listSize
	}
	for _, id := range list {
		r.lists[r.nextList%listSize] = id
		r.nextList++
	}
	return recorded
}
