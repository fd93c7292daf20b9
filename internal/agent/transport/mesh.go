// Package transport connects an agent with its peers: one TCP connection for each
// pair of agents, with TLS 1.3, shared by all groups that both are members of.
// Of two agents, the one whose name sorts first dials. The other one, if it isn't
// dialled for a while, calls to say where it is: a name server may be behind.
//
// It also tells when a peer's process has ended. An end-of-file alone doesn't
// say so; but when the process's connection was closed and its port refuses a
// new one, then nobody listens there any more, and an agent listens as long as
// it lives. Likewise if another life of the peer answers at the same place.
//
//	the connection ends  ->  dial the same address again
//	                           refused            gone
//	                           another life       gone, and here is the next one
//	                           the same life      only the connection had broken
//	                           no answer          nothing is known: silence will tell
//
// Only the place at which that life was found listening can say so. Where
// addresses are translated on the way, a peer that calls isn't at the address
// from which it seems to call; so whoever is called calls back once to find out.
//
// # What is not guaranteed
//
// Of a peer that got another address, or can't be called back, only silence
// tells that it has ended.
//
// What was handed over for sending may get lost with the connection. A firewall
// that answers in the peer's name, by resets, makes it look as if it had ended.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
)

// The waits of connections. None of them decides an election.
const (
	handshakeLimit = 2 * time.Second
	strayLimit     = time.Minute
	frameLimit     = 2 * time.Second
	dialLimit      = 500 * time.Millisecond
	// redial is about how long to wait after an attempt that failed.
	redial = 200 * time.Millisecond
	// unacknowledged is how long sent bytes may wait for the peer's kernel.
	unacknowledged = time.Second
	// farewell is how long the last frames of an agent that ends may take.
	farewell = 200 * time.Millisecond
	// callBackAgain is how long to wait until a peer that couldn't be called back is
	// called again.
	callBackAgain = 5 * time.Second
)

// Outgoing is a frame for a peer. OnFailure, if there is one, is called when it could
// not be sent after all.
type Outgoing struct {
	Frame     []byte
	OnFailure func()
}

// Events is whoever is told what happens. The methods are called by the
// goroutines of connections, and may take their time: then that peer waits.
type Events interface {
	// ReceiveMessage has arrived. The peer from is who it says it is, and may speak in
	// the letter's group.
	ReceiveMessage(from string, letter *wire.Message)
	// PeerEnded: that life of the peer has ended.
	PeerEnded(peer string, life uint32)
}

// Security is how peers prove who they are.
type Security interface {
	Server() *tls.Config
	Client() *tls.Config
	// Members are the names under which the peer may speak, by group.
	Members(state tls.ConnectionState) (map[string]string, error)
}

// Config is what a Transport needs.
type Config struct {
	Self, Domain string
	// Life tells this life of the process from its other ones. It isn't 0.
	Life     uint32
	Listener net.Listener
	// Security is nil for plain TCP.
	Security Security
	// Authorize says why a peer with these names in its certificate, by group, is none
	// to be connected with. It is nil if every certificate of the domain will do.
	Authorize func(peer string, members map[string]string) error
	// CurrentTerm is what the term clock reads now. It is nil if clocks don't matter.
	CurrentTerm func() election.Term
	Events      Events
	// OnChange, if it isn't nil, is called when a connection is made or has ended,
	// and when Problems says something else. It mustn't call the Transport for long.
	OnChange func()
	Log     *slog.Logger

	// HandshakeTimeout is for TLS and the Hellos, and FrameTimeout for the rest of a
	// frame that has begun; 2 s each if they aren't set.
	HandshakeTimeout, FrameTimeout time.Duration
	// UnauthorizedGrace is how old a connection may get whose peer writes in a group that
	// its certificate doesn't name: it may have another one by now, which it shows
	// when they connect again. 1 min if it isn't set.
	UnauthorizedGrace time.Duration
}

// Transport is all connections of an agent.
type Transport struct {
	Config

	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	problems problems

	mu    sync.RWMutex
	peers map[string]*peer

	guests guests
	// closing: no more connections are to be made.
	closing atomic.Bool
}

// New starts to accept connections. Peers are dialled when they are known.
func New(config Config) *Transport {
	m := &Transport{Config: config, peers: map[string]*peer{}}
	m.HandshakeTimeout = cmp.Or(config.HandshakeTimeout, handshakeLimit)
	m.UnauthorizedGrace = cmp.Or(config.UnauthorizedGrace, strayLimit)
	m.FrameTimeout = cmp.Or(config.FrameTimeout, frameLimit)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.tasks.Go(m.accept)
	return m
}

// SetPeers says who the peers are, with their addresses: "" for those that aren't
// known to be anywhere, or not anywhere else than before. Connections with others
// are closed.
func (m *Transport) SetPeers(addresses map[string]string) {
	defer m.changed() // Not while others wait for the lock.
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, p := range m.peers {
		if _, still := addresses[name]; !still {
			p.stop()
			m.problems.solve(name)
			delete(m.peers, name)
		}
	}
	for name, address := range addresses {
		if name == m.Self {
			continue
		}
		if p := m.peers[name]; p != nil {
			p.moveTo(address)
			continue
		}
		p := newPeer(m, name, address)
		m.peers[name] = p
		m.tasks.Go(p.keep)
	}
}

func (m *Transport) peer(name string) *peer {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.peers[name]
}

// Send sends to a peer, and never waits. It reports false, and doesn't call
// OnFailure, if the peer is out of reach.
func (m *Transport) Send(to string, parcel Outgoing) bool {
	p := m.peer(to)
	return p != nil && p.send(parcel)
}

// gone tells that the process at the other end of a connection has ended.
func (m *Transport) gone(last *conn) {
	m.Events.PeerEnded(last.name, last.life) // Before anything is written: that may take a while.
	m.Log.Info("a peer's process has ended", "peer", last.name, "planned", last.left.Load())
}

// stray tells of letters that aren't delivered: once, be it about one group or many.
func (m *Transport) stray(peer, group string) {
	const why = "its certificate isn't one for this group"
	text := fmt.Sprintf("letters of %s in group %s aren't read: %s", peer, group, why)
	if m.note(peer, problem{kind: "letters", text: text}) {
		m.Log.Error("letters aren't read", "peer", peer, "group", group, "because", why)
	}
}

// Connected reports whether there is a connection with the peer.
func (m *Transport) Connected(name string) bool {
	p := m.peer(name)
	return p != nil && p.connected()
}

// RoundTrip is how long the way to the peer and back takes at most, by what the
// kernel has measured; 0 without a connection.
func (m *Transport) RoundTrip(name string) time.Duration {
	p := m.peer(name)
	if p == nil {
		return 0
	}
	return p.roundTrip()
}

// Close says goodbye to all peers and returns when all is closed. The port goes
// first, so that nobody who was said goodbye to comes back.
func (m *Transport) Close() {
	m.closing.Store(true)
	_ = m.Listener.Close() // There is nobody left to whom an error would matter.
	m.guests.close()
	m.mu.RLock()
	var leaving sync.WaitGroup
	for _, p := range m.peers {
		leaving.Go(p.bidFarewell)
	}
	m.mu.RUnlock()
	leaving.Wait()
	m.cancel()
	m.SetPeers(nil)
	m.tasks.Wait()
}
