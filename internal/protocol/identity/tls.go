package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Server returns the TLS configuration for connections from agents. It requires
// TLS 1.3 and a client certificate.
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

// keyExchanges leaves out the hybrids with ML-KEM that are Go's default. They protect what is recorded today from the quantum
// computers of later years, and what agents tell each other and the operator is public, or worthless after a second. They cost a
// quarter of the processor time of a handshake, and a fifth of the memory of a connection.
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
		// crypto/tls would verify a host name, with a fixed set of CAs. VerifyConnection
		// replaces that, and is always called.
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

// InMemory provides a certificate, its key and the trusted CAs from memory. Each
// handshake uses the current ones.
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

// Replace replaces the certificate, the key and the CAs. If they are invalid, the
// previous ones remain in use.
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
