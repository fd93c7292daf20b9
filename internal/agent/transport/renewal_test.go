package transport_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestSenderHasTheIdentityOfItsHello: also after it was restarted with another state directory.
func TestSenderHasTheIdentityOfItsHello(t *testing.T) {
	h := newHarness(t)
	a, b := h.pair()
	a.sendUntilReceived(b, 1)
	a.Close()
	again := h.start("a", a.address, 3)
	again.SetPeers(map[string]string{"b": b.address})
	again.sendUntilReceived(b, 2)
	expect.EqualSlicesf(t, b.senders(), []election.Identity{1, 3}, "identities of a")
}

// TestRenewedCertificateIsUsedWhenNeeded: a connection that was established with the previous certificate is replaced,
// and no process is reported as ended. This holds for both sides.
func TestRenewedCertificateIsUsedWhenNeeded(t *testing.T) {
	for writer, reader := range map[string]string{"a": "b", "b": "a"} {
		t.Run(writer, func(t *testing.T) {
			h := newHarness(t)
			paths := h.paths(name(writer))
			files, err := identity.Open(paths, nil)
			must.Succeed(t, err)
			from := h.start(writer, "127.0.0.1:0", 1, func(c *transport.Config) {
				c.Certificates = files
			})
			to := h.start(reader, "127.0.0.1:0", 2, func(c *transport.Config) { c.UnauthorizedGrace = 50 * time.Millisecond })
			from.SetPeers(map[string]string{reader: to.address})
			to.SetPeers(map[string]string{writer: from.address})
			from.sendUntilReceived(to, 1)

			send := func(term election.Term) {
				from.Send(reader, transport.Outgoing{Frame: wire.Append(nil, wire.Frame{
					Message: &wire.Message{Group: "audit", Kind: election.Beat, Term: term},
				})})
			}
			testwait.Until(t, "a message is ignored", func() bool {
				send(2)
				return len(to.Problems()) > 0
			})
			expect.Equalf(t, to.received(writer+" 2"), false,
				"received a message for a group that the certificate doesn't name")

			fresh := h.paths(name(writer), identity.Name{Domain: "default", Group: "audit", Member: writer})
			for old, is := range map[string]string{paths.Key: fresh.Key, paths.Cert: fresh.Cert} {
				must.Succeed(t, os.Rename(is, old))
			}
			testwait.Until(t, "a message for the new group arrives", func() bool {
				send(3)
				return to.received(writer + " 3")
			})
			from.wantNoneEnded()
			to.wantNoneEnded()
		})
	}
}

// TestRefusalAfterExpiryProvesNothing: the agent itself has closed the connection, because the peer's certificate
// expired. The peer doesn't accept another one, but its end of this one is still open.
func TestRefusalAfterExpiryProvesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.start("a", "127.0.0.1:0", 1)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	b := h.acceptWith(listener, h.issue(3*time.Second, name("b")), "b", 77)
	a.waitConnected("b")
	listener.Close()
	testwait.Until(t, "a closes the connection", func() bool { return a.log.Count("connection closed") > 0 })
	testwait.Until(t, "a is refused", func() bool { return a.log.Count("connection refused") > 1 })
	a.wantNoneEnded()
	b.Close()
}
