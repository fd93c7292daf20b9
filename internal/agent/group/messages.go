package group

import (
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
)

// ReceiveMessage handles a message of a peer. It drops the message if too many others wait: elections tolerate lost
// messages.
func (g *Group) ReceiveMessage(from transport.Sender, message *wire.Message) {
	if !g.tryEnqueue(func() { g.receive(from, message) }) {
		g.cfg.Metrics.Dropped.Add(1)
	}
}

func (g *Group) receive(from transport.Sender, message *wire.Message) {
	g.cfg.Metrics.Received.add(message.Kind)
	if !g.configMatches(from, message) {
		g.cfg.Metrics.Refused.Add(1)
		return
	}
	m, known := g.names.decode(from.Name, message, g.self)
	if !known {
		g.cfg.Metrics.Refused.Add(1)
		g.cfg.Log.Debug("ignoring message: names an unknown member", "peer", from.Name)
		return
	}
	if m.Hold.Lease == 0 {
		m.Hold.Lease = message.Lease
	}
	g.observer.announced = announcedCause(message)
	g.step(election.Input{Kind: election.Receive, Message: m})
}

// renews reports whether a message only continues a tenure: it is a heartbeat of the
// coordinator, or the answer of a follower. If the step had no event, nobody waits for it.
func renews(m *election.Message) bool {
	return m.Kind == election.Beat && m.Hold.Held || m.Kind == election.Grant && m.Subject == m.To
}

// send passes a message to the transport, or to the machine if it is for this process.
func (g *Group) send(m *election.Message, renewal bool) {
	if m.To == g.self {
		g.step(election.Input{Kind: election.Receive, Message: *m})
		return
	}
	g.cfg.Metrics.Sent.add(m.Kind)
	message := g.names.encode(m)
	if m.Kind.Counts() {
		g.cfg.Log.Debug("sending message", "kind", m.Kind, "to", g.names.name(m.To), "term", uint64(m.Term),
			"about", message.Subject, "from", message.Origin, "list", message.List)
	}
	message.Group, message.Version, message.Digest, message.ConfigDigest = g.cfg.Group.Name, g.list.Version,
		g.listDigest, g.configDigest
	message.Lease = election.Tick(g.cfg.Group.Safety.Lease)
	message.Refuses = g.refuses(g.names.name(m.To))
	message.EndCause = uint32(g.observer.last.announcement(m))
	if message.Hold.Lease == message.Lease {
		message.Hold.Lease = 0 // It need not be sent twice.
	}
	out := transport.Outgoing{Frame: wire.Append(nil, wire.Frame{Message: message}), MayWait: renewal}
	sent := *m
	if m.Kind.Counts() {
		out.OnFailure = func() { _ = g.tryEnqueue(func() { g.undelivered(sent) }) } // Otherwise, the reply times out.
	}
	if !g.cfg.Transport.Send(g.names.name(m.To), out) {
		g.undelivered(sent)
	}
}

// undelivered reports to the machine that an election message wasn't sent. Others,
// such as heartbeats, are sent again anyway.
func (g *Group) undelivered(m election.Message) {
	if m.Kind.Counts() {
		g.step(election.Input{Kind: election.Undelivered, Message: m})
	}
}

// PeerEnded reports that an incarnation of a peer has ended. It doesn't wait: the caller serves the other groups, too.
func (g *Group) PeerEnded(peer string, life uint32) {
	g.enqueueWithoutWait(func() {
		if id, known := g.names.ids[peer]; known {
			g.step(election.Input{Kind: election.Ended, Peer: id, Life: life})
		}
	})
}

// PeerRefused reports that the process of a peer has probably ended. Of the coordinator, that is a reason to suspect it
// before it has been silent for the suspicion timeout: until then, this process would answer elections of the others,
// but claim nothing. All other processes are left to the coordinator. It doesn't wait, either.
func (g *Group) PeerRefused(peer string) {
	g.enqueueWithoutWait(func() {
		if id, known := g.names.ids[peer]; known && id == g.record.Status.Coordinator && id != g.self {
			g.step(election.Input{Kind: election.Suspect, Peer: id})
		}
	})
}

// names maps the names of members to the identifiers that the machine uses. A name
// retains its identifier until the group is left.
type names struct {
	byID []string // byID[election.None] is empty
	ids  map[string]election.ID
}

func newNames() *names {
	return &names{byID: []string{""}, ids: map[string]election.ID{"": election.None}}
}

func (n *names) add(name string) election.ID {
	id, known := n.ids[name]
	if !known {
		id = election.ID(len(n.byID))
		n.byID = append(n.byID, name)
		n.ids[name] = id
	}
	return id
}

func (n *names) name(id election.ID) string {
	if int(id) >= len(n.byID) {
		return ""
	}
	return n.byID[id]
}

const (
	// lamportMax is higher than any value that a logical clock can reach by counting.
	lamportMax = 1 << 60
	// newNamesMax is the number of names of a newer member list that a message may have beyond the known ones.
	newNamesMax = 64
)

// decode converts a received message. It returns false if the message would make the logical clock overflow, has too
// many names, or names an unknown member. There are two exceptions: the coordinator may already have adopted a newer
// member list. A BEAT in which it suspects a new member, and a RESIGNED that names a new member as successor, are valid
// without that name.
func (n *names) decode(from string, message *wire.Message, self election.ID) (election.Message, bool) {
	m := election.Message{
		Kind: message.Kind, To: self, Term: message.Term, Lamport: message.Lamport, Hops: message.Hops, Hold: message.Hold,
	}
	known := message.Lamport < lamportMax && len(message.List) <= len(n.byID)+newNamesMax
	identifier := func(name string) election.ID {
		id, ok := n.ids[name]
		known = known && ok
		return id
	}
	m.From, m.Origin = identifier(from), identifier(message.Origin)
	if message.Kind == election.Resigned {
		m.Subject = n.ids[message.Subject]
	} else {
		m.Subject = identifier(message.Subject)
	}
	for _, name := range message.List {
		if _, listed := n.ids[name]; !listed && message.Kind == election.Beat {
			continue
		}
		m.List = append(m.List, identifier(name))
	}
	return m, known
}

func (n *names) encode(m *election.Message) *wire.Message {
	message := &wire.Message{
		Kind: m.Kind, Term: m.Term, Lamport: m.Lamport, Hops: m.Hops, Hold: m.Hold,
		Subject: n.name(m.Subject), Origin: n.name(m.Origin),
	}
	for _, id := range m.List {
		message.List = append(message.List, n.name(id))
	}
	return message
}
