package transport

import (
	"errors"
	"net"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// limits apply to connections whose handshake isn't complete. The peer at their other
// end isn't authenticated yet.
//
// The certificate of a member of 100 groups with the longest names has about 40 KiB, a
// usual one less than 1 KiB. Therefore a single connection may read much more than its
// share of the total. When the total is reached, the connection with most bytes is closed.
var limits = connlimit.Limits{Unpinned: 128, UnpinnedPerHost: 32, Bytes: 48 << 10, TotalBytes: 1 << 20}

func (t *Transport) accept() {
	for {
		raw, err := t.accepting.Accept()
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
	c, err := t.handshake(t.ctx, raw, "")
	if pending, ok := raw.(*connlimit.Conn); err == nil && ok && !pending.Pin() {
		err = errors.New("the connection was closed because there were too many")
	}
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
