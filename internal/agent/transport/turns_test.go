package transport_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// mutePeers accept connections like frozen processes: nothing is answered.
type mutePeers struct {
	net.Listener

	reading sync.WaitGroup
	// accepted and begun count connections, and those over which a handshake has begun.
	accepted, begun atomic.Int32
}

// keeps and the others are what peers do with connections.
const (
	keeps        = "keep them open"
	closes       = "close them after the first message"
	closesAtOnce = "close them at once"
)

func newMutePeers(t *testing.T, does string) *mutePeers {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	p := &mutePeers{Listener: listener}
	p.reading.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			p.reading.Go(func() { p.read(c, does) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.reading.Wait()
	})
	return p
}

// addresses returns addresses of this number of peers.
func (p *mutePeers) addresses(count int) map[string]string {
	peers := map[string]string{}
	for i := range count {
		peers[fmt.Sprintf("p%d", i)] = p.Addr().String()
	}
	return peers
}

func (p *mutePeers) read(c net.Conn, does string) {
	defer c.Close()
	if does == closesAtOnce {
		return
	}
	if n, _ := c.Read(make([]byte, 1)); n > 0 {
		p.begun.Add(1)
	}
	if does == keeps {
		_, _ = io.Copy(io.Discard, c) // Until the other side closes the connection.
	}
}

// TestFewHandshakesBeginAtOnce: otherwise, none would be complete in time if many agents start at once on a busy
// machine.
func TestFewHandshakesBeginAtOnce(t *testing.T) {
	const count, atOnce = 24, 8
	mute := newMutePeers(t, keeps)
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1, func(c *transport.Config) { c.HandshakeTimeout = time.Hour })
	peers := mute.addresses(count)
	began := time.Now() // A turn lasts a second.
	m.SetPeers(peers)
	testwait.Until(t, "handshakes begin",
		func() bool { return mute.accepted.Load() >= count && mute.begun.Load() >= atOnce })
	if begun := mute.begun.Load(); begun > atOnce && time.Since(began) < time.Second {
		t.Errorf("%d handshakes have begun at once, want %d", begun, atOnce)
	}

	other := h.start("other", "127.0.0.1:0", 2)
	other.SetPeers(map[string]string{"m": m.address})
	peers["other"] = other.address
	m.SetPeers(peers)
	m.waitConnected("other") // Though none of the peers that began before has completed its handshake.
}

// TestEndOfPeerIsNoticedWithoutTurn: a process that is being killed closes connections at once.
func TestEndOfPeerIsNoticedWithoutTurn(t *testing.T) {
	const count = 64 // They have their turns within eight seconds.
	mute, dying := newMutePeers(t, keeps), newMutePeers(t, closesAtOnce)
	m := newHarness(t).start("m", "127.0.0.1:0", 1, func(c *transport.Config) { c.HandshakeTimeout = time.Hour })
	peers := mute.addresses(count)
	m.SetPeers(peers)
	testwait.Until(t, "the others wait for their turns", func() bool { return mute.begun.Load() > 8 })
	peers["z"] = dying.Addr().String()
	m.SetPeers(peers)
	testwait.Until(t, "the peer is dialed again and again", func() bool { return dying.accepted.Load() >= 3 })
	if begun := mute.begun.Load(); begun > count/2 {
		t.Errorf("the end of a connection was noticed when %d of %d other peers had had their turns, want at most half",
			begun, count)
	}
}

// TestUnresponsivePeerIsDialedLessOften than one that closes connections at once.
func TestUnresponsivePeerIsDialedLessOften(t *testing.T) {
	const attempts = 20
	mute, closing := newMutePeers(t, keeps), newMutePeers(t, closes)
	m := newHarness(t).start("m", "127.0.0.1:0", 1,
		func(c *transport.Config) { c.HandshakeTimeout = 100 * time.Millisecond })
	m.SetPeers(map[string]string{"mute": mute.Addr().String(), "n": closing.Addr().String()})
	testwait.Until(t, "the peer is dialed again and again", func() bool { return closing.begun.Load() >= attempts })
	if begun := mute.begun.Load(); begun == 0 || begun > attempts/2 {
		t.Errorf("got %d handshakes with a peer that doesn't answer, want at least 1, and at most half of %d",
			begun, attempts)
	}
}
