package identity

import (
	"crypto/tls"
	"sync/atomic"
	"time"
)

// InMemory are a certificate, its key and its authorities in memory. What replaces
// them counts from the next handshake on.
type InMemory struct {
	loaded atomic.Pointer[loaded]
}

// NewInMemory takes a certificate with its key, and the authorities in PEM.
func NewInMemory(pair Pair, authorities []byte) (*InMemory, error) {
	h := &InMemory{}
	if err := h.Replace(pair, authorities); err != nil {
		return nil, err
	}
	return h, nil
}

// Replace takes others. If they aren't in order, the former ones stay.
func (h *InMemory) Replace(pair Pair, authorities []byte) error {
	fresh, err := parse(memory, [3][]byte{pair.Cert, pair.Key, authorities})
	if err != nil {
		return err
	}
	h.loaded.Store(fresh)
	return nil
}

// Names are those that the certificate gives us now.
func (h *InMemory) Names() Names { return h.loaded.Load().names }

// NotAfter is when the certificate expires.
func (h *InMemory) NotAfter() time.Time { return h.loaded.Load().cert.Leaf.NotAfter }

// Server is as that of Files.
func (h *InMemory) Server() *tls.Config { return server(h.loaded.Load) }

// Client is as that of Files.
func (h *InMemory) Client(wanted ...Name) *tls.Config { return client(h.loaded.Load, wanted) }
