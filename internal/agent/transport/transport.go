// Package transport maintains one TCP connection with TLS 1.3 for each pair of agents. All groups of which both agents
// are members share it. The package delivers messages, and reports when the process of a peer has ended.
//
// # Connections
//
// Of two agents, the one whose name sorts first dials. A name server may return an outdated address for it. Therefore
// the other agent, if no connection arrives for a while, dials too. That connection isn't used: it only announces, in
// its Hello, the address at which the agent listens. The first agent then dials that address.
//
// Members also tell each other the addresses of restarted ones: see addresses.go.
//
// # Detecting that a process has ended
//
// The end of a connection doesn't prove that the process at its other end has ended. But an agent listens as long as it
// runs. So if the connection was closed and the address at which that process listened refuses a new connection, then
// the process has ended. The same holds if another incarnation of the peer answers at that address.
//
//	connection closed  ->  dial the same IP address again, then the peer's name
//	                         refused              the process has ended
//	                         another incarnation  the process has ended; this is its successor
//	                         same incarnation     only the connection was lost
//	                         no answer            unknown; heartbeats will time out
//
// Only the address at which that incarnation was reached is conclusive. With address translation, the source address of
// an incoming connection isn't one at which the peer listens. Therefore the side that accepts a connection dials back
// once, to verify the address. Until it has, a refused connection isn't proof, but a reason to suspect the process
// (checkUnverified). An agent that has just started has many addresses to verify.
//
// # Goroutines
//
// One goroutine accepts connections; each incoming connection has one until its handshake is over. Each peer has one
// goroutine that obtains its connection (peer.run), and one for a dial in progress. Each connection has a reader and a
// writer, and one that dials back until the peer's address is verified. Close waits for all of them.
//
// Send never blocks. Events are called by readers, and must not block: all groups share the connection.
//
// # Timeouts
//
//	dial                          500 ms
//	first dial after an end       20 ms (checkEnd), before this side closes
//	after the end of a process    10 ms (actFirst), before this side closes and dials again
//	TLS and Hello                 2 s (HandshakeTimeout)
//	rest of a frame               2 s (FrameTimeout)
//	unacknowledged bytes          1 s (TCP_USER_TIMEOUT)
//	idle connection               keepalive probes each second, after 5 s
//	between attempts              100 ms to 300 ms, after incomplete handshakes up to 9.6 s
//	before an announcement        4 ms for each peer on average (announceDelay), then 1 s to 96 s
//	turn for a handshake          1 s (turns)
//	Goodbye                       200 ms
//
// None of them decides an election.
//
// # What is not guaranteed
//
// Messages that are queued or in transit are lost with their connection. The end of a process whose address has
// changed, or couldn't be verified, isn't reported; only missing heartbeats show it. A firewall that answers with
// resets on behalf of a peer makes the peer look as if it had ended.
package transport

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	defaultHandshakeTimeout  = 2 * time.Second
	defaultFrameTimeout      = 2 * time.Second
	defaultUnauthorizedGrace = time.Minute
	dialTimeout              = 500 * time.Millisecond
	redialDelay              = 200 * time.Millisecond
	// tcpUserTimeout bounds how long sent bytes may remain unacknowledged.
	tcpUserTimeout = time.Second
	// actFirst is how long an election may take before what follows the end of a process: log, close, and dial again. All
	// members do that at the same time, maybe on few processors.
	actFirst = 10 * time.Millisecond
	// goodbyeTimeout bounds how long Close waits for each peer's queue.
	goodbyeTimeout   = 200 * time.Millisecond
	callBackInterval = 5 * time.Second
)

// Outgoing is a frame to be sent. OnFailure, if it isn't nil, is called when a frame that was queued couldn't be sent.
type Outgoing struct {
	Frame     []byte
	OnFailure func()
	// MayWait: if other goroutines are ready to run, they run first, and the frames that
	// they send for this peer are written together with this one.
	MayWait bool
}

// Sender is the process at the other end of a connection.
type Sender struct {
	Name string
	// Identity is that of its state directory, as it says.
	Identity election.Identity
}

// Events receives what happens on the connections. Its methods are called by the
// goroutines of connections. They must not block.
type Events interface {
	// ReceiveMessage handles a message. The sender is authenticated, and its
	// certificate names it as a member of the message's group.
	ReceiveMessage(from Sender, message *wire.Message)
	// PeerEnded reports that this incarnation of the peer has ended.
	PeerEnded(peer string, life uint32)
	// PeerRefused reports that the peer closed the connection, and that the address at which it listens as it said
	// refuses a new one. That isn't verified, so the process has probably ended, but need not have.
	PeerRefused(peer string)
}

// Config configures a Transport.
type Config struct {
	// Self is the name of this agent. Agents connect only within one domain.
	Self, Domain string
	// Life is the incarnation of this process. It must not be 0.
	Life     uint32
	Listener net.Listener
	// Certificates is nil for plain TCP.
	Certificates *identity.Files
	// Authorize returns an error if this agent must not connect with a peer whose certificate has these member names, by
	// group. If it is nil, every certificate of the domain is sufficient.
	Authorize func(peer string, members map[string]string) error
	// Identity is that of the state directory of this process.
	Identity election.Identity
	Events   Events
	// Rate, if it isn't nil, limits the frames of all peers together. Its burst must be at least 256: a long frame counts
	// as several.
	Rate *rate.Limiter
	// OnChange, if it isn't nil, is called when a connection is established or
	// closed, and when Problems changes. It must not block.
	OnChange func()
	Log      *slog.Logger

	// HandshakeTimeout bounds TLS and the exchange of Hellos. FrameTimeout bounds
	// the rest of a frame that has begun. The default of both is 2 s.
	HandshakeTimeout, FrameTimeout time.Duration
	// UnauthorizedGrace is the age from which a connection is closed at the latest when its peer sends a message for a
	// group that its certificate doesn't name. The peer may have renewed its certificate in the meantime, and shows it
	// when it connects again. The default is 1 min; at first, it is shorter: see renewals.
	UnauthorizedGrace time.Duration
}

// Transport is the set of an agent's connections.
type Transport struct {
	Config

	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	problems problems

	names    names
	uids     knownUIDs
	renewals renewals
	turns    turns

	mu    sync.RWMutex
	peers map[string]*peer

	// accepting is Listener with limits.
	accepting *connlimit.Listener
	// closing is set when no more connections should be established.
	closing atomic.Bool
}

// New starts to accept connections. Peers are dialed from SetPeers on.
func New(config Config) *Transport {
	t := &Transport{
		Config: config, peers: map[string]*peer{}, turns: make(turns, handshakesAtOnce),
		accepting: connlimit.New(config.Listener, limits),
		names:     names{byHost: map[string]*lookup{}},
	}
	t.HandshakeTimeout = cmp.Or(config.HandshakeTimeout, defaultHandshakeTimeout)
	t.UnauthorizedGrace = cmp.Or(config.UnauthorizedGrace, defaultUnauthorizedGrace)
	t.renewals.longest = t.UnauthorizedGrace
	t.FrameTimeout = cmp.Or(config.FrameTimeout, defaultFrameTimeout)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if front, ok := t.Listener.(*Front); ok {
		front.add(t)
	} else {
		t.tasks.Go(t.accept)
	}
	return t
}

// SetPeers replaces the set of peers, with their addresses. An empty address means that none is known, or that the
// previous one remains. Connections with other agents are closed.
func (t *Transport) SetPeers(addresses map[string]string) {
	defer t.notifyChange() // After the lock is released.
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, p := range t.peers {
		if _, still := addresses[name]; !still {
			p.stop()
			t.problems.clear(name)
			t.renewals.forget(name)
			delete(t.peers, name)
			for _, other := range t.peers {
				other.dropHints(name)
			}
		}
	}
	for name, address := range addresses {
		if name == t.Self {
			continue
		}
		if p := t.peers[name]; p != nil {
			p.setAddress(address)
			continue
		}
		p := newPeer(t, name, address)
		t.peers[name] = p
		t.tasks.Go(p.run)
	}
}

func (t *Transport) peer(name string) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peers[name]
}

// Send queues a frame for a peer, without blocking. If the peer can't be reached,
// it returns false and doesn't call OnFailure.
func (t *Transport) Send(to string, out Outgoing) bool {
	p := t.peer(to)
	return p != nil && p.send(out)
}

func (t *Transport) reportEnded(last *conn) {
	t.Events.PeerEnded(last.name, last.life)
	select { // The groups act before this goroutine goes on.
	case <-last.done:
		runtime.Gosched()
	case <-time.After(actFirst):
	}
	t.clearProblem(last.name)
	t.Log.Info("peer process ended", "peer", last.name, "planned", last.goodbyeReceived.Load())
}

// reportUnauthorized reports that messages are dropped because the peer's
// certificate doesn't name their group. It logs this once for all groups.
func (t *Transport) reportUnauthorized(peer, group string) {
	text := fmt.Sprintf("ignoring messages of %s in group %s: its certificate doesn't name this group", peer, group)
	if t.addProblem(peer, problem{kind: "unauthorized", text: text}) {
		t.Log.Error("ignoring messages: certificate doesn't name the group", "peer", peer, "group", group)
	}
}

// Connected reports whether there is a connection with the peer.
func (t *Transport) Connected(name string) bool {
	p := t.peer(name)
	return p != nil && p.current() != nil
}

// IP returns the address of the peer's host. It is invalid if only a name is known, and there is no connection.
func (t *Transport) IP(name string) netip.Addr {
	p := t.peer(name)
	if p == nil {
		return netip.Addr{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	address, err := netip.ParseAddrPort(p.ownTarget()) // A name isn't one.
	if c := p.conn; c != nil && (err != nil || c.listenAddressVerified.Load()) {
		address, _ = netip.ParseAddrPort(c.listenAddress)
	}
	return address.Addr()
}

// RoundTrip returns an upper estimate of the round-trip time to the peer, as
// measured by the kernel. It returns 0 without a connection.
func (t *Transport) RoundTrip(name string) time.Duration {
	if p := t.peer(name); p != nil {
		if c := p.current(); c != nil {
			return roundTrip(c.raw)
		}
	}
	return 0
}

// Close sends a Goodbye to all peers, and returns when all connections are closed. It closes the listener first, so
// that a peer that received the Goodbye can't connect again.
func (t *Transport) Close() {
	t.closing.Store(true)
	if front, ok := t.Listener.(*Front); ok {
		front.remove(t)
	}
	_ = t.Listener.Close() // Nothing depends on the error any more.
	t.accepting.CloseUnpinned()
	t.mu.RLock()
	var leaving sync.WaitGroup
	for _, p := range t.peers {
		leaving.Go(p.sayGoodbye)
	}
	t.mu.RUnlock()
	leaving.Wait()
	t.cancel()
	t.SetPeers(nil)
	t.tasks.Wait()
}
