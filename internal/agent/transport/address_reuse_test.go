package transport_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestAddressOfAnotherPeer: b's pod is gone, and that of c has its address now. While a dials that address
// to reach b, the connection of a and c remains.
func TestAddressOfAnotherPeer(t *testing.T) {
	h := newHarness(t)
	a, c := h.start("a", "127.0.0.1:0", 1), h.start("c", "127.0.0.1:0", 2)
	c.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"c": c.address})
	a.waitVerified("c")
	c.waitVerified("a")
	a.SetPeers(map[string]string{"c": c.address, "b": c.address})
	testwait.Until(t, "attempts to reach b fail", func() bool { return a.log.Count("cannot connect to peer") > 2 })
	for _, m := range []*member{a, c} {
		if n := m.log.Count("connection closed"); n > 0 {
			t.Errorf("%s: got %d closed connections, want none\n%s", m.Self, n, m.log.String())
		}
	}
}
