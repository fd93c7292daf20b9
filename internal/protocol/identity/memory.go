package identity

import (
	"crypto/tls"
	"sync/atomic"
	"time"
)

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
