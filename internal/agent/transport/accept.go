package transport

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// Limits for connections whose handshake isn't complete. The peer at their other
// end isn't authenticated yet.
const (
	pendingConnsMax        = 256
	pendingConnsPerHostMax = 32
)

// pendingConn is an incoming connection whose handshake isn't complete.
type pendingConn struct {
	raw  net.Conn
	host string
}

// pendingConns holds the pending connections, oldest first.
type pendingConns struct {
	mu     sync.Mutex
	conns  []pendingConn
	closed bool
}

// add registers a connection. At the limit it closes the oldest one: a peer
// completes the handshake within milliseconds, so the oldest one is most likely
// idle. It returns false after close.
func (p *pendingConns) add(raw net.Conn) bool {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	oldest, ofHost := -1, 0 // of this host
	for i := range p.conns {
		if p.conns[i].host == host {
			ofHost++
			if oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case ofHost >= pendingConnsPerHostMax:
		p.evict(oldest)
	case len(p.conns) >= pendingConnsMax:
		p.evict(0)
	}
	p.conns = append(p.conns, pendingConn{raw, host})
	return true
}

func (p *pendingConns) remove(raw net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c pendingConn) bool { return c.raw == raw })
}

func (p *pendingConns) evict(i int) {
	_ = p.conns[i].raw.Close() // Nothing was sent on it.
	p.conns = slices.Delete(p.conns, i, i+1)
}

// close closes all pending connections, and lets add refuse further ones.
func (p *pendingConns) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for len(p.conns) > 0 {
		p.evict(0)
	}
}

func (t *Transport) accept() {
	for {
		raw, err := t.Listener.Accept()
		switch {
		case err == nil:
			t.tasks.Go(func() { t.handleIncoming(raw) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // Most likely there are too many open files.
			t.Log.Warn("cannot accept connection; retrying", "error", err)
			select {
			case <-time.After(redialDelay):
			case <-t.ctx.Done():
				return
			}
		}
	}
}

// handleIncoming runs the handshake of an incoming connection, and passes the
// connection to its peer.
func (t *Transport) handleIncoming(raw net.Conn) {
	if !t.pending.add(raw) {
		_ = raw.Close() // The transport is closing.
		return
	}
	c, err := t.handshake(t.ctx, raw, "")
	t.pending.remove(raw)
	if err != nil {
		_ = raw.Close() // The handshake's error is the one to report.
		t.Log.Debug("rejected connection", "address", raw.RemoteAddr(), "error", err)
		return
	}
	p := t.peer(c.name)
	if p == nil || p.dials {
		t.Log.Debug("rejected connection", "peer", c.name, "known", p != nil)
		c.close()
		if p != nil {
			p.setAnnounced(c.listenAddress, c.life)
		}
		return
	}
	p.offer(c)
}
