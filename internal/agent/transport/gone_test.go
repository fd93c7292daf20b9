package transport_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// known waits until either side would notice if the peer's process ended: who was
// called has called back.
func (m *member) known(peer string) {
	m.t.Helper()
	m.awaits(peer)
	if peer < m.Self {
		eventually(m.t, m.Self+" has called "+peer+" back", func() bool { return m.log.count("called a peer back") > 0 })
	}
}

func TestAKilledProcessIsGoneForWhoeverDialled(t *testing.T) {
	w := newTown(t)
	a := w.settle("a", "127.0.0.1:0", 1)
	b := w.spawn("b", "127.0.0.1:0", 77)
	a.SetPeers(map[string]string{"b": b.address})
	b.knows(a)
	a.known("b")
	b.kill()
	a.awaitsGone("b", 77)
}

func TestAKilledProcessIsGoneForWhoeverWasDialled(t *testing.T) {
	w := newTown(t)
	b := w.settle("b", "127.0.0.1:0", 2)
	a := w.spawn("a", "127.0.0.1:0", 77)
	b.SetPeers(map[string]string{"a": a.address})
	a.knows(b)
	b.known("a")
	a.kill()
	b.awaitsGone("a", 77)
}

func TestAnotherLifeAtTheSamePlaceEndsTheOldOne(t *testing.T) {
	for _, dead := range []string{"a", "b"} {
		t.Run(dead, func(t *testing.T) {
			w := newTown(t)
			survivor := map[string]string{"a": "b", "b": "a"}[dead]
			m := w.settle(survivor, "127.0.0.1:0", 2)
			first := w.spawn(dead, "127.0.0.1:0", 77)
			m.SetPeers(map[string]string{dead: first.address})
			first.knows(m)
			m.known(dead)
			first.kill()
			second := w.spawn(dead, first.address, 78)
			second.knows(m)
			m.awaits(dead)
			m.awaitsGone(dead, 77)
		})
	}
}

func TestAProcessThatIsStoppedIsNotGone(t *testing.T) {
	for _, stopped := range []string{"a", "b"} {
		t.Run(stopped, func(t *testing.T) {
			w := newTown(t)
			other := map[string]string{"a": "b", "b": "a"}[stopped]
			m := w.settle(other, "127.0.0.1:0", 2, quick)
			p := w.spawn(stopped, "127.0.0.1:0", 77)
			m.SetPeers(map[string]string{stopped: p.address})
			p.knows(m)
			m.known(stopped)
			p.signal(syscall.SIGSTOP)
			// What it no longer takes in breaks the connection; from then on nobody answers.
			large := transport.Outgoing{Frame: make([]byte, 1<<20)}
			eventually(t, "the connection is given up", func() bool {
				return !m.Connected(stopped) || !m.Send(stopped, large) && !m.Connected(stopped)
			})
			if stopped == "b" {
				eventually(t, "a has called in vain", func() bool { return m.log.count("no connection") > 1 })
			}
			p.signal(syscall.SIGCONT)
			m.awaits(stopped)
			m.wantsNoneGone()
		})
	}
}

func TestAPeerThatNeverListenedIsNotGone(t *testing.T) {
	w := newTown(t)
	a := w.settle("a", "127.0.0.1:0", 1)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	a.SetPeers(map[string]string{"b": nobody.Addr().String()})
	eventually(t, "a is refused again", func() bool { return a.log.count("connection refused") > 2 })
	a.wantsNoneGone()
}

// relay carries connections to a member, and can break them.
type relay struct {
	net.Listener

	to    string
	mu    sync.Mutex
	pairs []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener, to: to}
	var carrying sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		r.breaks()
		carrying.Wait()
	})
	carrying.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				here.Close()
				continue
			}
			r.mu.Lock()
			r.pairs = append(r.pairs, here, there)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				carrying.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // It is about to be broken.
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	return r
}

// breaks breaks all connections.
func (r *relay) breaks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.pairs {
		c.Close()
	}
	r.pairs = nil
}

// carries reports whether anything went through since it was last broken.
func (r *relay) carries() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pairs) > 0
}

func TestABrokenConnectionIsMadeAgainAndNobodyIsGone(t *testing.T) {
	w := newTown(t)
	a, b := w.settle("a", "127.0.0.1:0", 1), w.settle("b", "127.0.0.1:0", 2)
	front := newRelay(t, b.address)
	a.SetPeers(map[string]string{"b": front.Addr().String()})
	b.SetPeers(map[string]string{"a": a.address})
	for n := range 20 {
		a.awaits("b")
		b.known("a")
		a.says(b, 100+1)
		b.says(a, 200+1)
		if n > 0 && !front.carries() {
			break // On a slow machine b has said where it is, and they need no relay any more.
		}
		front.breaks()
		eventually(t, "the connection has ended for both", func() bool {
			return a.log.count("a connection has ended") > n && b.log.count("a connection has ended") > n
		})
	}
	a.awaits("b")
	b.awaits("a")
	a.wantsNoneGone()
	b.wantsNoneGone()
}

// TestAPeerBehindATranslatedAddressIsNotGone: what b sees of a is the address of
// someone who forwards, and at that address nobody listens on a's port.
func TestAPeerBehindATranslatedAddressIsNotGone(t *testing.T) {
	w := newTown(t)
	a, b := w.settle("a", "127.0.0.2:0", 1), w.settle("b", "127.0.0.1:0", 2)
	front := newRelay(t, b.address)
	a.SetPeers(map[string]string{"b": front.Addr().String()})
	b.SetPeers(map[string]string{"a": a.address})
	for n := range 5 {
		b.awaits("a")
		eventually(t, "b has called back in vain", func() bool { return b.log.count("connection refused") > n })
		front.breaks()
		eventually(t, "the connection has ended", func() bool { return b.log.count("a connection has ended") > n })
	}
	b.awaits("a")
	b.wantsNoneGone()
}

func TestAnotherLifeElsewhereSaysNothingOfTheOldOne(t *testing.T) {
	w := newTown(t)
	a := w.settle("a", "127.0.0.1:0", 1)
	old, fresh := w.settle("b", "127.0.0.1:0", 77), w.settle("b", "127.0.0.1:0", 78)
	old.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": old.address})
	a.awaits("b")
	fresh.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": fresh.address})
	fresh.awaits("a")
	a.says(fresh, 1)
	a.wantsNoneGone()
}

func TestAMoveToAPlaceWhereNobodyListensYetSaysNothingOfTheOldLife(t *testing.T) {
	w := newTown(t)
	a, b := w.pair()
	a.awaits("b")
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	a.SetPeers(map[string]string{"b": nobody.Addr().String()})
	eventually(t, "a is refused there", func() bool { return a.log.count("connection refused") > 0 }) // Until b says where it is.
	a.wantsNoneGone()
	a.SetPeers(map[string]string{"b": b.address})
	a.awaits("b")
	a.wantsNoneGone()
}

// TestAProcessThatDiesSlowlyIsGoneInTheEnd: its connections are closed first, new
// ones get as far as the kernel, and its port is closed last.
func TestAProcessThatDiesSlowlyIsGoneInTheEnd(t *testing.T) {
	w := newTown(t)
	a := w.settle("a", "127.0.0.1:0", 1)
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	w.answer(listener, "b", 77).Close()
	for range 30 {
		next, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := next.(*net.TCPConn).SetLinger(0); err != nil { //nolint:errcheck,forcetypeassert // It is one.
			t.Fatal(err)
		}
		next.Close()
	}
	a.wantsNoneGone()
	listener.Close()
	a.awaitsGone("b", 77)
}

// TestACertificateOfAnotherGroupSaysNothingOfALife: at the same address, with the
// same name, and still somebody else.
func TestACertificateOfAnotherGroupSaysNothingOfALife(t *testing.T) {
	w := newTown(t)
	a := w.settle("a", "127.0.0.1:0", 1)
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a.SetPeers(map[string]string{"b": listener.Addr().String()})
	w.answer(listener, "b", 77).Close()
	w.answer(listener, "b", 78, identity.Name{Domain: "default", Group: "audit", Member: "b"}).Close()
	last := w.answer(listener, "b", 77)
	a.awaits("b")
	a.wantsNoneGone()
	last.Close()
}

// answer answers the next call, as a member would.
func (w *town) answer(listener net.Listener, self string, life uint32, names ...identity.Name) net.Conn {
	w.t.Helper()
	if names == nil {
		names = []identity.Name{name(self)}
	}
	raw, err := listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { raw.Close() })
	secured := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{w.issue(validity, names...)},
	})
	s := &stranger{Conn: secured, t: w.t, reader: bufio.NewReader(secured)}
	s.writes(hello(self, life))
	size, err := wire.ReadSize(s.reader, wire.MaxHello)
	if err == nil {
		_, err = io.CopyN(io.Discard, s.reader, int64(size))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.t.Fatal(err)
	}
	return s
}

func TestClosingSaysGoodbyeAndLeavesNothingBehind(t *testing.T) {
	w := newTown(t)
	before := runtime.NumGoroutine()
	for round := range 20 {
		a, b := w.pair()
		a.known("b")
		b.known("a")
		first, second := a, b
		if round%2 == 1 {
			first, second = b, a
		}
		first.Close()
		second.awaitsGone(first.Self, first.Life)
		eventually(t, "the end of "+first.Self+" is said to be planned", func() bool {
			return strings.Contains(second.log.text(), "peer="+first.Self+" planned=true")
		})
		second.Close()
	}
	eventually(t, "no goroutine is left behind", func() bool { return runtime.NumGoroutine() <= before })
}

// TestWhoeverIsTurnedAwayCallsAgainSlowly: a member that has a newer list than
// its peer is let in and sent away again, until that has the list too.
func TestWhoeverIsTurnedAwayCallsAgainSlowly(t *testing.T) {
	w := newTown(t)
	a, b := w.settle("a", "127.0.0.1:0", 1), w.settle("b", "127.0.0.1:0", 2)
	begin := time.Now()
	a.SetPeers(map[string]string{"b": b.address})
	eventually(t, "b has turned a away", func() bool { return b.log.count("turned a caller away") >= 8 })
	if calls, took := b.log.count("turned a caller away"), time.Since(begin); took < time.Duration(calls-4)*50*time.Millisecond {
		t.Errorf("%d calls in %s", calls, took)
	}
	b.SetPeers(map[string]string{"a": a.address})
	a.says(b, 1)
	a.wantsNoneGone()
}

// TestNobodyComesBackAfterTheGoodbye: not even while the agent that ends waits
// for another peer, which doesn't listen.
func TestNobodyComesBackAfterTheGoodbye(t *testing.T) {
	for _, leaving := range []string{"a", "b"} {
		t.Run(leaving, func(t *testing.T) {
			w := newTown(t)
			a, b := w.pair()
			first, second := a, b
			if leaving == "b" {
				first, second = b, a
			}
			listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			first.SetPeers(map[string]string{second.Self: second.address, "c": listener.Addr().String()})
			w.answer(listener, "c", 3)
			first.known(second.Self)
			second.known(first.Self)
			first.awaits("c")
			for range 500 { // More than the kernel keeps for c, less than the queue.
				first.Send("c", transport.Outgoing{Frame: make([]byte, 1<<16)})
			}
			first.Close()
			second.awaitsGone(first.Self, first.Life)
			eventually(t, "the end of "+first.Self+" is said to be planned", func() bool {
				return strings.Contains(second.log.text(), "peer="+first.Self+" planned=true")
			})
		})
	}
}

// TestAPeerSaysWhereItIs: the side that dials has an address that is out of date,
// as by a name server that remembers for too long. Whoever waits to be called
// says where it is; also another life of it, while a connection with the former
// one seems to be there.
func TestAPeerSaysWhereItIs(t *testing.T) {
	w := newTown(t)
	a, b := w.settle("a", "127.0.0.1:0", 1), w.settle("b", "127.0.0.2:0", 2)
	b.SetPeers(map[string]string{"a": a.address})
	a.SetPeers(map[string]string{"b": "127.0.0.3:1"})
	a.says(b, 1)
	b.says(a, 1)

	next := w.settle("b", "127.0.0.4:0", 3)
	next.SetPeers(map[string]string{"a": a.address})
	a.says(next, 2)
	a.wantsNoneGone()
}

// TestAPeerThatIsNowhereYetIsMet when it calls, or when it is known where it is. To
// hear of no place any more is no reason to give it up.
func TestAPeerThatIsNowhereYetIsMet(t *testing.T) {
	w := newTown(t)
	changes := make(chan struct{}, 1)
	noticed := func(c *transport.Config) {
		c.OnChange = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}
	a, b := w.settle("a", "127.0.0.1:0", 1, noticed), w.settle("b", "127.0.0.2:0", 2)
	a.SetPeers(map[string]string{"b": ""})
	b.SetPeers(map[string]string{"a": ""})
	a.SetPeers(map[string]string{"b": b.address})
	for !a.Connected("b") {
		<-changes
	}
	a.says(b, 1)
	a.SetPeers(map[string]string{"b": ""})
	b.says(a, 1)

	c := w.settle("c", "127.0.0.3:0", 3)
	a.SetPeers(map[string]string{"b": "", "c": ""})
	c.SetPeers(map[string]string{"a": a.address}) // a should dial, and doesn't know where.
	c.says(a, 2)
	a.wantsNoneGone()
	b.Close()
	for a.Connected("b") {
		<-changes
	}
}
