package mesh

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/wire"
)

// pendingMax bounds what waits for a connection that is being made.
const pendingMax = 256

// peer is another agent: the connection with it, if there is one, and whoever
// cares for having one.
type peer struct {
	mesh *Mesh
	name string
	// dials: this side makes the connection, the other one waits.
	dials  bool
	ctx    context.Context
	stop   context.CancelFunc
	called chan *conn // by a peer that dials
	moved  chan struct{}

	mu      sync.Mutex
	address string
	conn    *conn
	// trying: a connection may be there soon, so parcels wait in pending.
	trying  bool
	pending []Parcel
}

func newPeer(m *Mesh, name, address string) *peer {
	p := &peer{
		mesh: m, name: name, address: address, dials: m.Self < name,
		called: make(chan *conn), moved: make(chan struct{}, 1),
	}
	p.trying = p.dials
	p.ctx, p.stop = context.WithCancel(m.ctx)
	return p
}

// moveTo changes the peer's address. A connection with the old one is given up
// by the side that dials.
func (p *peer) moveTo(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == address {
		return
	}
	p.address = address
	if p.dials && p.conn != nil {
		p.conn.close()
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

func (p *peer) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

func (p *peer) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil
}

func (p *peer) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return 0
	}
	return roundTrip(p.conn.raw)
}

func (p *peer) send(parcel Parcel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.conn != nil:
		return p.conn.send(parcel)
	case p.trying && len(p.pending) < pendingMax:
		p.pending = append(p.pending, parcel)
		return true
	}
	return false
}

// welcome takes over a connection that the peer has made.
func (p *peer) welcome(c *conn) {
	select {
	case p.called <- c:
	case <-p.ctx.Done():
		c.close()
	}
}

// keep cares for the connection as long as the peer is one.
func (p *peer) keep() {
	defer p.giveUp()
	var last *conn // while its process isn't known to have ended
	for p.ctx.Err() == nil {
		next := p.meet(last)
		for next != nil {
			if last != nil && last.life != next.life && last.place == next.place {
				p.mesh.gone(last)
			}
			last, next = next, p.serve(next)
		}
	}
}

// meet returns the next connection, or nil if the peer isn't one any more. If
// the process at the other end of the last one has ended, it says so.
func (p *peer) meet(last *conn) *conn {
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancel(p.ctx)
		next, result := p.whoever(ctx, last)
		cancel()
		if next != nil || p.ctx.Err() != nil {
			return next
		}
		if result == refused && last != nil {
			p.mesh.gone(last)
			last = nil
		}
		pause := redial/2 + rand.N(redial)
		if result == brokeOff && last != nil && attempt < dyingMax {
			pause = dying
		} else {
			p.giveUp()
		}
		var again <-chan time.Time
		if p.dials || last != nil {
			again = time.After(pause)
		}
		select {
		case <-again:
		case <-p.moved:
		case next := <-p.called:
			return next
		case <-p.ctx.Done():
			return nil
		}
	}
}

// whoever tries to reach the peer, unless it calls first. The side that waits to
// be called only finds out whether anybody listens.
func (p *peer) whoever(ctx context.Context, last *conn) (*conn, result) {
	type outcome struct {
		conn   *conn
		result result
	}
	tried := make(chan outcome)
	switch {
	case p.dials:
		p.mesh.tasks.Go(func() {
			c, result := p.mesh.call(ctx, p.target(), p.name)
			select {
			case tried <- outcome{c, result}:
			case <-ctx.Done():
				if c != nil {
					c.close()
				}
			}
		})
	case last != nil:
		p.mesh.tasks.Go(func() {
			select {
			case tried <- outcome{nil, p.mesh.knock(ctx, last.place)}:
			case <-ctx.Done():
			}
		})
	default:
		return nil, unanswered
	}
	select {
	case o := <-tried:
		return o.conn, o.result
	case c := <-p.called:
		return c, reached
	case <-p.ctx.Done():
		return nil, unanswered
	}
}

// serve sends and receives until the connection ends, or the peer has made
// another one: it knows best that this one is of no use.
func (p *peer) serve(c *conn) (next *conn) {
	p.mu.Lock()
	p.conn, p.trying = c, false
	p.pending = slices.DeleteFunc(p.pending, c.send)
	rest := p.pending
	p.pending = nil
	p.mu.Unlock()
	giveBack(rest)

	ended := make(chan struct{})
	p.mesh.tasks.Go(func() {
		c.run()
		close(ended)
	})
	select {
	case <-ended:
	case next = <-p.called:
		c.close()
	case <-p.ctx.Done():
		c.close()
	}
	<-ended

	p.mu.Lock()
	p.conn, p.trying = nil, true
	p.mu.Unlock()
	return next
}

// giveUp returns what waited for a connection: there is none for now.
func (p *peer) giveUp() {
	p.mu.Lock()
	p.trying = false
	pending := p.pending
	p.pending = nil
	p.mu.Unlock()
	giveBack(pending)
}

func (p *peer) bidFarewell() {
	p.mu.Lock()
	c := p.conn
	p.mu.Unlock()
	if c == nil || !c.finish(Parcel{Frame: wire.Append(nil, wire.Frame{Goodbye: true})}) {
		return
	}
	select {
	case <-c.done:
	case <-time.After(farewell):
	}
}
