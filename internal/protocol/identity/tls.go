package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Server returns the TLS configuration for connections from agents. It requires TLS 1.3 and a client certificate.
func (f *Files) Server() *tls.Config { return server(f.current) }

// PublicServer returns the TLS configuration for connections from any client. A
// client certificate is optional, but must be valid. PeerNames returns its names.
func (f *Files) PublicServer() *tls.Config {
	config := f.Server()
	config.CurvePreferences = nil // What other clients send may be worth more.
	config.ClientAuth = tls.RequestClientCert
	verify := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		return verify(state)
	}
	return config
}

// Client returns the TLS configuration for connections to an agent that has one of
// the wanted names. If there are none, every agent is accepted.
//
// In TLS 1.3 the client completes its handshake before the server has verified the
// client certificate. If the server rejects that, the first Read returns the error.
func (f *Files) Client(wanted ...Name) *tls.Config { return client(f.current, wanted) }

// keyExchanges leaves out the hybrids with ML-KEM that are Go's default. They protect what is recorded today from the
// quantum computers of later years, and what agents tell each other and the operator is public, or worthless after a
// second. They cost a quarter of the processor time of a handshake, and a fifth of the memory of a connection.
func keyExchanges() []tls.CurveID { return []tls.CurveID{tls.X25519, tls.CurveP256} }

func server(current func() *loaded) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		CurvePreferences:       keyExchanges(),
		SessionTicketsDisabled: true, // A resumed session would skip the certificate.
		ClientAuth:             tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return current().cert, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := verifyChain(state.PeerCertificates, current().cas, x509.ExtKeyUsageClientAuth)
			return ofPeer(err)
		},
	}
}

func client(current func() *loaded, wanted Names) *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: keyExchanges(),
		// crypto/tls would verify a host name, with a fixed set of CAs. VerifyConnection replaces that, and is always called.
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return current().cert, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			names, err := verifyChain(state.PeerCertificates, current().cas, x509.ExtKeyUsageServerAuth)
			if err == nil && len(wanted) > 0 && !names.Intersects(wanted) {
				err = fmt.Errorf("must be for %s, got %s", wanted, names)
			}
			return ofPeer(err)
		},
	}
}

// PeerNames returns the names in the peer's certificate, after the handshake.
func PeerNames(state tls.ConnectionState) (Names, error) {
	if !state.HandshakeComplete || len(state.PeerCertificates) == 0 {
		return nil, errors.New("the peer has sent no certificate")
	}
	names, err := NamesOf(state.PeerCertificates[0])
	return names, ofPeer(err)
}

// PeerUID returns the UID of the peer's pod, after the handshake. It is empty if the
// certificate has none: then the peer doesn't run in a pod.
func PeerUID(state tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return state.PeerCertificates[0].Subject.SerialNumber
}

func ofPeer(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot accept the peer's certificate: %w", err)
}

// InMemory provides a certificate, its key and the trusted CAs from memory. Each handshake uses the current ones.
type InMemory struct {
	loaded atomic.Pointer[loaded]
}

// NewInMemory verifies the certificate and returns it as an InMemory.
func NewInMemory(pair Pair, caBundle []byte) (*InMemory, error) {
	m := &InMemory{}
	if err := m.Replace(pair, caBundle); err != nil {
		return nil, err
	}
	return m, nil
}

// Replace replaces the certificate, the key and the CAs. If they are invalid, the previous ones remain in use.
func (m *InMemory) Replace(pair Pair, caBundle []byte) error {
	fresh, err := parse(inMemory, [3][]byte{pair.Cert, pair.Key, caBundle})
	if err != nil {
		return err
	}
	m.loaded.Store(fresh)
	return nil
}

// Names returns the names in the certificate.
func (m *InMemory) Names() Names { return m.loaded.Load().names }

// NotAfter returns the expiry of the certificate.
func (m *InMemory) NotAfter() time.Time { return m.loaded.Load().cert.Leaf.NotAfter }

// Server is Files.Server.
func (m *InMemory) Server() *tls.Config { return server(m.loaded.Load) }

// Client is Files.Client.
func (m *InMemory) Client(wanted ...Name) *tls.Config { return client(m.loaded.Load, wanted) }

// parse parses a certificate, its key and the CA bundle, and verifies the
// certificate. The errors name the sources by paths.
func parse(paths Paths, texts [3][]byte) (*loaded, error) {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", paths.Cert, paths.Key, err)
	}
	cas, err := parsePool(texts[2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths.CA, err)
	}
	var names Names
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if names, err = verifyChain(chainOf(&cert), cas, use); err != nil {
			return nil, fmt.Errorf("%s with %s: %w", paths.Cert, paths.CA, err)
		}
	}
	return &loaded{cert: &cert, names: names, cas: cas}, nil
}

// inMemory names the sources of a certificate that isn't in files.
var inMemory = Paths{"certificate", "key", "CA bundle"}

// Verify checks that a certificate is valid now, has this key, and is signed by a CA
// of the bundle. It returns the names in the certificate.
func Verify(pair Pair, caBundle []byte) (Names, error) {
	result, err := parse(inMemory, [3][]byte{pair.Cert, pair.Key, caBundle})
	if err != nil {
		return nil, err
	}
	return result.names, nil
}

// ParseCABundle parses the CA certificates in a PEM text. The text must have at least one, and nothing else.
func ParseCABundle(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			// A file that is being written may end within a certificate.
			if len(all) == 0 || bytes.Contains(rest, []byte("-----BEGIN")) {
				return nil, errors.New("must contain complete CA certificates in PEM")
			}
			return all, nil
		}
		if block.Type != certificateBlock {
			return nil, fmt.Errorf("must contain only CA certificates, got a %s", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot parse CA certificate: %w", err)
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("must contain only CA certificates, but that of %q is not one", cert.Subject)
		}
		all = append(all, cert)
	}
}

func parsePool(text []byte) (*x509.CertPool, error) {
	all, err := ParseCABundle(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, cert := range all {
		pool.AddCert(cert)
	}
	return pool, nil
}

func chainOf(cert *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{cert.Leaf}
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return chain
}

// verifyChain verifies that the first certificate of a chain is valid now for a use,
// and signed by one of the CAs. It returns the names in the certificate.
func verifyChain(chain []*x509.Certificate, cas *x509.CertPool, use x509.ExtKeyUsage) (Names, error) {
	if len(chain) == 0 {
		return nil, errors.New("missing")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: cas, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return nil, explain(chain[0], err)
	}
	return NamesOf(chain[0])
}

// explain adds to common verification errors what to do about them.
func explain(cert *x509.Certificate, err error) error {
	var (
		invalid x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.Equal(cert):
		// Without err, which has the current time: an error that repeats is logged once.
		return fmt.Errorf("not valid now, only from %s to %s: issue a new certificate, or correct the clock of this machine",
			day(cert.NotBefore), day(cert.NotAfter))
	case errors.As(err, &unknown):
		return fmt.Errorf("signed by none of the CAs in the CA bundle: %w", err)
	}
	return err
}
