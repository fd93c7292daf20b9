package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var (
	ledgerA = identity.Name{Domain: "default", Group: "ledger", Member: "a"}
	ledgerB = identity.Name{Domain: "default", Group: "ledger", Member: "b"}
	auditA  = identity.Name{Domain: "default", Group: "audit", Member: "a"}
)

// authority is a CA with its certificate and key.
type testCA struct {
	*identity.CA
	pair identity.Pair
}

func newCA(t *testing.T) testCA {
	t.Helper()
	a, pair, err := identity.NewCA("test", time.Hour)
	must.Succeed(t, err)
	return testCA{a, pair}
}

func (a testCA) issue(t *testing.T, valid time.Duration, names ...identity.Name) identity.Pair {
	t.Helper()
	pair, err := a.Issue(names, valid)
	must.Succeed(t, err)
	return pair
}

// put replaces a file atomically.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path+".new", data, 0o600))
	must.Succeed(t, os.Rename(path+".new", path))
}

func writeFiles(t *testing.T, pair identity.Pair, ca []byte) identity.Paths {
	t.Helper()
	dir := t.TempDir()
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	put(t, paths.Cert, pair.Cert)
	put(t, paths.Key, pair.Key)
	put(t, paths.CA, ca)
	return paths
}

// agent is one side of a connection.
type agent struct {
	*identity.Files
	paths  identity.Paths
	errors *[]string
}

func newAgent(t *testing.T, pair identity.Pair, ca []byte) agent {
	t.Helper()
	paths, failures := writeFiles(t, pair, ca), &[]string{}
	files, err := identity.Open(paths, func(err error) { *failures = append(*failures, err.Error()) })
	must.Succeed(t, err)
	return agent{files, paths, failures}
}

// result is what each side of a handshake returns.
type result struct {
	client, server       tls.ConnectionState
	clientErr, serverErr error
}

// newConnection returns the two ends of a TCP connection. It has buffers: without them,
// two sides that reject each other would block each other.
func newConnection(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	a, err := net.Dial("tcp", listener.Addr().String())
	must.Succeed(t, err)
	b, err := listener.Accept()
	must.Succeed(t, err)
	for _, end := range []net.Conn{a, b} {
		must.Succeed(t, end.SetDeadline(time.Now().Add(time.Minute)))
	}
	return a, b
}

// connect runs a handshake, after which the server sends a byte.
func connect(t *testing.T, client, server *tls.Config) result {
	t.Helper()
	a, b := newConnection(t)
	defer a.Close()
	defer b.Close()
	dialing, accepting := tls.Client(a, client), tls.Server(b, server)
	var m result
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		if m.serverErr = accepting.Handshake(); m.serverErr == nil {
			_, m.serverErr = accepting.Write([]byte("x"))
		}
		m.server = accepting.ConnectionState()
	}()
	if m.clientErr = dialing.Handshake(); m.clientErr == nil {
		_, m.clientErr = io.ReadFull(dialing, make([]byte, 1))
	}
	m.client = dialing.ConnectionState()
	a.Close()
	<-done
	return m
}

func TestBothSidesLearnNamesOfPeer(t *testing.T) {
	ca := newCA(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA, auditA), ca.pair.Cert)
	b := newAgent(t, ca.issue(t, time.Hour, ledgerB), ca.pair.Cert)
	for _, client := range []*tls.Config{b.Client(ledgerA), b.Client(ledgerB, ledgerA), b.Client()} {
		m := connect(t, client, a.Server())
		if m.clientErr != nil || m.serverErr != nil {
			t.Fatal(m.clientErr, m.serverErr)
		}
		if names, err := identity.PeerNames(m.client); err != nil ||
			names.String() != (identity.Names{ledgerA, auditA}).String() {
			t.Errorf("client: got peer %v, %v", names, err)
		}
		if names, err := identity.PeerNames(m.server); err != nil || names.String() != ledgerB.String() {
			t.Errorf("server: got peer %v, %v", names, err)
		}
		if m.client.Version != tls.VersionTLS13 || m.client.DidResume {
			t.Errorf("got version %x, resumed %v", m.client.Version, m.client.DidResume)
		}
		expect.Equalf(t, m.client.CurveID, tls.X25519, "key exchange (the one that is cheap)")
	}
	if _, err := identity.PeerNames(tls.ConnectionState{}); err == nil {
		t.Error("got names without a connection, want an error")
	}
}

func TestInvalidPeersAreRejected(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	raw := func(pair identity.Pair) *tls.Config {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		must.Succeed(t, err)
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	}
	old := raw(ca.issue(t, time.Hour, ledgerB))
	old.MaxVersion = tls.VersionTLS12
	nameless, err := ca.Issue(nil, time.Hour)
	if err == nil {
		t.Fatal("got a certificate without names, want an error:", nameless)
	}
	for _, tc := range []struct {
		name string
		peer *tls.Config
		want string
	}{
		{
			"expired", raw(ca.issue(t, -time.Minute, ledgerB)),
			"cannot accept the peer's certificate: not valid now, only from ",
		},
		{"another CA", raw(other.issue(t, time.Hour,
			ledgerB)), "cannot accept the peer's certificate: signed by none of the CAs in the CA bundle"},
		{"a CA itself", raw(ca.pair), "cannot accept the peer's certificate: must have a URI"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if m := connect(t, tc.peer, a.Server()); m.serverErr == nil ||
				!strings.HasPrefix(m.serverErr.Error(), tc.want) || m.clientErr == nil {
				t.Errorf("as a client: got %v, and the client %v", m.serverErr, m.clientErr)
			}
			if m := connect(t, a.Client(), tc.peer); m.clientErr == nil || !strings.HasPrefix(m.clientErr.Error(), tc.want) {
				t.Errorf("as a server: got %v", m.clientErr)
			}
		})
	}
	t.Run("another member", func(t *testing.T) {
		m := connect(t, a.Client(ledgerB), a.Server())
		want := "cannot accept the peer's certificate: must be for conclave://default/ledger/b, got " +
			"conclave://default/ledger/a"
		if m.clientErr == nil || m.clientErr.Error() != want {
			t.Errorf("got %v, want %s", m.clientErr, want)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		if m := connect(t, &tls.Config{InsecureSkipVerify: true}, a.Server()); m.serverErr == nil || m.clientErr == nil {
			t.Error("got a connection, want errors:", m.serverErr, m.clientErr)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		if m := connect(t, old, a.Server()); m.serverErr == nil {
			t.Error("server accepted it, want an error")
		}
		if m := connect(t, a.Client(), old); m.clientErr == nil {
			t.Error("client accepted it, want an error")
		}
	})
}

func TestSessionsAreNotResumed(t *testing.T) {
	ca := newCA(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	client, server := a.Client(), a.Server()
	client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(1), "a" // the name is the cache's key
	for range 3 {
		if m := connect(t, client, server); m.clientErr != nil || m.server.DidResume {
			t.Errorf("got resumed %v, %v", m.server.DidResume, m.clientErr)
		}
	}
}

func TestChangedFilesApplyFromNextHandshake(t *testing.T) {
	ca := newCA(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	b := newAgent(t, ca.issue(t, time.Hour, ledgerB), ca.pair.Cert)
	server, client := a.Server(), b.Client()
	wantPeer := func(want string) {
		t.Helper()
		m := connect(t, client, server)
		names, err := identity.PeerNames(m.client)
		if m.clientErr != nil || m.serverErr != nil || err != nil || names.String() != want {
			t.Errorf("got peer %s, want %s; %v, %v", names, want, m.clientErr, m.serverErr)
		}
	}
	wantPeer(ledgerA.String())

	// While files are being replaced, the certificate and the key don't match.
	fresh := ca.issue(t, time.Hour, ledgerA, auditA)
	put(t, a.paths.Cert, fresh.Cert)
	wantPeer(ledgerA.String())
	wantPeer(ledgerA.String())
	put(t, a.paths.Key, fresh.Key)
	wantPeer(ledgerA.String() + ", " + auditA.String())
	if len(*a.errors) != 1 || !strings.Contains((*a.errors)[0], a.paths.Cert) {
		t.Errorf("got errors %q, want one about the certificate", *a.errors)
	}

	// Rotation to another CA: first both are trusted, then the certificates change.
	next := newCA(t)
	both := append(append([]byte{}, ca.pair.Cert...), next.pair.Cert...)
	put(t, a.paths.CA, both)
	put(t, b.paths.CA, both)
	moved := next.issue(t, time.Hour, auditA)
	put(t, a.paths.Key, moved.Key)
	put(t, a.paths.Cert, moved.Cert)
	wantPeer(auditA.String())
	put(t, a.paths.CA, next.pair.Cert)
	if m := connect(t, client, server); m.serverErr == nil {
		t.Error("the previous CA is still trusted")
	}
}

func TestInvalidFilesKeepPreviousOnes(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	foreign := other.issue(t, time.Hour, ledgerA)
	expired := ca.issue(t, -time.Minute, ledgerA)
	for _, tc := range []struct {
		name  string
		spoil func(identity.Paths)
		want  string
	}{
		{"half a certificate", func(p identity.Paths) { put(t, p.Cert, pair.Cert[:100]) }, "failed to find any PEM data"},
		{"no certificate", func(p identity.Paths) { os.Remove(p.Cert) }, "no such file"}, //nolint:errcheck // then it fails
		{"no file", func(p identity.Paths) {
			os.Remove(p.Key) //nolint:errcheck // then it fails
			must.Succeed(t, os.Mkdir(p.Key, 0o700))
		}, "must be a regular file"},
		{"another key", func(p identity.Paths) { put(t, p.Key, foreign.Key) }, "private key does not match"},
		{"an empty CA file", func(p identity.Paths) { put(t, p.CA, nil) }, "must contain complete CA certificates in PEM"},
		{"half a CA file", func(p identity.Paths) {
			put(t, p.CA, append(append([]byte{}, ca.pair.Cert...), other.pair.Cert[:200]...))
		}, "must contain complete CA certificates in PEM"},
		{"a key as a CA file", func(p identity.Paths) {
			put(t, p.CA, append(append([]byte{}, ca.pair.Cert...), ca.pair.Key...))
		}, "must contain only CA certificates, got a PRIVATE KEY"},
		{"a certificate as a CA file", func(p identity.Paths) {
			put(t, p.CA, pair.Cert)
		}, "must contain only CA certificates, but"},
		{
			"another CA", func(p identity.Paths) { put(t, p.CA, other.pair.Cert) }, "signed by none of the CAs in the CA bundle",
		},
		{
			"an expired certificate", func(p identity.Paths) { put(t, p.Cert, expired.Cert); put(t, p.Key, expired.Key) },
			"issue a new certificate, or correct the clock",
		},
		{
			"no member's certificate",
			func(p identity.Paths) { put(t, p.Cert, ca.pair.Cert); put(t, p.Key, ca.pair.Key) }, "must have a URI",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAgent(t, pair, ca.pair.Cert)
			tc.spoil(a.paths)
			for range 3 {
				if m := connect(t, a.Client(ledgerA), a.Server()); m.clientErr != nil || m.serverErr != nil {
					t.Fatal(m.clientErr, m.serverErr)
				}
			}
			if len(*a.errors) != 1 || !strings.Contains((*a.errors)[0], tc.want) {
				t.Errorf("got errors %q, want %q once", *a.errors, tc.want)
			}
			if now := time.Now().UTC().Format("T15:04:"); strings.Contains((*a.errors)[0], now) {
				t.Errorf("got %q, want an error without the current time, so that it is reported once", *a.errors)
			}
			_, err := identity.Open(a.paths, nil)
			expect.ErrorContainsf(t, err, tc.want, "Open")
		})
	}
}

func TestCASignsForPublicKey(t *testing.T) {
	ca := newCA(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	mine, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(t, err)
	again, err := identity.ParseCA(ca.pair)
	must.Succeed(t, err)
	cert, err := again.Sign(identity.Names{ledgerB}, "", mine.Leaf.PublicKey, 1000*time.Hour)
	must.Succeed(t, err)
	b := newAgent(t, identity.Pair{Cert: cert, Key: pair.Key}, ca.pair.Cert)
	if b.Names().String() != ledgerB.String() || !b.NotAfter().Equal(again.NotAfter()) {
		t.Errorf("got names %s until %s, CA until %s", b.Names(), b.NotAfter(), again.NotAfter())
	}
	if _, err := again.Issue(identity.Names{{Domain: "default", Group: "a/b", Member: "c"}}, time.Hour); err == nil {
		t.Error("got a certificate for a name with a slash, want an error")
	}
	if _, err := identity.ParseCA(pair); err == nil {
		t.Error("got a CA from a member's certificate, want an error")
	}
}

func TestExpiredCASignsNothing(t *testing.T) {
	a, _, err := identity.NewCA("test", -time.Minute)
	must.Succeed(t, err)
	if _, err := a.Issue(identity.Names{ledgerA}, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "CA certificate expired on") {
		t.Error(err)
	}
}

func TestErrorsWrapTheirCause(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	_, err := identity.Open(writeFiles(t, ca.issue(t, time.Hour, ledgerA), other.pair.Cert), nil)
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Error(err)
	}
}
