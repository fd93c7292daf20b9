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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// eventually waits for a condition that nobody announces.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("it never happened that %s", what)
		}
	}
}

// journal is a log that can be asked what it says.
type journal struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(line)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.String()
}

func (j *journal) count(words string) int { return strings.Count(j.text(), words) }

// ended is what PeerEnded was called with.
type ended struct {
	peer string
	life uint32
}

// member is a mesh, with what it was told.
type member struct {
	*transport.Transport

	t       *testing.T
	address string
	log     *journal

	mu      sync.Mutex
	letters []string // FROM KIND TERM
	gone    []ended
}

func (m *member) ReceiveMessage(from string, l *wire.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.letters = append(m.letters, fmt.Sprint(from, " ", l.Term))
}

func (m *member) PeerEnded(peer string, life uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = append(m.gone, ended{peer, life})
}

func (m *member) ends() []ended {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]ended(nil), m.gone...)
}

func (m *member) got(letter string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.letters, letter)
}

func (m *member) awaits(peer string) {
	m.t.Helper()
	eventually(m.t, m.Self+" is connected with "+peer, func() bool { return m.Connected(peer) })
}

// awaitsGone wants that the only end which was reported is that of one life.
func (m *member) awaitsGone(peer string, life uint32) {
	m.t.Helper()
	eventually(m.t, fmt.Sprint(m.Self, " knows that ", peer, "'s life ", life, " has ended"), func() bool { return len(m.ends()) > 0 })
	if ends := m.ends(); len(ends) != 1 || ends[0] != (ended{peer, life}) {
		m.t.Errorf("%s was told that these have ended: %v", m.Self, ends)
	}
}

func (m *member) wantsNoneGone() {
	m.t.Helper()
	if ends := m.ends(); len(ends) > 0 {
		m.t.Errorf("%s was told that these have ended: %v\n%s", m.Self, ends, m.log.text())
	}
}

func letter(term election.Term) []byte {
	return wire.Append(nil, wire.Frame{Message: &wire.Message{Group: "ledger", Kind: election.Beat, Term: term}})
}

// says has one member write to another until that has received something new:
// what was sent gets lost with a connection.
func (m *member) says(to *member, term election.Term) {
	m.t.Helper()
	eventually(m.t, fmt.Sprint(to.Self, " hears ", m.Self, " say ", term), func() bool {
		m.Send(to.Self, transport.Outgoing{Frame: letter(term)})
		return to.got(fmt.Sprint(m.Self, " ", term))
	})
}

// town has the authority of the certificates.
type town struct {
	t      *testing.T
	folder string
	ca     *identity.CA
	pem    []byte
}

func newTown(t *testing.T) *town {
	t.Helper()
	ca, pair, err := identity.NewCA("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &town{t: t, folder: t.TempDir(), ca: ca, pem: pair.Cert}
}

// name is of a member of the group ledger.
func name(member string) identity.Name {
	return identity.Name{Domain: "default", Group: "ledger", Member: member}
}

func (w *town) issue(valid time.Duration, names ...identity.Name) tls.Certificate {
	w.t.Helper()
	pair, err := w.ca.Issue(names, valid)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	return cert
}

// paths are files with a certificate.
func (w *town) paths(names ...identity.Name) identity.Paths {
	w.t.Helper()
	pair, err := w.ca.Issue(names, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	dir, err := os.MkdirTemp(w.folder, "")
	if err != nil {
		w.t.Fatal(err)
	}
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	for path, data := range map[string][]byte{paths.Cert: pair.Cert, paths.Key: pair.Key, paths.CA: w.pem} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return paths
}

// settle starts a member of the group ledger, at an address.
func (w *town) settle(self, address string, life uint32, change ...func(*transport.Config)) *member {
	w.t.Helper()
	listener, err := transport.Listen(w.t.Context(), address)
	if err != nil {
		w.t.Fatal(err)
	}
	files, err := identity.Open(w.paths(name(self)), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{t: w.t, address: listener.Addr().String(), log: &journal{}}
	c := transport.Config{
		Self: self, Domain: "default", Life: life, Listener: listener, Events: m,
		Security: transport.Certificates{Files: files, Domain: "default"},
		Log:      slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&c)
	}
	m.Transport = transport.New(c)
	w.t.Cleanup(m.Close)
	return m
}

// pair is two members, of which a dials.
func (w *town) pair(change ...func(*transport.Config)) (a, b *member) {
	w.t.Helper()
	a, b = w.settle("a", "127.0.0.1:0", 1, change...), w.settle("b", "127.0.0.1:0", 2, change...)
	a.SetPeers(map[string]string{"b": b.address})
	b.SetPeers(map[string]string{"a": a.address})
	return a, b
}

// stranger is a connection to a member, made by hand.
type stranger struct {
	net.Conn

	t      *testing.T
	reader *bufio.Reader
}

// dial connects from an address, without a word.
func dial(t *testing.T, from, to string) *stranger {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	raw, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return &stranger{Conn: raw, t: t, reader: bufio.NewReader(raw)}
}

// secure runs the handshake; without a certificate if there is none.
func (s *stranger) secure(certificates ...tls.Certificate) *stranger {
	s.t.Helper()
	//nolint:gosec // Whoever is called isn't what is tested.
	secured := tls.Client(s.Conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: certificates})
	if err := secured.HandshakeContext(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return &stranger{Conn: secured, t: s.t, reader: bufio.NewReader(secured)}
}

func (s *stranger) writes(frames ...wire.Frame) {
	s.t.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.Append(b, f)
	}
	if _, err := s.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

func hello(name string, life uint32) wire.Frame {
	return wire.Frame{Hello: &wire.Hello{Protocol: wire.Protocol, Domain: "default", Name: name, Life: life, Port: 1}}
}

// wantsEnd waits until the other side has closed the connection.
func (s *stranger) wantsEnd() {
	s.t.Helper()
	if err := s.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, s.reader); os.IsTimeout(err) {
		s.t.Error("the connection is still open")
	}
}

// validity is how long certificates of tests are valid.
const validity = time.Hour

// quick shortens the waits for peers that say nothing.
func quick(c *transport.Config) {
	c.HandshakeTimeout, c.FrameTimeout = 200*time.Millisecond, 200*time.Millisecond
}
