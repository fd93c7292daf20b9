package transport

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

// pendingMax bounds what waits for a connection that is being made.
const pendingMax = 256

// peer is another agent: the connection with it, if there is one, and whoever
// cares for having one.
type peer struct {
	mesh *Transport
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
	// hint is where the peer says that it is, until that turns out to be wrong. It
	// knows better than a list or a name server that may be behind.
	hint string
	conn *conn
	// trying: a connection may be there soon, so parcels wait in pending.
	trying  bool
	pending []Outgoing
}

func newPeer(m *Transport, name, address string) *peer {
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
	if p.address == address || address == "" {
		return
	}
	p.address, p.hint = address, ""
	if p.dials && p.conn != nil {
		p.conn.close()
	}
	p.hurry()
}

// isAt takes the word of a peer that should have been dialled, and calls itself:
// another life of it, or one that wasn't found.
func (p *peer) isAt(place string, life uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil && p.conn.life == life {
		return // It only finds out whether this agent can be called back.
	}
	p.hint = place
	if p.conn != nil {
		p.conn.close()
	}
	p.hurry()
}

func (p *peer) hurry() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// target is where to call the peer.
func (p *peer) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.hint, p.address)
}

// isNotAt takes back a hint that was wrong, or isn't right any more.
func (p *peer) isNotAt(place string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hint == place {
		p.hint = ""
	}
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

func (p *peer) send(parcel Outgoing) bool {
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
		next, result := p.whoever(ctx, attempt)
		cancel()
		if next != nil || p.ended() {
			return next
		}
		if result == refused {
			p.mesh.solve(p.name) // What was wrong with it has ended with it.
		}
		if result == refused && p.last != nil {
			p.mesh.gone(p.last)
			p.last = nil
		}
		if next := p.rest(time.After(p.wait(result, attempt))); next != nil || p.ended() {
			return next
		}
	}
}

// wait is how long to wait after an attempt.
func (p *peer) wait(result result, attempt int) time.Duration {
	if result == brokeOff && p.last != nil && attempt < dyingMax {
		return min(time.Duration(attempt)*dying, dyingLongest)
	}
	p.giveUp()
	switch {
	case p.last != nil:
	case p.target() == "":
		return time.Hour // There is nowhere to try.
	case !p.dials:
		return pause() * 10 << min(attempt, 5) // It will most likely be called.
	}
	return pause()
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

// outcome is what came of an attempt to reach a peer.
type outcome struct {
	conn   *conn
	result result
}

// whoever tries to reach the peer, unless it calls first.
func (p *peer) whoever(ctx context.Context, attempt int) (*conn, result) {
	try := p.way(attempt)
	if try == nil {
		return nil, unanswered
	}
	tried := make(chan outcome)
	p.mesh.tasks.Go(func() {
		o := try(ctx)
		select {
		case tried <- o:
		case <-ctx.Done():
			if o.conn != nil {
				o.conn.close()
			}
		}
	})
	select {
	case o := <-tried:
		return o.conn, o.result
	case c := <-p.called:
		return c, unanswered
	case <-p.ctx.Done():
		return nil, unanswered
	}
}

// way is how to try. The side that waits to be called only finds out whether
// anybody listens where the peer was, or if it isn't called, says where it is.
func (p *peer) way(attempt int) func(context.Context) outcome {
	place := ""
	if p.last != nil {
		place = p.last.place
	}
	switch {
	case p.target() == "" && place == "":
		return nil // It may call, and say so.
	case p.dials:
		return func(ctx context.Context) outcome { return p.dial(ctx, place) }
	case place != "":
		return func(ctx context.Context) outcome { return outcome{nil, resultOf(p.mesh.knock(ctx, place), place)} }
	case attempt > 0:
		return p.announce
	}
	return nil
}

func (p *peer) dial(ctx context.Context, place string) outcome {
	address := p.target()
	c, err := p.mesh.call(ctx, address, p.name)
	result := resultOf(err, place)
	if err != nil && result != brokeOff {
		p.isNotAt(address)
	}
	return outcome{c, result}
}

func (p *peer) announce(ctx context.Context) outcome {
	if c, err := p.mesh.call(ctx, p.target(), p.name); err == nil {
		c.close() // It knows now, and calls back.
	}
	return outcome{}
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
	if p.mesh.closing.Load() || c.dialled != "" && c.dialled != p.address && c.dialled != p.hint {
		c.close() // The peer has moved while it was called.
	}
	p.pending = slices.DeleteFunc(p.pending, c.send)
	rest := p.pending
	p.pending = nil
	p.mu.Unlock()
	giveBack(rest)
	p.mesh.changed()

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
	p.mesh.changed()
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
	if c == nil || !c.finish(Outgoing{Frame: wire.Append(nil, wire.Frame{Goodbye: true})}) {
		return
	}
	select {
	case <-c.done:
	case <-time.After(farewell):
	}
}
