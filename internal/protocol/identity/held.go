package identity

import (
	"crypto/tls"
	"sync/atomic"
	"time"
)

// Held are a certificate, its key and its authorities in memory. What replaces
// them counts from the next handshake on.
type Held struct {
	loaded atomic.Pointer[loaded]
}

// Hold takes a certificate with its key, and the authorities in PEM.
func Hold(pair Pair, authorities []byte) (*Held, error) {
	h := &Held{}
	if err := h.Replace(pair, authorities); err != nil {
		return nil, err
	}
	return h, nil
}

// Replace takes others. If they aren't in order, the former ones stay.
func (h *Held) Replace(pair Pair, authorities []byte) error {
	fresh, err := parse(memory, [3][]byte{pair.Cert, pair.Key, authorities})
	if err != nil {
		return err
	}
	h.loaded.Store(fresh)
	return nil
}

// Names are those that the certificate gives us now.
func (h *Held) Names() Names { return h.loaded.Load().names }

// Until is when the certificate expires.
func (h *Held) Until() time.Time { return h.loaded.Load().cert.Leaf.NotAfter }

// Server is as that of Files.
func (h *Held) Server() *tls.Config { return server(h.loaded.Load) }

// Client is as that of Files.
func (h *Held) Client(wanted ...Name) *tls.Config { return client(h.loaded.Load, wanted) }
