package transport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// unsentMax bounds the frames that wait while a connection is being established.
const unsentMax = 256

// peer is another agent, and the connection with it, if there is one. The goroutine of run obtains the connection.
type peer struct {
	transport *Transport
	name      string
	dials     bool
	ctx       context.Context
	stop      context.CancelFunc
	// accepted passes on connections that the peer has established.
	accepted chan *conn
	// retryNow ends the wait before the next attempt.
	retryNow chan struct{}
	// lastConn is the connection before the current one, if its listening address is
	// verified and its process isn't known to have ended. Only run uses it.
	lastConn *conn

	mu      sync.Mutex
	address string
	// announced is the address that the peer announced by dialing; empty once it turns out to be wrong. It takes
	// precedence over address, because member lists and name servers may be outdated.
	announced string
	// hints are further addresses, see setHint. turn counts the attempts at addresses.
	hints []hint
	turn  int
	conn  *conn
	// connecting is set while a connection may be established soon. Meanwhile, frames wait in unsent.
	connecting bool
	unsent     []Outgoing
	// absent is since when there is no connection, failure is why the last attempt since then failed, and named is set
	// once the log has that.
	absent  time.Time
	failure error
	named   bool
}

func newPeer(t *Transport, name, address string) *peer {
	p := &peer{
		transport: t, name: name, address: address, dials: t.Self < name,
		accepted: make(chan *conn), retryNow: make(chan struct{}, 1), absent: time.Now(),
	}
	p.connecting = p.dials
	p.ctx, p.stop = context.WithCancel(t.ctx)
	return p
}

// setAddress changes the peer's address. The side that dials closes a connection with the previous address.
func (p *peer) setAddress(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == address || address == "" {
		return
	}
	p.address, p.announced, p.hints, p.turn = address, "", nil, 0 // What others reported may be older.
	if p.dials && p.conn != nil && p.conn.listenAddress != address {
		p.conn.close()
	}
	signal(p.retryNow)
}

// setAnnounced handles a connection from a peer that this side should dial. Either
// it is another incarnation, or the peer wasn't found at its address.
func (p *peer) setAnnounced(address string, life uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil && p.conn.life == life {
		return // The peer only verifies the address of this agent.
	}
	p.announced, p.turn = address, 0 // Hints may be older.
	if p.conn != nil {
		p.conn.close()
	}
	signal(p.retryNow)
}

// target returns the peer's own address. It is preferred to hints.
func (p *peer) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownTarget()
}

func (p *peer) ownTarget() string { return cmp.Or(p.announced, p.address) }

func (p *peer) hasTarget() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownTarget() != "" || len(p.hints) > 0
}

// clearAnnounced discards an announced address at which the peer can't be reached.
func (p *peer) clearAnnounced(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.announced == address {
		p.announced = ""
	}
}

func (p *peer) current() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

func (p *peer) send(out Outgoing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.conn != nil:
		return p.conn.send(out)
	case p.connecting && len(p.unsent) < unsentMax:
		p.unsent = append(p.unsent, out)
		return true
	}
	return false
}

// offer passes on a connection that the peer has established.
func (p *peer) offer(c *conn) {
	select {
	case p.accepted <- c:
	case <-p.ctx.Done():
		c.close()
	}
}

// serve sends and receives until the connection is closed, or replaced by a newer
// one from the peer: the peer then considers this one lost.
func (p *peer) serve(c *conn) (next *conn) {
	p.transport.clearProblem(p.name)
	p.mu.Lock()
	p.conn, p.connecting = c, false
	if p.transport.closing.Load() || c.dialedTarget != "" && c.dialedTarget != p.address && c.dialedTarget != p.announced {
		c.close() // The peer's address changed while it was being dialed.
	}
	p.closeForeign()
	p.unsent = slices.DeleteFunc(p.unsent, c.send)
	rest := p.unsent
	p.unsent = nil
	named := p.named
	p.failure, p.named = nil, false
	p.mu.Unlock()
	fail(rest)
	if named {
		p.transport.Log.Info("connected to peer again", "peer", p.name)
	}
	p.transport.notifyChange()
	p.transport.reportAddresses(c)
	p.transport.spreadAddress(p)

	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if !c.listenAddressVerified.Load() {
		p.transport.tasks.Go(func() { p.callBack(ctx, c) })
	}
	closed := make(chan struct{})
	p.transport.tasks.Go(func() {
		c.run()
		close(closed)
	})
	select {
	case <-closed:
	case next = <-p.accepted:
		c.close()
	case <-p.ctx.Done():
		c.close()
	}
	<-closed

	p.mu.Lock()
	p.conn, p.connecting, p.absent = nil, true, time.Now()
	p.mu.Unlock()
	if next == nil && !c.listenAddressVerified.Load() && !c.closedHere.Load() {
		p.transport.tasks.Go(func() { p.checkUnverified(c) })
	}
	p.transport.notifyChange()
	return next
}

func (p *peer) failUnsent() {
	p.mu.Lock()
	p.connecting = false
	unsent := p.unsent
	p.unsent = nil
	p.mu.Unlock()
	fail(unsent)
}

// sayGoodbye sends a Goodbye, and waits until it is written.
func (p *peer) sayGoodbye() {
	c := p.current()
	if c == nil || !c.sendLast(Outgoing{Frame: wire.Append(nil, wire.Frame{Goodbye: true})}) {
		return
	}
	select {
	case <-c.done:
	case <-time.After(goodbyeTimeout):
	}
}

// knownUIDs are the UIDs of the peers' pods. A pod may be replaced by another one of the same name. The certificate of
// the former pod is valid until it expires, so the UID in it decides.
type knownUIDs struct {
	mu     sync.Mutex
	byPeer map[string][]string
}

// check returns an error if a certificate isn't for the peer's pod. Members in a configuration file have no pods. The
// certificate of a witness doesn't count without.
func (k *knownUIDs) check(peer, uid string, witness bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.byPeer[peer]
	if len(known) == 0 && !witness || slices.Contains(known, uid) {
		return nil
	}
	return fmt.Errorf("certificate of %q must be for its present pod, with UID %s, got %s", peer,
		cmp.Or(strings.Join(known, " or "), "in a list"), cmp.Or(uid, "none"))
}

// SetUIDs replaces the known UIDs of the peers' pods. Connections with other pods are closed.
func (t *Transport) SetUIDs(byPeer map[string][]string) {
	t.uids.mu.Lock()
	t.uids.byPeer = byPeer
	t.uids.mu.Unlock()
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.peers {
		p.mu.Lock()
		p.closeForeign()
		p.mu.Unlock()
	}
}

// closeForeign closes the connection if it is with another pod of the peer's name. The caller holds the lock.
func (p *peer) closeForeign() {
	if p.conn == nil {
		return
	}
	if err := p.transport.uids.check(p.name, p.conn.uid, p.conn.witness); err != nil {
		p.transport.Log.Info("closed connection", "peer", p.name, "reason", err)
		p.conn.close()
	}
}
