package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
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

// TestAddressesOfOthersAreOnlyHints: a member tells that another one is at an address at which a process accepts
// connections and doesn't answer. It does so again and again. The other member is found at the address of the list.
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

// TestRefusedUnverifiedAddressIsNoProof: a peer has connected, and closes the connection before its address is
// verified. That its address refuses a connection is reported, but not as its end. While it listens, nothing is
// reported.
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

// ofPod makes a member use the certificate of a pod.
func (h *harness) ofPod(uid string) func(*transport.Config) { return h.ofNamed(uid, name) }

func (h *harness) ofNamed(uid string, name func(member string) identity.Name) func(*transport.Config) {
	return func(c *transport.Config) {
		h.t.Helper()
		paths := h.paths(name(c.Self))
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(h.t, err)
		cert, err := h.ca.Sign(identity.Names{name(c.Self)}, uid, key.Public(), time.Hour)
		must.Succeed(h.t, err)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		must.Succeed(h.t, err)
		for path, data := range map[string][]byte{paths.Cert: cert, paths.Key: pem.EncodeToMemory(
			&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
			must.Succeed(h.t, os.WriteFile(path, data, 0o600))
		}
		files, err := identity.Open(paths, nil)
		must.Succeed(h.t, err)
		c.Certificates = files
	}
}

// The certificate of a former pod doesn't serve under the name of its successor, on the
// side that dials and on the one that accepts.
func TestCertificateOfAFormerPodIsRefused(t *testing.T) {
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1, h.ofPod("uid-a")), h.start("b", "127.0.0.1:0", 2, h.ofPod("uid-b"))
	for _, m := range []*member{a, b} {
		m.SetUIDs(map[string][]string{"a": {"uid-a"}, "b": {"former-b", "uid-b"}})
	}
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	a.waitConnected("b")
	b.waitConnected("a")

	// The operator publishes that b's pod was replaced.
	a.SetUIDs(map[string][]string{"b": {"next-b"}})
	testwait.Until(t, "a refuses the former pod", func() bool {
		return !a.Connected("b") && !b.Connected("a") &&
			a.log.Contains("must be for its present pod, with UID next-b, got uid-b")
	})
	a.wantNoneEnded()
	a.SetUIDs(nil)
	a.waitConnected("b")

	b.SetUIDs(map[string][]string{"a": {"next-a"}})
	testwait.Until(t, "b refuses the former pod", func() bool {
		return !a.Connected("b") && !b.Connected("a") &&
			b.log.Contains("must be for its present pod, with UID next-a, got uid-a")
	})
	b.SetUIDs(map[string][]string{"a": {"uid-a"}})
	b.waitConnected("a")
	a.waitConnected("b")
}

// TestWitnessIsRefusedUnlessAListHasItsUID, also if no UID of a pod is known.
func TestWitnessIsRefusedUnlessAListHasItsUID(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.start("b", "127.0.0.1:0", 1)
	w := h.start("w", "127.0.0.1:0", 2, h.ofNamed("uid-w", control.Witness))
	b.SetPeers(map[string]string{"w": w.address})
	w.SetPeers(map[string]string{"b": b.address})
	const refusal = "must be for its present pod, with UID in a list, got uid-w"
	testwait.Until(t, "b refuses w", func() bool { return b.log.Contains(refusal) })
	b.SetUIDs(map[string][]string{"w": {"uid-w"}})
	b.waitConnected("w")
	b.SetUIDs(nil)
	testwait.Until(t, "b has closed the connection", func() bool { return !b.Connected("w") })
}

// TestCertificateWithoutUIDIsRefused where the member is a pod.
func TestCertificateWithoutUIDIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	b.SetUIDs(map[string][]string{"a": {"uid-a"}})
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	testwait.Until(t, "b refuses a", func() bool {
		return b.log.Contains("must be for its present pod, with UID uid-a, got none")
	})
	b.SetUIDs(nil)
	a.waitConnected("b")
	b.waitConnected("a")
}
