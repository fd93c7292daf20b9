package identity_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
