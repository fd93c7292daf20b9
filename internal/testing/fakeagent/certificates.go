package fakeagent

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// CertificateFactory makes the certificates.
type CertificateFactory struct {
	Authority *identity.Authority
	// Authorities are the certificates of all authorities that are trusted, in PEM.
	Authorities []byte

	operator *identity.Held
}

// certified is how long a certificate lasts, as those of agents do.
const certified = 24 * time.Hour

// NewCertificateFactory is one with an authority of its own, and the operator's certificate.
func NewCertificateFactory() (*CertificateFactory, error) {
	authority, root, err := identity.NewAuthority("understudies", certified)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	w := &CertificateFactory{Authority: authority, Authorities: root.Cert}
	w.operator, err = w.hold(control.Operator)
	return w, err
}

// Client has the operator dial, as its credentials do.
func (w *CertificateFactory) Client(wanted ...identity.Name) *tls.Config {
	return w.operator.Client(wanted...)
}

func (w *CertificateFactory) hold(names ...identity.Name) (*identity.Held, error) {
	pair, err := w.Authority.Issue(names, certified)
	if err != nil {
		return nil, err
	}
	return identity.Hold(pair, w.Authorities)
}
