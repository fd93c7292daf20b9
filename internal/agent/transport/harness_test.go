package transport_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// endedPeer is a call of PeerEnded.
type endedPeer struct {
	peer string
	life uint32
}

// member is a transport that records its events.
type member struct {
	*transport.Transport

	t       *testing.T
	address string
	log     *testwait.Log

	mu       sync.Mutex
	messages []string // FROM TERM
	// identities are those of the senders.
	identities []election.Identity
	ended      []endedPeer
	refused    []string // calls of PeerRefused
}

func (m *member) ReceiveMessage(from transport.Sender, message *wire.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = append(m.messages, fmt.Sprint(from.Name, " ", message.Term))
	m.identities = append(m.identities, from.Identity)
}

func (m *member) PeerEnded(peer string, life uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, endedPeer{peer, life})
}

func (m *member) PeerRefused(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = append(m.refused, peer)
}

func (m *member) senders() []election.Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Compact(slices.Clone(m.identities))
}

func (m *member) refusedPeers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refused)
}

func (m *member) endedPeers() []endedPeer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]endedPeer(nil), m.ended...)
}

func (m *member) received(message string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.messages, message)
}

func (m *member) waitConnected(peer string) {
	m.t.Helper()
	testwait.Until(m.t, m.Self+" is connected with "+peer, func() bool { return m.Connected(peer) })
}

// waitEnded waits until the end of an incarnation is reported. It fails the test if any other end is reported.
func (m *member) waitEnded(peer string, life uint32) {
	m.t.Helper()
	testwait.Until(m.t, fmt.Sprint(m.Self, " reports the end of ", peer, ", incarnation ", life),
		func() bool { return len(m.endedPeers()) > 0 })
	if ends := m.endedPeers(); len(ends) != 1 || ends[0] != (endedPeer{peer, life}) {
		m.t.Errorf("%s: got ends %v, want only %s, incarnation %d", m.Self, ends, peer, life)
	}
}

func (m *member) wantNoneEnded() {
	m.t.Helper()
	if ends := m.endedPeers(); len(ends) > 0 {
		m.t.Errorf("%s: got ends %v, want none\n%s", m.Self, ends, m.log.String())
	}
}

func messageFrame(term election.Term) []byte {
	return wire.Append(nil, wire.Frame{Message: &wire.Message{Group: "ledger", Kind: election.Beat, Term: term}})
}

// sendUntilReceived sends a message repeatedly until it arrives: messages are lost with their connection.
func (m *member) sendUntilReceived(to *member, term election.Term) {
	m.t.Helper()
	testwait.Until(m.t, fmt.Sprint(to.Self, " receives message ", term, " of ", m.Self), func() bool {
		m.Send(to.Self, transport.Outgoing{Frame: messageFrame(term)})
		return to.received(fmt.Sprint(m.Self, " ", term))
	})
}

// harness starts members whose certificates are issued by one CA.
type harness struct {
	t      *testing.T
	folder string
	ca     *identity.CA
	pem    []byte
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	ca, pair, err := identity.NewCA("test", time.Hour)
	must.Succeed(t, err)
	return &harness{t: t, folder: t.TempDir(), ca: ca, pem: pair.Cert}
}

// name returns the name of a member of the group ledger.
func name(member string) identity.Name {
	return identity.Name{Domain: "default", Group: "ledger", Member: member}
}

func (h *harness) issue(valid time.Duration, names ...identity.Name) tls.Certificate {
	h.t.Helper()
	pair, err := h.ca.Issue(names, valid)
	must.Succeed(h.t, err)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(h.t, err)
	return cert
}

// paths writes a certificate for the names into files.
func (h *harness) paths(names ...identity.Name) identity.Paths {
	h.t.Helper()
	pair, err := h.ca.Issue(names, time.Hour)
	must.Succeed(h.t, err)
	dir, err := os.MkdirTemp(h.folder, "")
	must.Succeed(h.t, err)
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	for path, data := range map[string][]byte{paths.Cert: pair.Cert, paths.Key: pair.Key, paths.CA: h.pem} {
		must.Succeed(h.t, os.WriteFile(path, data, 0o600))
	}
	return paths
}

// start starts a member of the group ledger, listening on an address.
func (h *harness) start(self, address string, life uint32, change ...func(*transport.Config)) *member {
	h.t.Helper()
	listener, err := transport.Listen(h.t.Context(), address)
	must.Succeed(h.t, err)
	files, err := identity.Open(h.paths(name(self)), nil)
	must.Succeed(h.t, err)
	m := &member{t: h.t, address: listener.Addr().String(), log: &testwait.Log{}}
	c := transport.Config{
		Self: self, Domain: "default", Life: life, Identity: election.Identity(life), Listener: listener, Events: m,
		Certificates: files,
		Log:          slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&c)
	}
	m.Transport = transport.New(c)
	h.t.Cleanup(m.Close)
	return m
}

// pair starts two members, of which a dials.
func (h *harness) pair(change ...func(*transport.Config)) (a, b *member) {
	h.t.Helper()
	a, b = h.start("a", "127.0.0.1:0", 1, change...), h.start("b", "127.0.0.1:0", 2, change...)
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	return a, b
}

// rawConn is a connection to a member without a transport.
type rawConn struct {
	net.Conn

	t      *testing.T
	reader *bufio.Reader
}

// dial connects from an address, and sends nothing.
func dial(t *testing.T, from, to string) *rawConn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	raw, err := dialer.DialContext(t.Context(), "tcp", to)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	return &rawConn{Conn: raw, t: t, reader: bufio.NewReader(raw)}
}

// startTLS runs the TLS handshake, with or without a certificate.
func (s *rawConn) startTLS(certificates ...tls.Certificate) *rawConn {
	s.t.Helper()
	//nolint:gosec // The test doesn't concern the identity of the member.
	secured := tls.Client(s.Conn,
		&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: certificates})
	must.Succeed(s.t, secured.HandshakeContext(s.t.Context()))
	return &rawConn{Conn: secured, t: s.t, reader: bufio.NewReader(secured)}
}

func (s *rawConn) writeFrames(frames ...wire.Frame) {
	s.t.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.Append(b, f)
	}
	_, err := s.Write(b)
	must.Succeed(s.t, err)
}

func hello(name string, life uint32) wire.Frame {
	return wire.Frame{Hello: &wire.Hello{Protocol: wire.Protocol, Domain: "default", Name: name, Life: life, Port: 1}}
}

// wantClosed waits until the other side closes the connection.
func (s *rawConn) wantClosed() {
	s.t.Helper()
	must.Succeed(s.t, s.SetReadDeadline(time.Now().Add(testwait.Limit)))
	if _, err := io.Copy(io.Discard, s.reader); os.IsTimeout(err) {
		s.t.Error("the connection is still open")
	}
}

// validity is the validity of test certificates.
const validity = time.Hour

// quick shortens the timeouts for peers that send nothing. On a busy machine, a handshake takes a good part of a
// second.
func quick(c *transport.Config) {
	c.HandshakeTimeout, c.FrameTimeout = time.Second, 200*time.Millisecond
}

// relay forwards connections to a member, and can break them.
type relay struct {
	net.Listener

	to string
	mu sync.Mutex
	// pairs are the open connections, and what they are forwarded to.
	pairs map[net.Conn]net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	r := &relay{Listener: listener, to: to, pairs: map[net.Conn]net.Conn{}}
	var forwarding sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		r.breakAll()
		forwarding.Wait()
	})
	forwarding.Go(func() {
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
			r.pairs[here] = there
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				forwarding.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // The error is that of breakAll.
					r.remove(here, there)
				})
			}
		}
	})
	return r
}

// breakAll breaks all connections.
func (r *relay) breakAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for here, there := range r.pairs {
		here.Close()
		there.Close()
	}
	clear(r.pairs)
}

func (r *relay) remove(here, there net.Conn) {
	here.Close()
	there.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, here)
}

// inUse reports whether a connection is forwarded.
func (r *relay) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pairs) > 0
}
