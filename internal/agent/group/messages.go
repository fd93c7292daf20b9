package group

import (
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
)

// ReceiveMessage handles a message of a peer. It drops the message if too many others wait:
// elections tolerate lost messages. A message with too many names can't be
// valid. Its names are dropped before it is queued: a thousand such messages would
// take much memory.
func (g *Group) ReceiveMessage(from string, message *wire.Message) {
	if int64(len(message.List)) > g.knownNames.Load()+newNamesMax {
		message = &wire.Message{
			Kind: message.Kind, Version: message.Version, Digest: message.Digest,
			ConfigDigest: message.ConfigDigest, Lease: message.Lease, Subject: unknownName,
		}
	}
	if !g.tryEnqueue(func() { g.receive(from, message) }) {
		g.cfg.Metrics.Dropped()
	}
}

const (
	// newNamesMax is the number of names of a newer member list that a message may have
	// beyond the known ones.
	newNamesMax = 64
	// unknownName is the name of no member.
	unknownName = "?"
)

func (g *Group) receive(from string, message *wire.Message) {
	g.cfg.Metrics.Received(message.Kind)
	if !g.configMatches(from, message) {
		g.cfg.Metrics.Refused()
		return
	}
	m, known := g.names.decode(from, message, g.self)
	if !known {
		g.cfg.Metrics.Refused()
		g.cfg.Log.Debug("ignoring message: names an unknown member", "peer", from)
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
	g.cfg.Metrics.Sent(m.Kind)
	message := g.names.encode(m)
	if m.Kind.Counts() && g.logsMessages {
		g.cfg.Log.Debug("sending message", "kind", m.Kind, "to", g.names.name(m.To), "term", uint64(m.Term),
			"about", message.Subject, "from", message.Origin, "list", message.List)
	}
	message.Group, message.Version, message.Digest, message.ConfigDigest = g.cfg.Group.Name, g.list.Version, g.listDigest, g.configDigest
	message.Lease = election.Tick(g.cfg.Group.Safety.Lease)
	message.EndCause = uint32(g.observer.endings.announcement(m))
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

// CorrectClock informs the machine that the clock was corrected. It doesn't wait: the
// caller serves the other groups, too.
func (g *Group) CorrectClock() {
	g.enqueueWithoutWait(func() {
		g.step(election.Input{Kind: election.CorrectClock, Term: g.cfg.Clock.CurrentTerm()})
	})
}

// PeerEnded reports that an incarnation of a peer has ended. It doesn't wait, either.
func (g *Group) PeerEnded(peer string, life uint32) {
	g.enqueueWithoutWait(func() {
		if id, known := g.names.ids[peer]; known {
			g.step(election.Input{Kind: election.Ended, Peer: id, Life: life})
		}
	})
}

// PeerRefused reports that the process of a peer has probably ended. Of the coordinator, that is a reason to suspect it
// before it has been silent for the suspicion timeout: until then, this process would answer elections of the others, but
// claim nothing. All other processes are left to the coordinator. It doesn't wait, either.
func (g *Group) PeerRefused(peer string) {
	g.enqueueWithoutWait(func() {
		if id, known := g.names.ids[peer]; known && id == g.machine.Status().Coordinator && id != g.self {
			g.step(election.Input{Kind: election.Suspect, Peer: id})
		}
	})
}
