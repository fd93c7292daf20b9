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

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// attacked starts m and its peer b. The third member, a, is played by the test and misbehaves.
func (h *harness) attacked(change ...func(*transport.Config)) (m, b *member) {
	h.t.Helper()
	m, b = h.start("m", "127.0.0.1:0", 1, change...), h.start("b", "127.0.0.1:0", 2, change...)
	m.SetPeers(map[string]string{"a": "127.0.0.1:1", "b": b.address})
	b.SetPeers(map[string]string{"m": m.address})
	b.sendUntilReceived(m, 1)
	return m, b
}

// writeSlowly sends the data byte by byte, repeatedly, until the connection is closed.
func (s *rawConn) writeSlowly(data []byte) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		if _, err := s.Write(data[i%len(data) : i%len(data)+1]); err != nil {
			return
		}
		<-ticker.C
	}
}

// writeForever sends the data repeatedly until the connection is closed.
func (s *rawConn) writeForever(data []byte) {
	for {
		if _, err := s.Write(data); err != nil {
			return
		}
	}
}

// attacks are things to send where a handshake or a frame is expected.
var attacks = map[string]func(*rawConn){
	"silence":             func(*rawConn) {},
	"a byte and silence":  func(s *rawConn) { s.writeOnce("\x20") },
	"text":                func(s *rawConn) { s.writeOnce("GET / HTTP/1.1\r\nHost: m\r\n\r\n") },
	"zeros":               func(s *rawConn) { s.writeForever(make([]byte, 1<<16)) },
	"ones":                func(s *rawConn) { s.writeForever(bytes.Repeat([]byte{0xff}, 1<<16)) },
	"bytes one by one":    func(s *rawConn) { s.writeSlowly([]byte("\x16\x03\x01\x02\x00\x01")) },
	"a frame one by one":  func(s *rawConn) { s.writeSlowly(messageFrame(7)) },
	"the largest length":  func(s *rawConn) { s.writeOnce("\xff\xff\xff\x7f") },
	"an endless length":   func(s *rawConn) { s.writeForever([]byte{0x80}) },
	"half a frame":        func(s *rawConn) { b := messageFrame(7); s.writeOnce(string(b[:len(b)-1])) },
	"a frame of nothing":  func(s *rawConn) { s.writeOnce("\x00") },
	"a frame of nonsense": func(s *rawConn) { s.writeOnce("\x04abcd") },
}

// writeOnce sends the text. It ignores an error: the peer may have closed the connection.
func (s *rawConn) writeOnce(text string) { _, _ = s.Write([]byte(text)) }

// runAttacks runs one attack after the other. Each of these connections must be closed, and the others must remain.
func (h *harness) runAttacks(m, b *member, connect func() *rawConn, except ...string) {
	h.t.Helper()
	connections := m.log.Count("connection closed")
	term := election.Term(100)
	for what, attack := range attacks {
		if strings.Contains(strings.Join(except, ","), what) {
			continue
		}
		h.t.Run(what, func(t *testing.T) {
			s := connect()
			var attacking sync.WaitGroup
			attacking.Go(func() { attack(s) })
			s.t = t
			s.wantClosed()
			s.Close()
			attacking.Wait()
			term++
			b.sendUntilReceived(m, term)
			m.sendUntilReceived(b, term)
		})
	}
	if m.log.Contains("connection closed\" peer=b") {
		h.t.Errorf("connection with b was closed; %d were closed before the attacks:\n%s", connections, m.log.String())
	}
	m.wantNoneEnded()
	b.wantNoneEnded()
}

func TestAttackBeforeTLSClosesOnlyItsConnection(t *testing.T) {
	h := newHarness(t)
	m, b := h.attacked(quick)
	h.runAttacks(m, b, func() *rawConn { return dial(t, "127.0.0.1", m.address) })
}

func TestAttackBeforeHelloClosesOnlyItsConnection(t *testing.T) {
	h := newHarness(t)
	m, b := h.attacked(quick)
	cert := h.issue(validity, name("a"))
	h.runAttacks(m, b, func() *rawConn { return dial(t, "127.0.0.1", m.address).startTLS(cert) })
}

// TestAttackByMemberClosesOnlyItsConnection: after the Hello, silence is allowed.
func TestAttackByMemberClosesOnlyItsConnection(t *testing.T) {
	h := newHarness(t)
	m, b := h.attacked(quick)
	cert := h.issue(validity, name("a"))
	h.runAttacks(m, b, func() *rawConn {
		s := dial(t, "127.0.0.1", m.address).startTLS(cert)
		s.writeFrames(hello("a", 9))
		return s
	}, "silence")
	s := dial(t, "127.0.0.1", m.address).startTLS(cert)
	s.writeFrames(hello("a", 9), hello("a", 9))
	s.wantClosed()
	testwait.Until(t, "m logs the reason", func() bool { return m.log.Count("unexpected second Hello") > 0 })
}

// TestLargeFramesTakeLittleMemory: buffers are reused, and unknown fields aren't copied.
func TestLargeFramesTakeLittleMemory(t *testing.T) {
	h := newHarness(t)
	m, _ := h.attacked()
	cert := h.issue(validity, name("a"))
	body := make([]byte, wire.MaxFrame)
	// One unknown field that fills the frame, after a valid message.
	size := wire.MaxFrame
	frame := append([]byte{byte(size&0x7f | 0x80), byte(size>>7&0x7f | 0x80), byte(size >> 14)}, body...)
	content := messageFrame(5)[1:]
	rest := size - len(content) - 4
	fill := append(content, 0x7a, byte(rest&0x7f|0x80), byte(rest>>7&0x7f|0x80), byte(rest>>14))
	copy(frame[3:], fill)
	s := dial(t, "127.0.0.1", m.address).startTLS(cert)
	s.writeFrames(hello("a", 9))
	for range 20 {
		s.writeOnce(string(frame))
	}
	s.writeFrames(wire.Frame{Message: &wire.Message{Group: "ledger", Term: 6}})
	testwait.Until(t, "all frames are read", func() bool { return m.received("a 6") })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 400 {
		_, err := s.Write(frame)
		must.Succeed(t, err)
	}
	s.writeFrames(wire.Frame{Message: &wire.Message{Group: "ledger", Term: 8}})
	testwait.Until(t, "all frames are read", func() bool { return m.received("a 8") })
	runtime.ReadMemStats(&after)
	expect.AtMostf(t, after.TotalAlloc-before.TotalAlloc, 10<<20, "bytes allocated for frames")
}

// TestFloodOfIdleConnectionsDoesNotBlockPeers: neither from one host nor from many, and their number is bounded.
func TestFloodOfIdleConnectionsDoesNotBlockPeers(t *testing.T) {
	for what, hosts := range map[string]int{"one host": 1, "many hosts": 100} {
		t.Run(what, func(t *testing.T) {
			h := newHarness(t)
			m := h.start("m", "127.0.0.1:0", 1, func(c *transport.Config) { c.HandshakeTimeout = time.Hour })
			before := runtime.NumGoroutine()
			for n := range 2000 {
				from := net.IPv4(127, 0, 1, byte(1+n%hosts)).String()
				dial(t, from, m.address)
			}
			b := h.start("b", "127.0.0.2:0", 2)
			b.SetPeers(map[string]string{"m": m.address})
			m.SetPeers(map[string]string{"b": b.address})
			b.sendUntilReceived(m, 1)
			testwait.Until(t, "most of them are closed", func() bool { return runtime.NumGoroutine()-before < 300 })
		})
	}
}

// TestUnauthorizedConnectionIsRejectedWithReason: and the member whose name it uses remains connected.
func TestUnauthorizedConnectionIsRejectedWithReason(t *testing.T) {
	h := newHarness(t)
	others := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1, func(c *transport.Config) {
		c.Authorize = func(peer string, members map[string]string) error {
			if members["ledger"] != peer {
				return fmt.Errorf("certificate of %q is not for ledger", peer)
			}
			return nil
		}
	})
	b := h.start("b", "127.0.0.1:0", 2)
	b.SetPeers(map[string]string{"m": m.address})
	m.SetPeers(map[string]string{"b": b.address, "a": "127.0.0.1:1"})
	m.waitVerified("b")
	audit := identity.Name{Domain: "default", Group: "audit", Member: "b"}
	abroad := identity.Name{Domain: "other", Group: "ledger", Member: "b"}
	in := func(group string) wire.Frame {
		return wire.Frame{Message: &wire.Message{Group: group, Kind: election.Beat, Term: 666}}
	}
	foreign := hello("b", 9)
	foreign.Hello.Domain = "other"
	newer := hello("b", 9)
	newer.Hello.Protocol = 2
	withoutLife := hello("b", 0)
	for what, c := range map[string]struct {
		certificates []tls.Certificate
		frames       []wire.Frame
		reason       string
	}{
		"no certificate": {nil, []wire.Frame{hello("b", 9)}, "client didn't provide a certificate"},
		"of another CA": {
			[]tls.Certificate{others.issue(validity, name("b"))}, []wire.Frame{hello("b", 9)}, "signed by none of the CAs",
		},
		"expired": {[]tls.Certificate{h.issue(-time.Minute, name("b"))}, []wire.Frame{hello("b", 9)}, "not valid now"},
		"of another group": {[]tls.Certificate{h.issue(validity, audit)}, []wire.Frame{hello("b",
			9), in("ledger")}, "certificate of \\\"b\\\" is not for ledger"},
		"of another domain": {[]tls.Certificate{h.issue(validity, abroad)}, []wire.Frame{hello("b",
			9), in("ledger")}, "must name \\\"b\\\" as a member in domain"},
		"of another member": {[]tls.Certificate{h.issue(validity, name("a"))}, []wire.Frame{hello("b",
			9), in("ledger")}, "must name \\\"b\\\" as a member"},
		"an unknown member": {
			[]tls.Certificate{h.issue(validity, name("x"))}, []wire.Frame{hello("x", 9), in("ledger")}, "peer=x known=false",
		},
		"name of the agent": {[]tls.Certificate{h.issue(validity, name("m"))}, []wire.Frame{hello("m",
			9), in("ledger")}, "must not be that of this agent"},
		"a Hello from elsewhere": {
			[]tls.Certificate{h.issue(validity, name("b"))}, []wire.Frame{foreign}, "got \\\"other\\\"",
		},
		"another protocol": {
			[]tls.Certificate{h.issue(validity, name("b"))},
			[]wire.Frame{newer},
			"protocol version of the peer must be 1, got 2",
		},
		"no incarnation": {
			[]tls.Certificate{h.issue(validity, name("b"))}, []wire.Frame{withoutLife}, "must have an incarnation",
		},
		"no Hello": {
			[]tls.Certificate{h.issue(validity, name("b"))}, []wire.Frame{in("ledger")}, "first frame must be a Hello",
		},
	} {
		t.Run(what, func(t *testing.T) {
			before := m.log.Count(c.reason)
			s := dial(t, "127.0.0.1", m.address).startTLS(c.certificates...)
			s.t = t
			s.writeFrames(c.frames...)
			s.wantClosed()
			testwait.Until(t, "m logs "+c.reason, func() bool { return m.log.Count(c.reason) > before })
		})
	}
	if m.log.Count("connection closed\" peer=b") > 0 {
		t.Errorf("connection with the real b was closed:\n%s", m.log.String())
	}
	b.sendUntilReceived(m, 1)
	if m.received("b 666") || m.received("a 666") {
		t.Error("got a message from an unauthorized sender, want none")
	}
	m.wantNoneEnded()
}

// TestMessageForUnauthorizedGroupIsIgnored: and messages for the group that the certificate names still arrive.
func TestMessageForUnauthorizedGroupIsIgnored(t *testing.T) {
	h := newHarness(t)
	a, m := h.pair()
	for _, group := range []string{"books", "audit", "books", "audit"} {
		a.Send(m.Self, transport.Outgoing{Frame: wire.Append(nil,
			wire.Frame{Message: &wire.Message{Group: group, Kind: election.Beat, Term: 666}})})
	}
	a.sendUntilReceived(m, 1)
	expect.Equalf(t, m.log.Count("ignoring messages: certificate"), 1, "lines in the log")
	expect.Equalf(t, m.received("a 666"), false,
		"received a message for a group that the sender's certificate doesn't name")
	expect.Containsf(t, m.Problems()["a"], "ignoring messages of a in group audit", "problems")
}

// TestConnectionIsClosedWhenCertificateExpires: a peer that has renewed it connects again.
func TestConnectionIsClosedWhenCertificateExpires(t *testing.T) {
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1)
	m.SetPeers(map[string]string{"b": "127.0.0.1:1"})
	s := dial(t, "127.0.0.1", m.address).startTLS(h.issue(2*time.Second, name("b")))
	s.t = t
	s.writeFrames(hello("b", 9))
	m.waitConnected("b")
	s.wantClosed()
}

// TestLargestCertificateIsAccepted: that of a member of 100 groups with the longest names.
func TestLargestCertificateIsAccepted(t *testing.T) {
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1)
	member := strings.Repeat("a", 253)
	m.SetPeers(map[string]string{member: "127.0.0.1:1"})
	var names identity.Names
	for i := range 100 {
		group := fmt.Sprintf("%s%02d", strings.Repeat("g", 61), i)
		names = append(names, identity.Name{Domain: "default", Group: group, Member: member})
	}
	s := dial(t, "127.0.0.1", m.address).startTLS(h.issue(validity, names...))
	s.t = t
	s.writeFrames(hello(member, 9))
	m.waitConnected(member)
}

// TestLargerCertificateIsRejectedEarly: package tls would read 250 KB.
func TestLargerCertificateIsRejectedEarly(t *testing.T) {
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1)
	own := h.issue(validity, name("a"))
	own.Certificate = append(own.Certificate, make([]byte, 250_000))
	client := tls.Client(dial(t, "127.0.0.1", m.address).Conn, &tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil },
	})
	_ = client.HandshakeContext(t.Context()) // It may fail or, with TLS 1.3, not know yet.
	testwait.Until(t, "m rejects the connection",
		func() bool { return m.log.Count("too many bytes before it was authenticated") > 0 })
}

// TestPeersShareARate: two peers flood a process whose peers share one rate. It receives as much as that, and what a
// burst permits.
func TestPeersShareARate(t *testing.T) {
	const perSecond, burst = 1000, 256
	h, start := newHarness(t), time.Now()
	a, b := h.start("a", "127.0.0.1:0", 1), h.start("b", "127.0.0.1:0", 2)
	w := h.start("w", "127.0.0.1:0", 3, func(c *transport.Config) { c.Rate = rate.NewLimiter(perSecond, burst) })
	w.SetPeers(map[string]string{"a": a.address, "b": b.address})
	for _, m := range []*member{a, b} {
		m.SetPeers(map[string]string{"w": w.address})
		go func() {
			for t.Context().Err() == nil {
				if !m.Send("w", transport.Outgoing{Frame: messageFrame(1)}) {
					time.Sleep(time.Millisecond) // Its queue is full.
				}
			}
		}()
	}
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.messages)
	}
	testwait.Until(t, "the rate of half a second has arrived", func() bool { return count() > burst+perSecond/2 })
	got, most := count(), burst+perSecond*time.Since(start).Seconds()+perSecond/10
	expect.AtMostf(t, float64(got), most, "frames of both peers")
}
