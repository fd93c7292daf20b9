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
)

var (
	ledgerA = identity.Name{Domain: "default", Group: "ledger", Member: "a"}
	ledgerB = identity.Name{Domain: "default", Group: "ledger", Member: "b"}
	auditA  = identity.Name{Domain: "default", Group: "audit", Member: "a"}
)

// authority is one with its certificate.
type authority struct {
	*identity.CA
	pair identity.Pair
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a, pair, err := identity.NewCA("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return authority{a, pair}
}

func (a authority) issue(t *testing.T, valid time.Duration, names ...identity.Name) identity.Pair {
	t.Helper()
	pair, err := a.Issue(names, valid)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// put replaces a file as a careful writer does.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func written(t *testing.T, pair identity.Pair, ca []byte) identity.Paths {
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
	paths   identity.Paths
	trouble *[]string
}

func newAgent(t *testing.T, pair identity.Pair, ca []byte) agent {
	t.Helper()
	paths, trouble := written(t, pair, ca), &[]string{}
	files, err := identity.Open(paths, func(err error) { *trouble = append(*trouble, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	return agent{files, paths, trouble}
}

// met is what each side has learnt from a handshake.
type met struct {
	client, server       tls.ConnectionState
	clientErr, serverErr error
}

// connected are the two ends of a connection that has buffers: in a pipe without,
// two who refuse each other would wait for each other.
func connected(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []net.Conn{a, b} {
		if err := end.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// meet has one agent dial another and say a byte.
func meet(t *testing.T, client, server *tls.Config) met {
	t.Helper()
	a, b := connected(t)
	defer a.Close()
	defer b.Close()
	dialling, dialled := tls.Client(a, client), tls.Server(b, server)
	var m met
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		if m.serverErr = dialled.Handshake(); m.serverErr == nil {
			_, m.serverErr = dialled.Write([]byte("x"))
		}
		m.server = dialled.ConnectionState()
	}()
	if m.clientErr = dialling.Handshake(); m.clientErr == nil {
		_, m.clientErr = io.ReadFull(dialling, make([]byte, 1))
	}
	m.client = dialling.ConnectionState()
	a.Close()
	<-done
	return m
}

func TestBothSidesLearnWhoTheOtherIs(t *testing.T) {
	ca := newAuthority(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA, auditA), ca.pair.Cert)
	b := newAgent(t, ca.issue(t, time.Hour, ledgerB), ca.pair.Cert)
	for _, client := range []*tls.Config{b.Client(ledgerA), b.Client(ledgerB, ledgerA), b.Client()} {
		m := meet(t, client, a.Server())
		if m.clientErr != nil || m.serverErr != nil {
			t.Fatal(m.clientErr, m.serverErr)
		}
		if names, err := identity.PeerNames(m.client); err != nil || names.String() != (identity.Names{ledgerA, auditA}).String() {
			t.Errorf("the client sees %v, %v", names, err)
		}
		if names, err := identity.PeerNames(m.server); err != nil || names.String() != ledgerB.String() {
			t.Errorf("the server sees %v, %v", names, err)
		}
		if m.client.Version != tls.VersionTLS13 || m.client.DidResume {
			t.Errorf("version %x, resumed %v", m.client.Version, m.client.DidResume)
		}
	}
	if _, err := identity.PeerNames(tls.ConnectionState{}); err == nil {
		t.Error("nobody has names")
	}
}

func TestWhoIsRefused(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	raw := func(pair identity.Pair) *tls.Config {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	}
	old := raw(ca.issue(t, time.Hour, ledgerB))
	old.MaxVersion = tls.VersionTLS12
	nameless, err := ca.Issue(nil, time.Hour)
	if err == nil {
		t.Fatal("a certificate without names was signed", nameless)
	}
	for _, tc := range []struct {
		name string
		peer *tls.Config
		want string
	}{
		{"expired", raw(ca.issue(t, -time.Minute, ledgerB)), "the peer's certificate: it is valid from "},
		{"another authority", raw(other.issue(t, time.Hour, ledgerB)), "the peer's certificate: it is of another authority than those of the CA file"},
		{"an authority itself", raw(ca.pair), "the peer's certificate: it names no member"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if m := meet(t, tc.peer, a.Server()); m.serverErr == nil || !strings.HasPrefix(m.serverErr.Error(), tc.want) || m.clientErr == nil {
				t.Errorf("as a client: %v, and the client learns %v", m.serverErr, m.clientErr)
			}
			if m := meet(t, a.Client(), tc.peer); m.clientErr == nil || !strings.HasPrefix(m.clientErr.Error(), tc.want) {
				t.Errorf("as a server: %v", m.clientErr)
			}
		})
	}
	t.Run("somebody else", func(t *testing.T) {
		m := meet(t, a.Client(ledgerB), a.Server())
		want := "the peer's certificate: it is for conclave://default/ledger/a, and not for conclave://default/ledger/b"
		if m.clientErr == nil || m.clientErr.Error() != want {
			t.Errorf("got %v, want %s", m.clientErr, want)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		if m := meet(t, &tls.Config{InsecureSkipVerify: true}, a.Server()); m.serverErr == nil || m.clientErr == nil {
			t.Error("it was let in:", m.serverErr, m.clientErr)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		if m := meet(t, old, a.Server()); m.serverErr == nil {
			t.Error("it was let in")
		}
		if m := meet(t, a.Client(), old); m.clientErr == nil {
			t.Error("it was dialled")
		}
	})
}

func TestNobodyResumesASession(t *testing.T) {
	ca := newAuthority(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	client, server := a.Client(), a.Server()
	client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(1), "a" // the name is the cache's key
	for range 3 {
		if m := meet(t, client, server); m.clientErr != nil || m.server.DidResume {
			t.Errorf("resumed %v, %v", m.server.DidResume, m.clientErr)
		}
	}
}

func TestChangedFilesCountFromTheNextHandshakeOn(t *testing.T) {
	ca := newAuthority(t)
	a := newAgent(t, ca.issue(t, time.Hour, ledgerA), ca.pair.Cert)
	b := newAgent(t, ca.issue(t, time.Hour, ledgerB), ca.pair.Cert)
	server, client := a.Server(), b.Client()
	sees := func(want string) {
		t.Helper()
		m := meet(t, client, server)
		names, err := identity.PeerNames(m.client)
		if m.clientErr != nil || m.serverErr != nil || err != nil || names.String() != want {
			t.Errorf("%s is seen, not %s; %v, %v", names, want, m.clientErr, m.serverErr)
		}
	}
	sees(ledgerA.String())

	// A certificate without its key is one that is being replaced.
	fresh := ca.issue(t, time.Hour, ledgerA, auditA)
	put(t, a.paths.Cert, fresh.Cert)
	sees(ledgerA.String())
	sees(ledgerA.String())
	put(t, a.paths.Key, fresh.Key)
	sees(ledgerA.String() + ", " + auditA.String())
	if len(*a.trouble) != 1 || !strings.Contains((*a.trouble)[0], a.paths.Cert) {
		t.Errorf("told %q", *a.trouble)
	}

	// Another authority takes over: both are known, then certificates change.
	next := newAuthority(t)
	both := append(append([]byte{}, ca.pair.Cert...), next.pair.Cert...)
	put(t, a.paths.CA, both)
	put(t, b.paths.CA, both)
	moved := next.issue(t, time.Hour, auditA)
	put(t, a.paths.Key, moved.Key)
	put(t, a.paths.Cert, moved.Cert)
	sees(auditA.String())
	put(t, a.paths.CA, next.pair.Cert)
	if m := meet(t, client, server); m.serverErr == nil {
		t.Error("the former authority still counts")
	}
}

func TestWrongFilesKeepTheFormerOnes(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	foreign := other.issue(t, time.Hour, ledgerA)
	expired := ca.issue(t, -time.Minute, ledgerA)
	for _, tc := range []struct {
		name  string
		spoil func(identity.Paths)
		want  string
	}{
		{"half a certificate", func(p identity.Paths) { put(t, p.Cert, pair.Cert[:100]) }, "failed to find any PEM data"},
		{"no certificate", func(p identity.Paths) { os.Remove(p.Cert) }, "no such file"}, //nolint:errcheck // the test fails then
		{"no file", func(p identity.Paths) {
			os.Remove(p.Key) //nolint:errcheck // the test fails then
			if err := os.Mkdir(p.Key, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is no file"},
		{"another key", func(p identity.Paths) { put(t, p.Key, foreign.Key) }, "private key does not match"},
		{"an empty CA file", func(p identity.Paths) { put(t, p.CA, nil) }, "it must hold the certificates of authorities, in PEM"},
		{"half a CA file", func(p identity.Paths) {
			put(t, p.CA, append(append([]byte{}, ca.pair.Cert...), other.pair.Cert[:200]...))
		}, "it must hold the certificates of authorities, in PEM"},
		{"a key as a CA file", func(p identity.Paths) { put(t, p.CA, append(append([]byte{}, ca.pair.Cert...), ca.pair.Key...)) }, "it must hold certificates of authorities, and no PRIVATE KEY"},
		{"a certificate as a CA file", func(p identity.Paths) { put(t, p.CA, pair.Cert) }, "is no authority's"},
		{"another authority", func(p identity.Paths) { put(t, p.CA, other.pair.Cert) }, "it is of another authority than those of the CA file"},
		{"an expired certificate", func(p identity.Paths) { put(t, p.Cert, expired.Cert); put(t, p.Key, expired.Key) }, "issue a new one, or set the clock"},
		{"no member's certificate", func(p identity.Paths) { put(t, p.Cert, ca.pair.Cert); put(t, p.Key, ca.pair.Key) }, "it names no member"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAgent(t, pair, ca.pair.Cert)
			tc.spoil(a.paths)
			for range 3 {
				if m := meet(t, a.Client(ledgerA), a.Server()); m.clientErr != nil || m.serverErr != nil {
					t.Fatal(m.clientErr, m.serverErr)
				}
			}
			if len(*a.trouble) != 1 || !strings.Contains((*a.trouble)[0], tc.want) {
				t.Errorf("told %q, want %q once", *a.trouble, tc.want)
			}
			if _, err := identity.Open(a.paths, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("an agent starts with them: %v", err)
			}
		})
	}
}

func TestAnAuthoritySignsForOthersKeys(t *testing.T) {
	ca := newAuthority(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	mine, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity.ParseCA(ca.pair)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := again.Sign(identity.Names{ledgerB}, mine.Leaf.PublicKey, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := newAgent(t, identity.Pair{Cert: cert, Key: pair.Key}, ca.pair.Cert)
	if b.Names().String() != ledgerB.String() || !b.NotAfter().Equal(again.NotAfter()) {
		t.Errorf("it is for %s, until %s; the authority until %s", b.Names(), b.NotAfter(), again.NotAfter())
	}
	if _, err := again.Issue(identity.Names{{Domain: "default", Group: "a/b", Member: "c"}}, time.Hour); err == nil {
		t.Error("a name with a slash was signed")
	}
	if _, err := identity.ParseCA(pair); err == nil {
		t.Error("a member's certificate is no authority's")
	}
}

func TestAnExpiredAuthoritySignsNothing(t *testing.T) {
	a, _, err := identity.NewCA("test", -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(identity.Names{ledgerA}, time.Hour); err == nil || !strings.Contains(err.Error(), "the authority expired on") {
		t.Error(err)
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	_, err := identity.Open(written(t, ca.issue(t, time.Hour, ledgerA), other.pair.Cert), nil)
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Error(err)
	}
}

// TestThePublicIsServed without a certificate, but not with a wrong one.
func TestThePublicIsServed(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	server, err := identity.Open(written(t, ours.issue(t, time.Hour, ledgerA), ours.pair.Cert), nil)
	if err != nil {
		t.Fatal(err)
	}
	for who, c := range map[string]struct {
		show  []tls.Certificate
		names string
		works bool
	}{
		"nobody":     {nil, "", true},
		"a member":   {[]tls.Certificate{pairOf(t, ours.issue(t, time.Hour, ledgerB))}, ledgerB.String(), true},
		"a stranger": {[]tls.Certificate{pairOf(t, theirs.issue(t, time.Hour, ledgerB))}, "", false},
	} {
		near, far := net.Pipe()
		served := tls.Server(near, server.PublicServer())
		calling := tls.Client(far, &tls.Config{InsecureSkipVerify: true, Certificates: c.show})
		go func() { _, _ = io.Copy(io.Discard, calling) }() // It does the handshake, and reads what is said of it.
		err := served.HandshakeContext(t.Context())
		if (err == nil) != c.works {
			t.Errorf("%s: %v", who, err)
		}
		if err == nil {
			if names, _ := identity.PeerNames(served.ConnectionState()); names.String() != c.names {
				t.Errorf("%s is %q", who, names)
			}
		}
		near.Close()
		far.Close()
	}
}

func pairOf(t *testing.T, pair identity.Pair) tls.Certificate {
	t.Helper()
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return both
}

// TestACertificateIsCheckedBeforeItIsKept.
func TestACertificateIsCheckedBeforeItIsKept(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.issue(t, time.Hour, ledgerA, auditA)
	both := append(append([]byte(nil), ours.pair.Cert...), theirs.pair.Cert...)
	if names, err := identity.Verify(good, both); err != nil || !names.Has(ledgerA) || !names.Has(auditA) {
		t.Errorf("%v, %v", names, err)
	}
	if all, err := identity.ParseCABundle(both); err != nil || len(all) != 2 {
		t.Errorf("%d authorities, %v", len(all), err)
	}
	for what, c := range map[string]struct {
		pair        identity.Pair
		authorities []byte
	}{
		"another authority": {good, theirs.pair.Cert},
		"another key":       {identity.Pair{Cert: good.Cert, Key: theirs.pair.Key}, both},
		"no authority":      {good, nil},
		"half a one":        {good, both[:len(both)-20]},
		"no certificate":    {identity.Pair{Key: good.Key}, both},
	} {
		if names, err := identity.Verify(c.pair, c.authorities); err == nil {
			t.Errorf("%s: %v", what, names)
		}
	}
}
