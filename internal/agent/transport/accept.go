package transport

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// How many may be at the door at once, before they have proved who they are.
const (
	guestsMax        = 256
	guestsPerHostMax = 32
)

// guest is a connection whose handshake isn't over.
type guest struct {
	raw  net.Conn
	host string
}

// guests are all of them, in the order in which they came.
type guests struct {
	mu      sync.Mutex
	present []guest
	closed  bool
}

// enter lets one more in. Where there is no room for it, the one that came first
// has to leave: a peer takes a few milliseconds to prove who it is, so whoever is
// still there then says nothing, most likely.
func (g *guests) enter(raw net.Conn) bool {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	first, fromThere := -1, 0
	for i := range g.present {
		if g.present[i].host == host {
			fromThere++
			if first < 0 {
				first = i
			}
		}
	}
	switch {
	case fromThere >= guestsPerHostMax:
		g.dismiss(first)
	case len(g.present) >= guestsMax:
		g.dismiss(0)
	}
	g.present = append(g.present, guest{raw, host})
	return true
}

func (g *guests) leave(raw net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.present = slices.DeleteFunc(g.present, func(one guest) bool { return one.raw == raw })
}

// dismiss sends one away.
func (g *guests) dismiss(i int) {
	_ = g.present[i].raw.Close() // It was never a connection of ours.
	g.present = slices.Delete(g.present, i, i+1)
}

// close sends them all away, and lets nobody in any more.
func (g *guests) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for len(g.present) > 0 {
		g.dismiss(0)
	}
}

func (m *Transport) accept() {
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
func (m *Transport) receive(raw net.Conn) {
	if !m.guests.enter(raw) {
		_ = raw.Close() // This agent is about to end.
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
		if p != nil {
			p.isAt(c.place, c.life)
		}
		return
	}
	p.welcome(c)
}
