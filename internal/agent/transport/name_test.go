package transport_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// nameServer resolves every name to 127.0.0.1, until it is silenced.
type nameServer struct {
	silent, fails, slow atomic.Bool
	queries             atomic.Int64
}

// slowAnswer is longer than an attempt to connect.
const slowAnswer = 700 * time.Millisecond

// startNameServer makes this process use a name server, until the test ends.
func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { socket.Close() })
	s := &nameServer{}
	go s.serve(socket)
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
	return s
}

// serve answers queries (RFC 1035): the query with a response flag, and for an address of IPv4, with one record.
func (s *nameServer) serve(socket net.PacketConn) {
	const headerSize, typeA = 12, 1
	buffer := make([]byte, 512)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		s.queries.Add(1)
		if s.silent.Load() || n < headerSize {
			continue
		}
		end := headerSize
		for buffer[end] != 0 { // The labels of the name.
			end += 1 + int(buffer[end])
		}
		kind := binary.BigEndian.Uint16(buffer[end+1:])
		answer := append([]byte(nil), buffer[:end+5]...)
		answer[2], answer[3] = 0x80, 0x80
		if s.fails.Load() {
			const serverFailure = 2
			answer[3] |= serverFailure
		}
		binary.BigEndian.PutUint16(answer[10:], 0) // No additional records.
		if kind == typeA {
			binary.BigEndian.PutUint16(answer[6:], 1)
			answer = append(answer, 0xc0, headerSize, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
		}
		delay := time.Duration(0)
		if s.slow.Load() {
			delay = slowAnswer
		}
		// The socket may be closed at the end of the test.
		time.AfterFunc(delay, func() { _, _ = socket.WriteTo(answer, from) })
	}
}

// named returns the address of peer b with a name as its host.
func named(t *testing.T, address string) map[string]string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must.Succeed(t, err)
	return map[string]string{"b": net.JoinHostPort("b.ledger.test.", port)}
}

// TestEndIsDetectedWithoutNameServer: the address of the peer is a name, and the name
// server doesn't answer any more when the process of the peer ends.
func TestEndIsDetectedWithoutNameServer(t *testing.T) {
	h := newHarness(t)
	names := startNameServer(t)
	a := h.start("a", "127.0.0.1:0", 1)
	b := h.spawn("b", "127.0.0.1:0", 77)
	a.SetPeers(named(t, b.address))
	b.addPeer(a)
	a.waitVerified("b")
	if names.queries.Load() == 0 {
		t.Fatal("the name server wasn't used")
	}
	names.silent.Store(true)
	b.kill()
	a.waitEnded("b", 77)
}

// TestLostConnectionIsReplacedWithoutNameServer: only the connection was lost.
func TestLostConnectionIsReplacedWithoutNameServer(t *testing.T) {
	h := newHarness(t)
	names := startNameServer(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	relay := newRelay(t, b.address)
	a.SetPeers(named(t, relay.Addr().String()))
	b.SetPeers(map[string]string{"a": ""}) // It can't announce its address.
	a.sendUntilReceived(b, 1)
	names.silent.Store(true)
	relay.breakAll()
	testwait.Until(t, "the connection is lost", func() bool { return a.log.Contains("connection closed") })
	a.sendUntilReceived(b, 2)
	a.wantNoneEnded()
}

// TestSlowNameServerPreventsNoConnection: each answer takes longer than an attempt to connect, as if the first of two
// name servers didn't answer.
func TestSlowNameServerPreventsNoConnection(t *testing.T) {
	h := newHarness(t)
	names := startNameServer(t)
	names.slow.Store(true)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	a.SetPeers(named(t, b.address))
	b.SetPeers(map[string]string{"a": ""}) // It can't announce its address.
	a.sendUntilReceived(b, 1)
}

// TestNameThatCannotBeResolvedIsAProblem: until the name server answers.
func TestNameThatCannotBeResolvedIsAProblem(t *testing.T) {
	h := newHarness(t)
	names := startNameServer(t)
	names.fails.Store(true)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	a.SetPeers(named(t, b.address))
	b.SetPeers(map[string]string{"a": ""})
	testwait.Until(t, "a reports the problem",
		func() bool { return strings.Contains(a.Problems()["b"], "cannot resolve b.ledger.test.: ") })
	names.fails.Store(false)
	a.sendUntilReceived(b, 1)
	expect.Lenf(t, a.Problems(), 0, "problems with a connection")
}
