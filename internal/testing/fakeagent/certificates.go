package fakeagent

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Wardrobe makes the certificates.
type Wardrobe struct {
	Authority *identity.Authority
	// Authorities are the certificates of all authorities that are trusted, in PEM.
	Authorities []byte

	operator *identity.Held
}

// certified is how long a certificate lasts, as those of agents do.
const certified = 24 * time.Hour

// NewWardrobe is one with an authority of its own, and the operator's certificate.
func NewWardrobe() (*Wardrobe, error) {
	authority, root, err := identity.NewAuthority("understudies", certified)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	w := &Wardrobe{Authority: authority, Authorities: root.Cert}
	w.operator, err = w.hold(control.Operator)
	return w, err
}

// Client has the operator dial, as its credentials do.
func (w *Wardrobe) Client(wanted ...identity.Name) *tls.Config { return w.operator.Client(wanted...) }

func (w *Wardrobe) hold(names ...identity.Name) (*identity.Held, error) {
	pair, err := w.Authority.Issue(names, certified)
	if err != nil {
		return nil, err
	}
	return identity.Hold(pair, w.Authorities)
}
