package transport_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
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

// waitVerified waits until the member can detect the end of the peer's process: the
// side that accepts the connection has verified the peer's address.
func (m *member) waitVerified(peer string) {
	m.t.Helper()
	m.waitConnected(peer)
	if peer < m.Self {
		testwait.Until(m.t, m.Self+" verifies the address of "+peer,
			func() bool { return m.log.Count("verified listening address of peer") > 0 })
	}
}

// withProcess runs a test with a member and a connected process, life 77. The member accepts the
// connection of process a, and dials process b.
func withProcess(t *testing.T, test func(h *harness, m *member, p *process, name string),
	change ...func(*transport.Config),
) {
	t.Helper()
	for name, other := range map[string]string{"a": "b", "b": "a"} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			m := h.start(other, "127.0.0.1:0", 2, change...)
			p := h.spawn(name, "127.0.0.1:0", 77)
			m.SetPeers(map[string]string{name: p.address})
			p.addPeer(m)
			m.waitVerified(name)
			test(h, m, p, name)
		})
	}
}

func TestKilledProcessIsDetected(t *testing.T) {
	withProcess(t, func(_ *harness, m *member, p *process, name string) {
		p.kill()
		m.waitEnded(name, 77)
	})
}

func TestNewIncarnationAtSameAddressEndsOldOne(t *testing.T) {
	withProcess(t, func(h *harness, m *member, first *process, dead string) {
		first.kill()
		second := h.spawn(dead, first.address, 78)
		second.addPeer(m)
		m.waitConnected(dead)
		m.waitEnded(dead, 77)
	})
}

func TestSuspendedProcessIsNotReportedAsEnded(t *testing.T) {
	t.Parallel()
	withProcess(t, func(_ *harness, m *member, p *process, stopped string) {
		p.signal(syscall.SIGSTOP)
		// Unacknowledged bytes end the connection; new ones get no answer.
		large := transport.Outgoing{Frame: make([]byte, 1<<20)}
		testwait.Until(t, "the connection is closed", func() bool {
			return !m.Connected(stopped) || !m.Send(stopped, large) && !m.Connected(stopped)
		})
		if stopped == "b" {
			testwait.Until(t, "a fails to connect", func() bool {
				m.Send(stopped, large) // it may have connected again just before it was stopped
				return m.log.Count("cannot connect to peer") > 1
			})
		}
		p.signal(syscall.SIGCONT)
		m.waitConnected(stopped)
		m.wantNoneEnded()
	}, quick)
}

func TestPeerThatNeverListenedIsNotReportedAsEnded(t *testing.T) {
	h := newHarness(t)
	a := h.start("a", "127.0.0.1:0", 1)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	closed.Close()
	a.SetPeers(map[string]string{"b": closed.Addr().String()})
	testwait.Until(t, "a is refused again", func() bool { return a.log.Count("connection refused") > 2 })
	a.wantNoneEnded()
}

func TestBrokenConnectionIsReplacedAndNoEndIsReported(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	front := newRelay(t, b.address)
	a.SetPeers(map[string]string{"b": front.Addr().String()})
	b.SetPeers(map[string]string{"a": a.address})
	for n := range 20 {
		a.waitConnected("b")
		b.waitVerified("a")
		a.sendUntilReceived(b, election.Term(100+n))
		b.sendUntilReceived(a, election.Term(200+n))
		// On a slow machine an attempt has failed, b has announced its address, and the relay is bypassed.
		if !front.inUse() {
			t.Logf("broke the connection %d times", n)
			break
		}
		front.breakAll()
		testwait.Until(t, "both sides close the connection", func() bool {
			return a.log.Count("connection closed") > n && b.log.Count("connection closed") > n
		})
	}
	a.waitConnected("b")
	b.waitConnected("a")
	a.wantNoneEnded()
	b.wantNoneEnded()
}

// TestPeerBehindTranslatedAddressIsNotReportedAsEnded: b sees the address of the
// relay as the source of a's connection. No process listens there on a's port.
func TestPeerBehindTranslatedAddressIsNotReportedAsEnded(t *testing.T) {
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.2:0", 1), h.start("b", "127.0.0.1:0", 2)
	front := newRelay(t, b.address)
	a.SetPeers(map[string]string{"b": front.Addr().String()})
	b.SetPeers(map[string]string{"a": ""}) // Else a may connect to the address that b announces, which isn't translated.
	for n := range 5 {
		b.waitConnected("a")
		testwait.Until(t, "b fails to verify the address", func() bool { return b.log.Count("connection refused") > n })
		front.breakAll()
		testwait.Until(t, "the connection is closed", func() bool { return b.log.Count("connection closed") > n })
	}
	b.waitConnected("a")
	b.wantNoneEnded()
}

func TestNewIncarnationElsewhereProvesNothing(t *testing.T) {
	h := newHarness(t)
	a := h.start("a", "127.0.0.1:0", 1)
	old, fresh := h.start("b", "127.0.0.1:0", 77), h.start("b", "127.0.0.1:0", 78)
	old.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": old.address})
	a.waitConnected("b")
	fresh.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": fresh.address})
	fresh.waitConnected("a")
	a.sendUntilReceived(fresh, 1)
	a.wantNoneEnded()
}

func TestRefusalAtNewAddressProvesNothing(t *testing.T) {
	h := newHarness(t)
	a, b := h.pair()
	a.waitConnected("b")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	closed.Close()
	a.SetPeers(map[string]string{"b": closed.Addr().String()})
	// Until b announces its address.
	testwait.Until(t, "a is refused there", func() bool { return a.log.Count("connection refused") > 0 })
	a.wantNoneEnded()
	a.SetPeers(map[string]string{"b": b.address})
	a.waitConnected("b")
	a.wantNoneEnded()
}

// TestSlowlyDyingProcessIsReportedOncePortIsClosed: the kernel closes its connections
// first, still accepts new ones, and closes the port last.
func TestSlowlyDyingProcessIsReportedOncePortIsClosed(t *testing.T) {
	h := newHarness(t)
	a := h.start("a", "127.0.0.1:0", 1)
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	h.acceptAs(listener, "b", 77).Close()
	for range 30 {
		next, err := listener.Accept()
		must.Succeed(t, err)
		lingering := next.(interface{ SetLinger(seconds int) error }) //nolint:errcheck,forcetypeassert // It has one.
		must.Succeed(t, lingering.SetLinger(0))
		next.Close()
	}
	a.wantNoneEnded()
	listener.Close()
	a.waitEnded("b", 77)
}

// TestEndIsReportedBeforeTheConnectionIsClosed: closing it takes time, and can wait until the others had time for an
// election.
func TestEndIsReportedBeforeTheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	closed, reported := make(chan bool, 1), make(chan time.Time, 1)
	var connected atomic.Pointer[rawConn]
	a := h.start("a", "127.0.0.1:0", 1, func(c *transport.Config) {
		c.Events = onEnd{c.Events, func() {
			closed <- connected.Load().isClosedWithin(50 * time.Millisecond)
			reported <- time.Now()
		}}
	})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	b := h.acceptAs(listener, "b", 77)
	connected.Store(b)
	a.waitConnected("b")
	began := time.Now()
	testwait.Until(t, "the connection is no brief one", func() bool { return time.Since(began) > time.Second })
	listener.Close()
	if err := b.Conn.(*tls.Conn).CloseWrite(); err != nil { //nolint:errcheck,forcetypeassert // It is one.
		t.Fatal(err)
	}
	if <-closed {
		t.Error("the connection was closed before the end was reported")
	}
	before := <-reported
	expect.Equalf(t, b.isClosedWithin(testwait.Limit), true, "the connection is closed")
	expect.AtLeastf(t, time.Since(before), actFirst, "time from the report until the connection was closed")
	a.waitEnded("b", 77)
}

// actFirst is the time that the package leaves to elections.
const actFirst = 10 * time.Millisecond

// onEnd calls a function before PeerEnded.
type onEnd struct {
	transport.Events

	ended func()
}

func (e onEnd) PeerEnded(peer string, life uint32) {
	e.ended()
	e.Events.PeerEnded(peer, life)
}

// isClosedWithin reports whether the other side closes the connection within a time.
func (s *rawConn) isClosedWithin(d time.Duration) bool {
	if err := s.SetReadDeadline(time.Now().Add(d)); err != nil {
		return true
	}
	_, err := io.Copy(io.Discard, s.reader)
	return !os.IsTimeout(err)
}

// TestCertificateOfAnotherGroupProvesNoEnd: a process with the same address and name,
// but a certificate for another group, isn't a successor.
func TestCertificateOfAnotherGroupProvesNoEnd(t *testing.T) {
	h := newHarness(t)
	a := h.start("a", "127.0.0.1:0", 1)
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	h.acceptAs(listener, "b", 77).Close()
	h.acceptAs(listener, "b", 78, identity.Name{Domain: "default", Group: "audit", Member: "b"}).Close()
	last := h.acceptAs(listener, "b", 77)
	a.waitConnected("b")
	a.wantNoneEnded()
	last.Close()
}

// acceptAs accepts the next connection as a member would.
func (h *harness) acceptAs(listener net.Listener, self string, life uint32, names ...identity.Name) *rawConn {
	h.t.Helper()
	if names == nil {
		names = []identity.Name{name(self)}
	}
	return h.acceptWith(listener, h.issue(validity, names...), self, life)
}

// acceptWith accepts the next connection as a member with this certificate would.
func (h *harness) acceptWith(listener net.Listener, certificate tls.Certificate, self string, life uint32) *rawConn {
	h.t.Helper()
	raw, err := listener.Accept()
	must.Succeed(h.t, err)
	h.t.Cleanup(func() { raw.Close() })
	secured := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{certificate},
	})
	s := &rawConn{Conn: secured, t: h.t, reader: bufio.NewReader(secured)}
	s.writeFrames(hello(self, life))
	size, err := wire.ReadSize(s.reader, wire.MaxHello)
	if err == nil {
		_, err = io.CopyN(io.Discard, s.reader, int64(size))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		h.t.Fatal(err)
	}
	return s
}

func TestCloseSendsGoodbyeAndLeavesNoGoroutine(t *testing.T) {
	h := newHarness(t)
	before := runtime.NumGoroutine()
	for round := range 20 {
		a, b := h.pair()
		a.waitVerified("b")
		b.waitVerified("a")
		first, second := a, b
		if round%2 == 1 {
			first, second = b, a
		}
		first.Close()
		second.waitEnded(first.Self, first.Life)
		testwait.Until(t, "the end of "+first.Self+" is reported as planned", func() bool {
			return second.log.Contains("peer=" + first.Self + " planned=true")
		})
		second.Close()
	}
	testwait.Until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// TestRejectedMemberRetriesSlowly: a peer rejects a member as long as the peer's
// member list is older and doesn't contain the member.
func TestRejectedMemberRetriesSlowly(t *testing.T) {
	h := newHarness(t)
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	begin := time.Now()
	a.SetPeers(map[string]string{"b": b.address})
	testwait.Until(t, "b rejects a", func() bool { return b.log.Count("rejected connection") >= 8 })
	if attempts, took := b.log.Count("rejected connection"),
		time.Since(begin); took < time.Duration(attempts-4)*50*time.Millisecond {
		t.Errorf("got %d attempts in %s, want at most one in 50ms", attempts, took)
	}
	b.SetPeers(map[string]string{"a": a.address})
	a.sendUntilReceived(b, 1)
	a.wantNoneEnded()
}

// TestNoReconnectionAfterGoodbye: not even while the closing agent waits for another peer, which doesn't read.
func TestNoReconnectionAfterGoodbye(t *testing.T) {
	for _, leaving := range []string{"a", "b"} {
		t.Run(leaving, func(t *testing.T) {
			h := newHarness(t)
			a, b := h.pair()
			first, second := a, b
			if leaving == "b" {
				first, second = b, a
			}
			listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
			must.Succeed(t, err)
			defer listener.Close()
			first.SetPeers(map[string]string{second.Self: second.address, "c": listener.Addr().String()})
			h.acceptAs(listener, "c", 3)
			first.waitVerified(second.Self)
			second.waitVerified(first.Self)
			first.waitConnected("c")
			for range 500 { // More than the kernel buffers for c, less than the queue.
				first.Send("c", transport.Outgoing{Frame: make([]byte, 1<<16)})
			}
			first.Close()
			second.waitEnded(first.Self, first.Life)
			testwait.Until(t, "the end of "+first.Self+" is reported as planned", func() bool {
				return second.log.Contains("peer=" + first.Self + " planned=true")
			})
		})
	}
}
