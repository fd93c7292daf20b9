package mesh

import (
	"errors"
	"net"
	"sync"
	"time"
)

// How many may be at the door at once, before they have proved who they are.
const (
	guestsMax        = 256
	guestsPerHostMax = 32
)

// guests are connections whose handshake isn't over.
type guests struct {
	mu      sync.Mutex
	present map[net.Conn]string
	perHost map[string]int
	closed  bool
}

func newGuests() *guests { return &guests{present: map[net.Conn]string{}, perHost: map[string]int{}} }

// enter reports whether there is room for one more.
func (g *guests) enter(c net.Conn) bool {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || len(g.present) >= guestsMax || g.perHost[host] >= guestsPerHostMax {
		return false
	}
	g.present[c] = host
	g.perHost[host]++
	return true
}

func (g *guests) leave(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	host := g.present[c]
	delete(g.present, c)
	if g.perHost[host]--; g.perHost[host] <= 0 {
		delete(g.perHost, host)
	}
}

// dismiss sends them all away, and lets nobody in any more.
func (g *guests) dismiss() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.present {
		_ = c.Close() // It was never a connection of ours.
	}
}

func (m *Mesh) accept() {
	for {
		raw, err := m.Listener.Accept()
		switch {
		case err == nil:
			m.tasks.Go(func() { m.receive(raw) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // Too many open files, most likely.
			m.Log.Warn("can't accept a connection", "error", err)
			select {
			case <-time.After(redial):
			case <-m.ctx.Done():
				return
			}
		}
	}
}

// receive finds out who has called.
func (m *Mesh) receive(raw net.Conn) {
	if !m.guests.enter(raw) {
		_ = raw.Close() // Too many callers; the peers among them will call again.
		return
	}
	c, err := m.greet(m.ctx, raw, "")
	m.guests.leave(raw)
	if err != nil {
		_ = raw.Close() // The reason to close it is what counts.
		m.Log.Debug("turned a caller away", "address", raw.RemoteAddr(), "error", err)
		return
	}
	p := m.peer(c.name)
	if p == nil || p.dials {
		m.Log.Debug("turned a caller away", "peer", c.name, "known", p != nil)
		c.close()
		return
	}
	p.welcome(c)
}
