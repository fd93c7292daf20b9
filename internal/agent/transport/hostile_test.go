package transport_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// besieged is m, its peer b, and the address of a, who is a member as well and
// doesn't behave.
func (w *town) besieged(change ...func(*transport.Config)) (m, b *member) {
	w.t.Helper()
	m, b = w.settle("m", "127.0.0.1:0", 1, change...), w.settle("b", "127.0.0.1:0", 2, change...)
	m.SetPeers(map[string]string{"a": "127.0.0.1:1", "b": b.address})
	b.SetPeers(map[string]string{"m": m.address})
	b.says(m, 1)
	return m, b
}

// trickles sends byte by byte, and never stops by itself.
func (s *stranger) trickles(data []byte) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		if _, err := s.Write(data[i%len(data) : i%len(data)+1]); err != nil {
			return
		}
		<-ticker.C
	}
}

// pours sends the same again and again.
func (s *stranger) pours(data []byte) {
	for {
		if _, err := s.Write(data); err != nil {
			return
		}
	}
}

// outrages are what somebody may send where a frame or a handshake is expected.
var outrages = map[string]func(*stranger){
	"silence":             func(*stranger) {},
	"a byte and silence":  func(s *stranger) { s.pour("\x20") },
	"text":                func(s *stranger) { s.pour("GET / HTTP/1.1\r\nHost: m\r\n\r\n") },
	"zeros":               func(s *stranger) { s.pours(make([]byte, 1<<16)) },
	"ones":                func(s *stranger) { s.pours(bytes.Repeat([]byte{0xff}, 1<<16)) },
	"bytes one by one":    func(s *stranger) { s.trickles([]byte("\x16\x03\x01\x02\x00\x01")) },
	"a frame one by one":  func(s *stranger) { s.trickles(letter(7)) },
	"the largest length":  func(s *stranger) { s.pour("\xff\xff\xff\x7f") },
	"an endless length":   func(s *stranger) { s.pours([]byte{0x80}) },
	"half a frame":        func(s *stranger) { b := letter(7); s.pour(string(b[:len(b)-1])) },
	"a frame of nothing":  func(s *stranger) { s.pour("\x00") },
	"a frame of nonsense": func(s *stranger) { s.pour("\x04abcd") },
}

// pour sends once; that nobody takes it may be right.
func (s *stranger) pour(text string) { _, _ = s.Write([]byte(text)) }

// besiege does one outrage after the other, and wants each connection to be
// closed while the others don't notice.
func (w *town) besiege(m, b *member, arrive func() *stranger, except ...string) {
	w.t.Helper()
	connections := m.log.count("a connection has ended")
	term := election.Term(100)
	for what, commit := range outrages {
		if strings.Contains(strings.Join(except, ","), what) {
			continue
		}
		w.t.Run(what, func(t *testing.T) {
			s := arrive()
			var doing sync.WaitGroup
			doing.Go(func() { commit(s) })
			s.t = t
			s.wantsEnd()
			s.Close()
			doing.Wait()
			term++
			b.says(m, term)
			m.says(b, term)
		})
	}
	if strings.Contains(m.log.text(), "a connection has ended\" peer=b") {
		w.t.Errorf("the connection with b was disturbed; %d had ended before:\n%s", connections, m.log.text())
	}
	m.wantsNoneGone()
	b.wantsNoneGone()
}

func TestOutragesBeforeTheHandshakeEndTheConnectionOnly(t *testing.T) {
	w := newTown(t)
	m, b := w.besieged(quick)
	w.besiege(m, b, func() *stranger { return dial(t, "127.0.0.1", m.address) })
}

func TestOutragesBeforeTheHelloEndTheConnectionOnly(t *testing.T) {
	w := newTown(t)
	m, b := w.besieged(quick)
	cert := w.issue(validity, name("a"))
	w.besiege(m, b, func() *stranger { return dial(t, "127.0.0.1", m.address).secure(cert) })
}

// TestOutragesOfAMemberEndItsConnectionOnly: silence is no outrage any more.
func TestOutragesOfAMemberEndItsConnectionOnly(t *testing.T) {
	w := newTown(t)
	m, b := w.besieged(quick)
	cert := w.issue(validity, name("a"))
	w.besiege(m, b, func() *stranger {
		s := dial(t, "127.0.0.1", m.address).secure(cert)
		s.writes(hello("a", 9))
		return s
	}, "silence")
	s := dial(t, "127.0.0.1", m.address).secure(cert)
	s.writes(hello("a", 9), hello("a", 9))
	s.wantsEnd()
	eventually(t, "m says why", func() bool { return m.log.count("a second Hello") > 0 })
}

// TestMuchThatIsSentTakesLittleMemory: no length makes m set memory aside that
// isn't filled, and what is filled isn't kept.
func TestMuchThatIsSentTakesLittleMemory(t *testing.T) {
	w := newTown(t)
	m, _ := w.besieged()
	cert := w.issue(validity, name("a"))
	body := make([]byte, wire.MaxFrame)
	// One unknown field that fills the frame, behind a letter that is in order.
	size := wire.MaxFrame
	frame := append([]byte{byte(size&0x7f | 0x80), byte(size>>7&0x7f | 0x80), byte(size >> 14)}, body...)
	content := letter(5)[1:]
	rest := size - len(content) - 4
	fill := append(content, 0x7a, byte(rest&0x7f|0x80), byte(rest>>7&0x7f|0x80), byte(rest>>14))
	copy(frame[3:], fill)
	s := dial(t, "127.0.0.1", m.address).secure(cert)
	s.writes(hello("a", 9))
	for range 20 {
		s.pour(string(frame))
	}
	s.writes(wire.Frame{Message: &wire.Message{Group: "ledger", Term: 6}})
	eventually(t, "all is read", func() bool { return m.got("a 6") })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 400 {
		if _, err := s.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	s.writes(wire.Frame{Message: &wire.Message{Group: "ledger", Term: 8}})
	eventually(t, "all is read", func() bool { return m.got("a 8") })
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 10<<20 {
		t.Errorf("%d MB were set aside for %d MB", took>>20, 400*len(frame)>>20)
	}
}

// TestAFloodOfSilentConnectionsKeepsNobodyOut: neither from one host nor from
// many; and what they take is bounded.
func TestAFloodOfSilentConnectionsKeepsNobodyOut(t *testing.T) {
	for what, hosts := range map[string]int{"one host": 1, "many hosts": 100} {
		t.Run(what, func(t *testing.T) {
			w := newTown(t)
			m := w.settle("m", "127.0.0.1:0", 1, func(c *transport.Config) { c.HandshakeTimeout = time.Hour })
			before := runtime.NumGoroutine()
			for n := range 2000 {
				from := net.IPv4(127, 0, 1, byte(1+n%hosts)).String()
				dial(t, from, m.address)
			}
			b := w.settle("b", "127.0.0.2:0", 2)
			b.SetPeers(map[string]string{"m": m.address})
			m.SetPeers(map[string]string{"b": b.address})
			b.says(m, 1)
			eventually(t, "most have been sent away", func() bool { return runtime.NumGoroutine()-before < 300 })
		})
	}
}

// TestWhoMayNotSpeakIsRefusedWithTheReason: and the member whose name is used
// stays connected.
func TestWhoMayNotSpeakIsRefusedWithTheReason(t *testing.T) {
	w := newTown(t)
	others := newTown(t)
	m := w.settle("m", "127.0.0.1:0", 1, func(c *transport.Config) {
		c.Authorize = func(peer string, members map[string]string) error {
			if members["ledger"] != peer {
				return fmt.Errorf("no certificate of %q for ledger", peer)
			}
			return nil
		}
	})
	b := w.settle("b", "127.0.0.1:0", 2)
	b.SetPeers(map[string]string{"m": m.address})
	m.SetPeers(map[string]string{"b": b.address, "a": "127.0.0.1:1"})
	m.known("b")
	audit := identity.Name{Domain: "default", Group: "audit", Member: "b"}
	abroad := identity.Name{Domain: "other", Group: "ledger", Member: "b"}
	in := func(group string) wire.Frame {
		return wire.Frame{Message: &wire.Message{Group: group, Kind: election.Beat, Term: 666}}
	}
	foreign := hello("b", 9)
	foreign.Hello.Domain = "other"
	newer := hello("b", 9)
	newer.Hello.Protocol = 2
	lifeless := hello("b", 0)
	for what, c := range map[string]struct {
		certificates []tls.Certificate
		frames       []wire.Frame
		reason       string
	}{
		"no certificate":         {nil, []wire.Frame{hello("b", 9)}, "client didn't provide a certificate"},
		"of another authority":   {[]tls.Certificate{others.issue(validity, name("b"))}, []wire.Frame{hello("b", 9)}, "of another authority"},
		"expired":                {[]tls.Certificate{w.issue(-time.Minute, name("b"))}, []wire.Frame{hello("b", 9)}, "by this machine's clock not now"},
		"of another group":       {[]tls.Certificate{w.issue(validity, audit)}, []wire.Frame{hello("b", 9), in("ledger")}, "no certificate of \\\"b\\\" for ledger"},
		"of another domain":      {[]tls.Certificate{w.issue(validity, abroad)}, []wire.Frame{hello("b", 9), in("ledger")}, "is not one for that name in the domain"},
		"of another member":      {[]tls.Certificate{w.issue(validity, name("a"))}, []wire.Frame{hello("b", 9), in("ledger")}, "certificate of \\\"b\\\" is not one for that name"},
		"an unknown member":      {[]tls.Certificate{w.issue(validity, name("x"))}, []wire.Frame{hello("x", 9), in("ledger")}, "peer=x known=false"},
		"our own name":           {[]tls.Certificate{w.issue(validity, name("m"))}, []wire.Frame{hello("m", 9), in("ledger")}, "has the name of this agent"},
		"a Hello from elsewhere": {[]tls.Certificate{w.issue(validity, name("b"))}, []wire.Frame{foreign}, "the peer is of the domain \\\"other\\\""},
		"another protocol":       {[]tls.Certificate{w.issue(validity, name("b"))}, []wire.Frame{newer}, "speaks version 2 of the protocol"},
		"no life":                {[]tls.Certificate{w.issue(validity, name("b"))}, []wire.Frame{lifeless}, "lacks its life"},
		"no Hello":               {[]tls.Certificate{w.issue(validity, name("b"))}, []wire.Frame{in("ledger")}, "the first frame is not a Hello"},
	} {
		t.Run(what, func(t *testing.T) {
			before := m.log.count(c.reason)
			s := dial(t, "127.0.0.1", m.address).secure(c.certificates...)
			s.t = t
			s.writes(c.frames...)
			s.wantsEnd()
			eventually(t, "m says why: "+c.reason, func() bool { return m.log.count(c.reason) > before })
		})
	}
	if m.log.count("a connection has ended\" peer=b") > 0 {
		t.Errorf("the connection with the real b has ended:\n%s", m.log.text())
	}
	b.says(m, 1)
	if m.got("b 666") || m.got("a 666") {
		t.Error("a letter of somebody who may not write was taken")
	}
	m.wantsNoneGone()
}

// TestALetterInAnotherGroupIsNotRead: and what the group is for which the
// certificate is goes on undisturbed.
func TestALetterInAnotherGroupIsNotRead(t *testing.T) {
	w := newTown(t)
	a, m := w.pair()
	for _, group := range []string{"books", "audit", "books", "audit"} {
		a.Send(m.Self, transport.Outgoing{Frame: wire.Append(nil, wire.Frame{Message: &wire.Message{Group: group, Kind: election.Beat, Term: 666}})})
	}
	a.says(m, 1)
	if told := m.log.count("letters aren't read"); told != 1 {
		t.Errorf("that is told %d times", told)
	}
	if m.got("a 666") {
		t.Error("a letter was read in a group for which its writer has no certificate")
	}
	if problems := strings.Join(m.Problems(), "\n"); !strings.Contains(problems, "letters of a in group audit aren't read") {
		t.Errorf("the problems are %q", problems)
	}
}

// TestClocksThatCanNotBothBeRightAreNotConnected: and both sides say so, until
// the one that was wrong is started again with a better one.
func TestClocksThatCanNotBothBeRightAreNotConnected(t *testing.T) {
	w := newTown(t)
	reads := func(term election.Term) func(*transport.Config) {
		return func(c *transport.Config) { c.CurrentTerm = func() election.Term { return term } }
	}
	a, b := w.settle("a", "127.0.0.1:0", 1, reads(1000)), w.settle("b", "127.0.0.1:0", 2, reads(1301))
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	eventually(t, "a says why", func() bool { return strings.Contains(strings.Join(a.Problems(), ""), "30.1s ahead of ours") })
	eventually(t, "b says why", func() bool { return strings.Contains(strings.Join(b.Problems(), ""), "30.1s behind ours") })
	if a.Connected("b") || b.Connected("a") {
		t.Error("they are connected")
	}
	b.Close()
	again := w.settle("b", b.address, 3, reads(1300))
	again.SetPeers(map[string]string{"a": a.address})
	a.says(again, 1)
	if problems := append(a.Problems(), again.Problems()...); len(problems) > 0 {
		t.Errorf("the clocks are near enough, and the problems are %q", problems)
	}
}

// TestTheClockOfAStrangerIsNoProblem: one that isn't awaited any more calls, and
// nobody would see to it that its clock is set right.
func TestTheClockOfAStrangerIsNoProblem(t *testing.T) {
	w := newTown(t)
	reads := func(term election.Term) func(*transport.Config) {
		return func(c *transport.Config) { c.CurrentTerm = func() election.Term { return term } }
	}
	a, b := w.settle("a", "127.0.0.1:0", 1, reads(1000)), w.settle("b", "127.0.0.1:0", 2, reads(1301))
	a.SetPeers(map[string]string{"b": b.address})
	eventually(t, "b turns a away", func() bool { return b.log.count("behind ours") > 0 })
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("b doesn't know a, and the problems are %q", problems)
	}
}

// TestConnectionsEndWithTheCertificate: whoever has a newer one is connected again.
func TestConnectionsEndWithTheCertificate(t *testing.T) {
	w := newTown(t)
	m := w.settle("m", "127.0.0.1:0", 1)
	m.SetPeers(map[string]string{"b": "127.0.0.1:1"})
	s := dial(t, "127.0.0.1", m.address).secure(w.issue(2*time.Second, name("b")))
	s.t = t
	s.writes(hello("b", 9))
	m.awaits("b")
	s.wantsEnd()
}
