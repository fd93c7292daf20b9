package transport_test

import (
	"net"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestRefusedUnverifiedAddressIsNoProof: a peer has connected, and closes the connection before its address is verified. That
// its address refuses a connection is reported, but not as its end. While it listens, nothing is reported.
func TestRefusedUnverifiedAddressIsNoProof(t *testing.T) {
	for _, listens := range []bool{false, true} {
		h := newHarness(t)
		b := h.start("b", "127.0.0.1:0", 1, quick)
		listener, err := net.Listen("tcp", "127.0.0.2:0") // It accepts connections, but no handshake.
		must.Succeed(t, err)
		b.SetPeers(map[string]string{"a": listener.Addr().String()})
		first := hello("a", 77)
		first.Hello.Port = uint16(listener.Addr().(*net.TCPAddr).Port) //nolint:errcheck,forcetypeassert,gosec // It is one.
		a := dial(t, "127.0.0.2", b.address).startTLS(h.issue(validity, name("a")))
		a.writeFrames(first)
		b.waitConnected("a")
		if !listens {
			listener.Close()
		}
		a.Close()
		if listens {
			testwait.Until(t, "b has noticed that", func() bool { return !b.Connected("a") })
		} else {
			testwait.Until(t, "b reports the refused connection", func() bool { return slices.Contains(b.refusedPeers(), "a") })
		}
		b.wantNoneEnded()
		b.Close()
		if got := b.refusedPeers(); listens && len(got) > 0 {
			t.Errorf("got %v refused while it listens, want none", got)
		}
		listener.Close()
	}
}
