package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestNamesOfACertificate(t *testing.T) {
	uris := func(texts ...string) *x509.Certificate {
		cert := &x509.Certificate{}
		for _, text := range texts {
			u, err := url.Parse(text)
			must.Succeed(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		return cert
	}
	const a, b = "conclave://default/ledger/a", "conclave://default/audit/a"
	names, err := identity.NamesOf(uris(a, b))
	if err != nil || names.String() != a+", "+b {
		t.Errorf("got %v, %v", names, err)
	}
	if !names.Has(identity.Name{Domain: "default", Group: "audit", Member: "a"}) ||
		names.Has(identity.Name{Domain: "default", Group: "audit", Member: "b"}) {
		t.Errorf("got names %v, want %s and %s", names, a, b)
	}
	for want, cert := range map[string]*x509.Certificate{
		"must have a URI conclave://DOMAIN/GROUP/MEMBER": uris(),
		`must have only member names as URIs, got "spiffe://x/y/z": must be conclave://DOMAIN/GROUP/MEMBER`: uris(a,
			"spiffe://x/y/z"),
		"must name one member of each group, got conclave://default/ledger/a and " +
			"conclave://default/ledger/b": uris(a, "conclave://default/ledger/b"),
		"must name one member of each group, got conclave://default/ledger/a and " + a: uris(a, a),
		"must name at most 100 members, got 101": uris(
			strings.Fields(strings.Repeat(a+" ", 101))...),
		`must have only member names as URIs, got "conclave://default/ledger/a?b": must have no user, query, fragment ` +
			`or escapes`: uris(a + "?b"),
	} {
		if names, err := identity.NamesOf(cert); err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want %s", names, err, want)
		}
	}
}

// TestOtherFormsOfANameAreRejected: equivalent forms of a URI would be several names of one member.
func TestOtherFormsOfANameAreRejected(t *testing.T) {
	datadriven.RunTest(t, "testdata/names.txt", func(t *testing.T, d *datadriven.TestData) string {
		u, err := url.Parse(d.Input)
		must.Succeed(t, err)
		_, err = identity.NamesOf(&x509.Certificate{URIs: []*url.URL{u}})
		expect.ErrorContainsf(t, err, "must have only member names as URIs, got ", "%q", d.Input)
		return fmt.Sprintln(err)
	})
	u, err := url.Parse(strings.Repeat("conclave://a/", 99))
	must.Succeed(t, err)
	_, err = identity.NamesOf(&x509.Certificate{URIs: []*url.URL{u}})
	expect.ErrorContainsf(t, err, "must be conclave://DOMAIN/GROUP/MEMBER", "a long name")
	expect.AtMostf(t, len(err.Error()), 300, "bytes of the error about a long name")
}

// TestPublicServerAcceptsMissingCertificate: but rejects an invalid one.
func TestPublicServerAcceptsMissingCertificate(t *testing.T) {
	own, other := newCA(t), newCA(t)
	server, err := identity.Open(writeFiles(t, own.issue(t, time.Hour, ledgerA), own.pair.Cert), nil)
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		show  []tls.Certificate
		names string
		works bool
	}{
		"no certificate": {nil, "", true},
		"a member":       {[]tls.Certificate{pairOf(t, own.issue(t, time.Hour, ledgerB))}, ledgerB.String(), true},
		"another CA":     {[]tls.Certificate{pairOf(t, other.issue(t, time.Hour, ledgerB))}, "", false},
	} {
		near, far := net.Pipe()
		served := tls.Server(near, server.PublicServer())
		client := tls.Client(far, &tls.Config{InsecureSkipVerify: true, Certificates: c.show})
		go func() { _, _ = io.Copy(io.Discard, client) }() // It runs the handshake, and reads the alert.
		err := served.HandshakeContext(t.Context())
		if (err == nil) != c.works {
			t.Errorf("%s: got %v", name, err)
		}
		if curve := served.ConnectionState().CurveID; err == nil && curve != tls.X25519MLKEM768 {
			t.Errorf("%s: got key exchange %s, want Go's default", name, curve)
		}
		if err == nil {
			if names, _ := identity.PeerNames(served.ConnectionState()); names.String() != c.names {
				t.Errorf("%s: got names %q, want %q", name, names, c.names)
			}
		}
		near.Close()
		far.Close()
	}
}

func pairOf(t *testing.T, pair identity.Pair) tls.Certificate {
	t.Helper()
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(t, err)
	return both
}

func TestVerify(t *testing.T) {
	own, other := newCA(t), newCA(t)
	good := own.issue(t, time.Hour, ledgerA, auditA)
	both := append(append([]byte(nil), own.pair.Cert...), other.pair.Cert...)
	if names, err := identity.Verify(good, both); err != nil || !names.Has(ledgerA) || !names.Has(auditA) {
		t.Errorf("got %v, %v", names, err)
	}
	if all, err := identity.ParseCABundle(both); err != nil || len(all) != 2 {
		t.Errorf("got %d CAs, %v, want 2", len(all), err)
	}
	for name, c := range map[string]struct {
		pair     identity.Pair
		caBundle []byte
	}{
		"another CA":     {good, other.pair.Cert},
		"another key":    {identity.Pair{Cert: good.Cert, Key: other.pair.Key}, both},
		"no CA":          {good, nil},
		"half a CA":      {good, both[:len(both)-20]},
		"no certificate": {identity.Pair{Key: good.Key}, both},
	} {
		if names, err := identity.Verify(c.pair, c.caBundle); err == nil {
			t.Errorf("%s: got %v, want an error", name, names)
		}
	}
}

// TestNobodyWaitsForBlockedReload: a check of the files that doesn't return, here because of
// its callback, delays neither queries nor handshakes.
func TestNobodyWaitsForBlockedReload(t *testing.T) {
	ca := newCA(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	paths := writeFiles(t, pair, ca.pair.Cert)
	blocked, unblock := make(chan struct{}), make(chan struct{})
	files, err := identity.Open(paths, func(error) {
		close(blocked)
		<-unblock
	})
	must.Succeed(t, err)
	defer close(unblock)
	until := files.NotAfter()
	put(t, paths.Cert, nil)
	go files.Reload()
	testwait.Receive(t, "a blocked reload", blocked)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !files.NotAfter().Equal(until) || files.Names()[0] != ledgerA {
			t.Error("got another certificate")
		}
		if m := connect(t, files.Client(ledgerA), files.Server()); m.clientErr != nil || m.serverErr != nil {
			t.Error(m.clientErr, m.serverErr)
		}
	}()
	testwait.Receive(t, "queries and a handshake", done)
}

// TestQueriesDoNoIO: they return the new content only after a reload. The files have other
// sizes, because their times may be the same.
func TestQueriesDoNoIO(t *testing.T) {
	ca := newCA(t)
	a := newAgent(t, ca.issue(t, time.Minute, ledgerA), ca.pair.Cert)
	before, next := a.NotAfter(),
		ca.issue(t, time.Hour, ledgerA, identity.Name{Domain: "default", Group: "audit", Member: "a"})
	put(t, a.paths.Cert, next.Cert)
	put(t, a.paths.Key, next.Key)
	if !a.NotAfter().Equal(before) || len(a.Names()) != 1 {
		t.Error("got the new certificate before the reload")
	}
	a.Reload()
	if a.NotAfter().Equal(before) || len(a.Names()) != 2 {
		t.Errorf("got the previous certificate after the reload; errors: %q", *a.errors)
	}
}

// TestReloadSeesWhatWasWrittenBefore, even if a handshake that has begun earlier is still
// checking the files. Whoever has stored a certificate relies on that.
func TestReloadSeesWhatWasWrittenBefore(t *testing.T) {
	ca := newCA(t)
	paths := writeFiles(t, ca.issue(t, time.Minute, ledgerA), ca.pair.Cert)
	checking, goOn := make(chan struct{}), make(chan struct{})
	files, err := identity.Open(paths, func(error) {
		close(checking)
		<-goOn
	})
	must.Succeed(t, err)
	put(t, paths.Cert, nil)
	handshake := make(chan struct{})
	go func() {
		defer close(handshake)
		connect(t, files.Client(ledgerA), files.Server())
	}()
	testwait.Receive(t, "a handshake that checks the files", checking)

	next := ca.issue(t, time.Hour, ledgerA, identity.Name{Domain: "default", Group: "audit", Member: "a"})
	put(t, paths.Key, next.Key)
	put(t, paths.Cert, next.Cert)
	names := make(chan identity.Names, 1)
	go func() {
		files.Reload()
		names <- files.Names()
	}()
	time.AfterFunc(20*time.Millisecond, func() { close(goOn) }) // A Reload that doesn't wait has returned by then.
	expect.Lenf(t, testwait.Receive(t, "the names after the reload", names), 2,
		"after the reload (the names in the new certificate)")
	testwait.Receive(t, "the end of the handshake", handshake)
}
