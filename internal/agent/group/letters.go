package group

import (
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
)

// ReceiveMessage takes what a peer has written. A letter that names more than there are
// isn't kept until its turn comes: a thousand of them would take much memory.
func (g *Group) ReceiveMessage(from string, letter *wire.Message) {
	if int64(len(letter.List)) > g.heardOf.Load()+newcomersMax {
		letter = &wire.Message{
			Kind: letter.Kind, Version: letter.Version, Digest: letter.Digest, ConfigDigest: letter.ConfigDigest, Subject: tooMany,
		}
	}
	_ = g.do(func() { g.receive(from, letter) }) // A group that was left needs no letters.
}

// newcomersMax is how many names of a newer list a letter may have. tooMany is
// the name of nobody.
const (
	newcomersMax = 64
	tooMany      = "?"
)

func (g *Group) receive(from string, letter *wire.Message) {
	g.cfg.Metrics.Received(letter.Kind)
	if !g.agrees(from, letter) {
		g.cfg.Metrics.Refused()
		return
	}
	m, known := g.names.message(from, letter, g.self)
	if !known {
		g.cfg.Metrics.Refused()
		g.cfg.Log.Debug("a letter names somebody who isn't on the member list", "peer", from)
		return
	}
	g.step(election.Input{Kind: election.Receive, Message: m})
}

// send puts a message into the post.
func (g *Group) send(m *election.Message) {
	if m.To == g.self {
		g.step(election.Input{Kind: election.Receive, Message: *m})
		return
	}
	g.cfg.Metrics.Sent(m.Kind)
	letter := g.names.letter(m)
	letter.Group, letter.Version, letter.Digest, letter.ConfigDigest = g.cfg.Group.Name, g.list.Version, g.digest, g.charter
	parcel := transport.Outgoing{Frame: wire.Append(nil, wire.Frame{Message: letter})}
	returned := *m
	if m.Kind.Counts() {
		parcel.OnFailure = func() { _ = g.do(func() { g.undelivered(returned) }) }
	}
	if !g.cfg.Transport.Send(g.names.of(m.To), parcel) {
		g.undelivered(returned)
	}
}

func (g *Group) undelivered(m election.Message) {
	if m.Kind.Counts() { // A sign of life that is lost is one: the next will follow.
		g.step(election.Input{Kind: election.Undelivered, Message: m})
	}
}

// PeerEnded tells that one life of a peer has ended.
func (g *Group) PeerEnded(peer string, life uint32) {
	_ = g.do(func() {
		if id, known := g.names.ids[peer]; known {
			g.step(election.Input{Kind: election.Ended, Peer: id, Life: life})
		}
	})
}
