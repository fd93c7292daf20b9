package transport_test

import (
	"net"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPeerAnnouncesItsAddress: the dialing side has an outdated address, as from the
// cache of a name server. The other side announces its address. So does its next
// incarnation, while the connection with the previous one still looks intact.
func TestPeerAnnouncesItsAddress(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestMembersLearnAddressesFromEachOther: two members have restarted at new addresses. Only
// the third one is still where the others look for it. Later, the two restart again.
func TestMembersLearnAddressesFromEachOther(t *testing.T) {
	h := newHarness(t)
	c := h.start("c", "127.0.0.1:0", 1)
	old := map[string]string{"a": "127.0.0.5:1", "b": "127.0.0.5:2", "c": c.address}
	c.SetPeers(old)
	for life := range uint32(2) {
		a, b := h.start("a", "127.0.0.2:0", 10+life), h.start("b", "127.0.0.3:0", 20+life)
		a.SetPeers(old)
		b.SetPeers(old)
		a.sendUntilReceived(b, 1)
		b.sendUntilReceived(a, 1)
		a.Close()
		b.Close()
	}
}

// TestAddressesOfOthersAreOnlyHints: a member tells that another one is at an address at
// which a process accepts connections and doesn't answer. It does so again and again. The
// other member is found at the address of the list.
func TestAddressesOfOthersAreOnlyHints(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	free, err := transport.Listen(t.Context(), "127.0.0.3:0")
	must.Succeed(t, err)
	listed := free.Addr().String()
	must.Succeed(t, free.Close())
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	b := h.start("b", "127.0.0.1:0", 1, quick)
	b.SetPeers(map[string]string{"a": "127.0.0.1:1", "c": listed})
	liar := dial(t, "127.0.0.1", b.address).startTLS(h.issue(validity, name("a")))
	liar.writeFrames(hello("a", 7), wire.Frame{PeerAddress: &wire.PeerAddress{Name: "c", Address: silent.Addr().String()}})
	if _, err := silent.Accept(); err != nil { // The hint is used.
		t.Fatal(err)
	}
	c := h.start("c", listed, 3)
	c.SetPeers(map[string]string{"b": ""})
	b.sendUntilReceived(c, 1)
	liar.writeFrames(wire.Frame{PeerAddress: &wire.PeerAddress{Name: "c", Address: "127.0.0.2:1"}})
	b.sendUntilReceived(c, 2)
	expect.Lenf(t, c.endedPeers(), 0, "ended peers")
}
