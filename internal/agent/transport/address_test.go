package transport_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
)

// TestPeerAnnouncesItsAddress: the dialing side has an outdated address, as from the
// cache of a name server. The other side announces its address. So does its next
// incarnation, while the connection with the previous one still looks intact.
func TestPeerAnnouncesItsAddress(t *testing.T) {
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.2:0", 2)
	b.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": "127.0.0.3:1"})
	a.sendUntilReceived(b, 1)
	b.sendUntilReceived(a, 1)

	next := h.start("b", "127.0.0.4:0", 3)
	next.SetPeers(map[string]string{"a": a.address})
	a.sendUntilReceived(next, 2)
	a.wantNoneEnded()
}

// TestPeerWithoutAddressConnectsOnceEitherSideCan: when it dials, or when its address
// becomes known. An empty address doesn't close a connection.
func TestPeerWithoutAddressConnectsOnceEitherSideCan(t *testing.T) {
	h := newHarness(t)
	changes := make(chan struct{}, 1)
	notify := func(c *transport.Config) {
		c.OnChange = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}
	a, b := h.start("a", "127.0.0.1:0", 1, notify), h.start("b", "127.0.0.2:0", 2)
	a.SetPeers(map[string]string{"b": ""})
	b.SetPeers(map[string]string{"a": ""})
	a.SetPeers(map[string]string{"b": b.address})
	for !a.Connected("b") {
		<-changes
	}
	a.sendUntilReceived(b, 1)
	a.SetPeers(map[string]string{"b": ""})
	b.sendUntilReceived(a, 1)

	c := h.start("c", "127.0.0.3:0", 3)
	a.SetPeers(map[string]string{"b": "", "c": ""})
	c.SetPeers(map[string]string{"a": a.address}) // a should dial, but has no address.
	c.sendUntilReceived(a, 2)
	a.wantNoneEnded()
	b.Close()
	for a.Connected("b") {
		<-changes
	}
}
