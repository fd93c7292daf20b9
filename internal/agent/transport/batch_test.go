package transport

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// recordedStream records the size of each write.
type recordedStream struct {
	net.Conn

	mu     sync.Mutex
	writes []int
}

func (s *recordedStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, len(b))
	return len(b), nil
}

// take returns the sizes of the writes since the last call.
func (s *recordedStream) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

// TestFramesThatMayWaitAreWrittenTogether: the groups of an agent send their heartbeats from goroutines that become
// ready at the same time. The scheduler may interrupt them, so the test tries again until it doesn't.
func TestFramesThatMayWaitAreWrittenTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in an agent
	near, far := net.Pipe()
	defer far.Close()
	stream := &recordedStream{Conn: near}
	c := newConn(&Transport{}, near, stream, nil, &wire.Hello{Name: "b", Life: 1}, credentials{}, "")
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	const groups = 20
	testwait.Until(t, "all frames are written in one call", func() bool {
		var sent sync.WaitGroup
		for range groups {
			sent.Go(func() { c.send(Outgoing{Frame: []byte{1}, MayWait: true}) })
		}
		sent.Wait()
		total, together := 0, false
		testwait.Until(t, "all frames are written", func() bool {
			for _, size := range stream.take() {
				total += size
				together = together || size == groups
			}
			return total == groups
		})
		return together
	})
	c.close()
	<-written
}

type boundTo struct {
	net.Listener

	address string
}

func (l boundTo) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.address))
}

func hintedPeer(own string) (*Transport, *peer) {
	t := &Transport{Config: Config{Self: "a", Listener: boundTo{address: own}}, peers: map[string]*peer{}}
	t.accepting = connlimit.New(t.Listener, limits)
	t.peers["b"] = &peer{transport: t, name: "b", retryNow: make(chan struct{}, 1)}
	return t, t.peers["b"]
}

func TestOnlyAddressesOfPeersAreStored(t *testing.T) {
	const pod = "10.0.0.1:7373"
	for _, c := range []struct {
		own, reported string
		stored        bool
	}{
		{pod, "10.0.0.2:7373", true},
		{pod, "[fd00::2]:7373", true},
		{"127.0.0.1:7373", "127.0.0.2:7373", true},
		{pod, "127.0.0.1:7374", false},
		{pod, "[::ffff:127.0.0.1]:7374", false},
		{pod, "10.0.0.2:0", false},
		{pod, "0.0.0.0:7373", false},
		{pod, "169.254.169.254:80", false},
		{pod, "224.0.0.1:7373", false},
		{pod, "255.255.255.255:7373", false},
		{pod, "b.ledger.test:7373", false},
		{pod, "10.0.0.2", false},
		{pod, "", false},
	} {
		transport, b := hintedPeer(c.own)
		transport.receiveHint("c", &wire.PeerAddress{Name: "b", Address: c.reported})
		expect.Equalf(t, b.hasTarget(), c.stored, "%s is told %q: stored", c.own, c.reported)
	}
}

// TestHintsAreBounded: each member replaces its own hint only, a peer tells nothing about
// itself, and the address of the list has every second attempt.
func TestHintsAreBounded(t *testing.T) {
	transport, b := hintedPeer("10.0.0.1:7373")
	b.address = "10.0.0.9:1"
	tell := func(reporter, address string) {
		transport.receiveHint(reporter, &wire.PeerAddress{Name: "b", Address: address})
	}
	tell("b", "10.0.0.8:1")
	tell("c", "10.0.0.2:1")
	for range 100 {
		tell("d", "10.0.0.3:1")
	}
	var got []string
	for range 5 {
		got = append(got, b.nextTarget())
	}
	want := []string{"10.0.0.9:1", "10.0.0.2:1", "10.0.0.9:1", "10.0.0.3:1", "10.0.0.9:1"}
	expect.EqualSlicesf(t, got, want, "attempts")
	for _, reporter := range []string{"e", "f", "g", "h"} {
		tell(reporter, "10.0.0.4:1")
	}
	expect.Equalf(t, len(b.hints), hintsMax, "hints")
	b.dropHints("h")
	expect.Equalf(t, len(b.hints), hintsMax-1, "hints after a member left")
}

// TestAnnouncementPrecedesNextDial: after a failed dial, a peer waits for redialDelay/2 at least. A process that has
// restarted since then announces itself before that, unless there are many peers: these may all have started with it.
func TestAnnouncementPrecedesNextDial(t *testing.T) {
	transport, b := hintedPeer("10.0.0.1:7373")
	b.address = "10.0.0.9:1"
	if first, second := b.retryDelay(noAnswer, 0, 0),
		b.retryDelay(noAnswer, 1, 0); first >= redialDelay/4 || second < redialDelay {
		t.Errorf("with one peer, an agent announces itself after %s and %s, want less than %s, and at least %s", first,
			second, redialDelay/4, redialDelay)
	}
	for i := range 99 {
		transport.peers[string(rune('c'+i))] = nil
	}
	expect.AtLeastf(t, b.retryDelay(noAnswer, 0, 0), redialDelay, "time until an agent with 100 peers announces itself")
}

// TestIsolatedAgentDialsLessOften: after many attempts in vain, an agent leaves more time between them.
func TestIsolatedAgentDialsLessOften(t *testing.T) {
	_, b := hintedPeer("10.0.0.1:7373")
	b.address, b.dials = "10.0.0.9:1", true
	if first, later := b.retryDelay(noAnswer, 0, 0),
		b.retryDelay(noAnswer, patientAttempts+1, 0); first >= 2*redialDelay || later < 4*redialDelay {
		t.Errorf("an agent dials again after %s and, after %d attempts in vain, %s, want less than %s, and at least %s",
			first, patientAttempts, later, 2*redialDelay, 4*redialDelay)
	}
}

// TestAnnouncedAddressIsDialedNext: a restarted pod has another address, and hints may be older.
func TestAnnouncedAddressIsDialedNext(t *testing.T) {
	transport, b := hintedPeer("10.0.0.1:7373")
	b.address = "10.0.0.9:1"
	transport.receiveHint("c", &wire.PeerAddress{Name: "b", Address: "10.0.0.2:1"})
	for range 2 {
		const announced = "10.0.0.3:1"
		if b.setAnnounced(announced, 1); b.nextTarget() != announced {
			t.Error("a hint is dialed next, want the announced address")
		}
	}
}

// TestPeerWithProblemIsNotNamedAgain as a peer that can't be connected.
func TestPeerWithProblemIsNotNamedAgain(t *testing.T) {
	transport, b := hintedPeer("10.0.0.1:7373")
	transport.addProblem("b", problem{kind: "name", text: "no name server answers"})
	b.noteFailure(t.Context(), net.ErrClosed)
	if lines := transport.Absent(); b.named || len(lines) > 0 {
		t.Errorf("got %q, want nothing", lines)
	}
}
