package transport

import (
	"net"
	"net/netip"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// While nobody publishes member lists, members learn the new addresses of restarted
// ones from each other. A member that is connected with a peer at another address than
// that of its list tells this to all others. What others tell is only a hint: see
// peer.nextTarget. A member passes on only addresses that it uses itself.

// hintsMax bounds the hints about one peer.
const hintsMax = 4

// hint is an address of a peer that another member has told. Each member's last one is
// stored.
type hint struct{ teller, address string }

// hearAddress stores the address of another peer that a member has told.
func (t *Transport) hearAddress(teller string, told *wire.PeerAddress) {
	if p := t.peer(told.Name); p != nil && told.Name != teller && t.mayDial(told.Address) {
		p.setHint(hint{teller, told.Address})
	}
}

// mayDial reports whether an address that another member has told is one of a peer. An
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

// tellAddresses tells a peer the addresses of all others.
func (t *Transport) tellAddresses(to *conn) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		if other := p.moved(); other != nil {
			to.tellAddress(other)
		}
	}
}

// spreadAddress tells the address of a peer to all others.
func (t *Transport) spreadAddress(of *peer) {
	moved := of.moved()
	if moved == nil {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		if to := p.current(); to != nil {
			to.tellAddress(moved)
		}
	}
}

// tellAddress tells this peer the address of another one, if both are members of a group.
func (c *conn) tellAddress(other *conn) {
	if c.name == other.name || c.revision < 1 || !c.sharesGroup(other) {
		return
	}
	told := &wire.PeerAddress{Name: other.name, Address: other.listenAddress}
	c.send(Outgoing{Frame: wire.Append(nil, wire.Frame{PeerAddress: told})}) // If it is lost, so is the connection.
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

// setHint stores what a member has told. It causes no attempt: otherwise a member could
// make this one dial without a pause. The exception is the first address of all.
func (p *peer) setHint(told hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.address == "" && p.announced == "" && len(p.hints) == 0
	for i := range p.hints {
		if p.hints[i].teller == told.teller {
			p.hints[i] = told
			return
		}
	}
	if len(p.hints) == hintsMax {
		p.hints = p.hints[1:]
	}
	p.hints = append(p.hints, told)
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

// dropHints discards what a member has told that is no peer any more.
func (p *peer) dropHints(teller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints = slices.DeleteFunc(p.hints, func(h hint) bool { return h.teller == teller })
}
