package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// While nobody publishes member lists, members learn the new addresses of restarted ones from each other. A member that
// is connected with a peer at another address than that of its list reports this to all others. What others report is
// only a hint: see peer.nextTarget. A member passes on only addresses that it uses itself.

const hintsMax = 4

// hint is an address of a peer that another member has reported. Each reporter's last one is stored.
type hint struct{ reporter, address string }

// receiveHint stores the address of another peer that a member has reported.
func (t *Transport) receiveHint(reporter string, reported *wire.PeerAddress) {
	if p := t.peer(reported.Name); p != nil && reported.Name != reporter && t.mayDial(reported.Address) {
		p.setHint(hint{reporter, reported.Address})
	}
}

// mayDial reports whether an address that another member has reported is one of a peer. An agent that doesn't listen on
// a loopback address doesn't dial one: only its own host uses it.
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
	if p.announced == "" &&
		slices.ContainsFunc(p.hints, func(h hint) bool { return h.address == target }) && target != p.address {
		p.announced = target
	}
}

// dropHints discards what a member has reported that is no peer any more.
func (p *peer) dropHints(reporter string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints = slices.DeleteFunc(p.hints, func(h hint) bool { return h.reporter == reporter })
}

const (
	// lookupTimeout bounds the lookup of a name. It is long enough for a second name server after one that doesn't answer.
	lookupTimeout = 15 * time.Second
	// lookupWait is how long an attempt waits for a lookup, and lookupWaitKnown if earlier addresses of the name are
	// known. The lookup goes on meanwhile, for the next attempt.
	lookupWait      = dialTimeout
	lookupWaitKnown = 100 * time.Millisecond
	lookupInterval  = time.Second
)

// errNoAddressYet is the error of an attempt while the lookup of its name goes on.
var errNoAddressYet = errors.New("the name servers haven't answered yet")

// names resolves the names of peers. Lookups are independent of attempts to connect, which are shorter: a name server
// that doesn't answer must not prevent that the next one is asked. The last addresses of a name remain known when a
// lookup fails. The names are those of member lists, so there are few.
type names struct {
	mu     sync.Mutex
	byHost map[string]*lookup
}

type lookup struct {
	done  chan struct{}
	ended time.Time // zero while it is running
	known []netip.Addr
	err   error
}

func (t *Transport) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	l, done, wait := t.lookUp(host) //nolint:contextcheck // a lookup outlives the attempt that began it
	select {
	case <-done:
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	switch {
	case len(l.known) > 0:
		return l.known, nil
	case l.err != nil:
		return nil, fmt.Errorf("cannot resolve %s: %w", host, l.err)
	}
	return nil, fmt.Errorf("cannot resolve %s: %w", host, errNoAddressYet)
}

// lookUp begins a lookup, unless one is running or has just ended. It returns how long to wait for its end.
func (t *Transport) lookUp(host string) (*lookup, <-chan struct{}, time.Duration) {
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	l := t.names.byHost[host]
	if l == nil || !l.ended.IsZero() && time.Since(l.ended) >= lookupInterval {
		if l == nil {
			l = &lookup{}
			t.names.byHost[host] = l
		}
		l.done, l.ended = make(chan struct{}), time.Time{}
		t.tasks.Go(func() { t.ask(host, l) })
	}
	if len(l.known) > 0 {
		return l, l.done, lookupWaitKnown
	}
	return l, l.done, lookupWait
}

func (t *Transport) ask(host string, l *lookup) {
	ctx, cancel := context.WithTimeout(t.ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	if l.err = err; err == nil {
		l.known = found
	}
	l.ended = time.Now()
	close(l.done)
}

// reportLookup reports that the name of a peer can't be resolved. That it doesn't exist is no problem: the peer's pod
// may be created later.
func (t *Transport) reportLookup(peer string, err error) {
	var failed *net.DNSError
	if errors.As(err, &failed) && !failed.IsNotFound &&
		t.addProblem(peer, problem{kind: "name", text: fmt.Sprintf("peer %s: %s", peer, err)}) {
		t.Log.Error("cannot connect to peer", "peer", peer, "error", err)
	}
}
