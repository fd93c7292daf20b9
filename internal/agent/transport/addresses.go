package transport

import (
	"net"
	"net/netip"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// While nobody publishes member lists, members learn the new addresses of restarted
// ones from each other. A member that is connected with a peer at another address than
// that of its list reports this to all others. What others report is only a hint: see
// peer.nextTarget. A member passes on only addresses that it uses itself.

const hintsMax = 4

// hint is an address of a peer that another member has reported. Each reporter's last one is
// stored.
type hint struct{ reporter, address string }

// receiveHint stores the address of another peer that a member has reported.
func (t *Transport) receiveHint(reporter string, reported *wire.PeerAddress) {
	if p := t.peer(reported.Name); p != nil && reported.Name != reporter && t.mayDial(reported.Address) {
		p.setHint(hint{reporter, reported.Address})
	}
}

// mayDial reports whether an address that another member has reported is one of a peer. An
// agent that doesn't listen on a loopback address doesn't dial one: only its own host
// uses it.
func (t *Transport) mayDial(address string) bool {
	target, err := netip.ParseAddrPort(address)
	if err != nil || target.Port() == 0 || !target.Addr().IsGlobalUnicast() && !target.Addr().IsLoopback() {
		return false
	}
	own, ok := t.Listener.Addr().(*net.TCPAddr)
	return !target.Addr().IsLoopback() || ok && own.IP.IsLoopback()
}

func (t *Transport) reportAddresses(to *conn) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		if other := p.moved(); other != nil {
			to.reportAddress(other)
		}
	}
}

func (t *Transport) spreadAddress(of *peer) {
	moved := of.moved()
	if moved == nil {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		if to := p.current(); to != nil {
			to.reportAddress(moved)
		}
	}
}

// reportAddress reports the address of another peer to this one, if both are members of a group.
func (c *conn) reportAddress(other *conn) {
	if c.name == other.name || c.revision < 1 || !c.sharesGroup(other) {
		return
	}
	reported := &wire.PeerAddress{Name: other.name, Address: other.listenAddress}
	c.send(Outgoing{Frame: wire.Append(nil, wire.Frame{PeerAddress: reported})}) // If it is lost, so is the connection.
}

func (c *conn) sharesGroup(other *conn) bool {
	if c.members == nil {
		return true
	}
	for group, member := range c.members {
		if member == c.name && other.members[group] == other.name {
			return true
		}
	}
	return false
}

// moved returns the connection with the peer if its process listens at another IP address
// than that of the member list. If the list has a name, a name server knows the address.
func (p *peer) moved() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil || !p.conn.listenAddressVerified.Load() || p.conn.listenAddress == p.address {
		return nil
	}
	if _, err := netip.ParseAddrPort(p.address); err != nil && p.address != "" {
		return nil
	}
	return p.conn
}

func (p *peer) current() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

// setHint stores what a member has reported. It causes no attempt: otherwise a member could
// make this one dial without a pause. The exception is the first address of all.
func (p *peer) setHint(reported hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.address == "" && p.announced == "" && len(p.hints) == 0
	for i := range p.hints {
		if p.hints[i].reporter == reported.reporter {
			p.hints[i] = reported
			return
		}
	}
	if len(p.hints) == hintsMax {
		p.hints = p.hints[1:]
	}
	p.hints = append(p.hints, reported)
	if first {
		signal(p.retryNow)
	}
}

// nextTarget returns the address for the next attempt. Every second one is the peer's own
// address, so that false hints don't keep this agent from it. The others are hints.
func (p *peer) nextTarget() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.ownTarget()
	turn := p.turn
	p.turn++
	if len(p.hints) == 0 || own != "" && turn%2 == 0 {
		return own
	}
	return p.hints[turn/2%len(p.hints)].address
}

// useHint makes a hint the peer's address: the peer has answered there.
func (p *peer) useHint(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.announced == "" && slices.ContainsFunc(p.hints, func(h hint) bool { return h.address == target }) && target != p.address {
		p.announced = target
	}
}

// dropHints discards what a member has reported that is no peer any more.
func (p *peer) dropHints(reporter string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints = slices.DeleteFunc(p.hints, func(h hint) bool { return h.reporter == reporter })
}
