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
	// last is the connection before the present one, while its process isn't known
	// to have ended, and would be found if it lived. It belongs to keep.
	last *conn

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
	brief := 0 // connections in a row that ended as soon as they were made
	for !p.ended() {
		if brief > 1 { // The first time, it is better to look at once whether the process has ended.
			p.giveUp()
			if next := p.rest(time.After(min(pause(), time.Millisecond<<min(brief, 10)))); next != nil {
				brief = p.serveAll(next, brief)
				continue
			}
		}
		brief = p.serveAll(p.meet(), brief)
	}
}

// serveAll serves a connection, and those that replace it.
func (p *peer) serveAll(next *conn, brief int) int {
	for next != nil {
		switch {
		case p.last == nil:
		case next.tellsOf(p.last):
			p.mesh.gone(p.last)
		case next.life == p.last.life && next.place == p.last.place:
			next.placed.Store(true) // It was called back already.
		}
		served := next
		began := time.Now()
		next = p.serve(served)
		brief++
		if time.Since(began) > redial {
			brief = 0
		}
		p.last = nil
		if served.placed.Load() {
			p.last = served
		}
	}
	return brief
}

// ended reports whether no more connections should be made.
func (p *peer) ended() bool { return p.ctx.Err() != nil || p.mesh.closing.Load() }

// pause is how long to wait after an attempt that failed.
func pause() time.Duration { return redial/2 + rand.N(redial) }

// meet returns the next connection, or nil if there should be none any more. If
// the process at the other end of the last one has ended, it says so.
func (p *peer) meet() *conn {
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancel(p.ctx)
		next, result := p.whoever(ctx)
		cancel()
		if next != nil || p.ended() {
			return next
		}
		if result == refused {
			p.mesh.problems.solve(p.name) // What was wrong with it has ended with it.
		}
		if result == refused && p.last != nil {
			p.mesh.gone(p.last)
			p.last = nil
		}
		wait := pause()
		if result == brokeOff && p.last != nil && attempt < dyingMax {
			wait = min(time.Duration(attempt)*dying, dyingLongest)
		} else {
			p.giveUp()
		}
		var again <-chan time.Time
		if p.dials || p.last != nil {
			again = time.After(wait)
		}
		if next := p.rest(again); next != nil || p.ended() {
			return next
		}
	}
}

// rest waits before the next attempt, unless it isn't necessary any more.
func (p *peer) rest(again <-chan time.Time) *conn {
	select {
	case <-again:
	case <-p.moved:
	case next := <-p.called:
		return next
	case <-p.ctx.Done():
	}
	return nil
}

// whoever tries to reach the peer, unless it calls first. The side that waits to
// be called only finds out whether anybody listens.
func (p *peer) whoever(ctx context.Context) (*conn, result) {
	type outcome struct {
		conn   *conn
		result result
	}
	tried := make(chan outcome)
	place := ""
	if p.last != nil {
		place = p.last.place
	}
	switch {
	case p.dials:
		p.mesh.tasks.Go(func() {
			c, err := p.mesh.call(ctx, p.target(), p.name)
			select {
			case tried <- outcome{c, resultOf(err, place)}:
			case <-ctx.Done():
				if c != nil {
					c.close()
				}
			}
		})
	case place != "":
		p.mesh.tasks.Go(func() {
			select {
			case tried <- outcome{nil, resultOf(p.mesh.knock(ctx, place), place)}:
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
		return c, unanswered
	case <-p.ctx.Done():
		return nil, unanswered
	}
}

// callBack finds out whether the process that made a connection listens where it
// seems to.
func (p *peer) callBack(ctx context.Context, c *conn) {
	for {
		if same, err := p.mesh.call(ctx, c.place, p.name); err == nil {
			same.close()
			if same.life == c.life {
				c.placed.Store(true)
				p.mesh.Log.Debug("called a peer back", "peer", p.name, "address", c.place)
			}
			return
		}
		select {
		case <-time.After(callBackAgain):
		case <-ctx.Done():
			return
		}
	}
}

// serve sends and receives until the connection ends, or the peer has made
// another one: it knows best that this one is of no use.
func (p *peer) serve(c *conn) (next *conn) {
	p.mu.Lock()
	p.conn, p.trying = c, false
	if p.mesh.closing.Load() || c.dialled != "" && c.dialled != p.address {
		c.close() // The peer has moved while it was called.
	}
	p.pending = slices.DeleteFunc(p.pending, c.send)
	rest := p.pending
	p.pending = nil
	p.mu.Unlock()
	giveBack(rest)

	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if !c.placed.Load() {
		p.mesh.tasks.Go(func() { p.callBack(ctx, c) })
	}
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
