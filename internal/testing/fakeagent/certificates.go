package fakeagent

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// CertificateFactory issues the certificates of fake agents and of the operator.
type CertificateFactory struct {
	Authority *identity.CA
	// Authorities is the CA bundle, in PEM.
	Authorities []byte

	operator *identity.InMemory
}

// validity is that of real agents' certificates.
const validity = 24 * time.Hour

// NewCertificateFactory creates a CA and the operator's certificate.
func NewCertificateFactory() (*CertificateFactory, error) {
	authority, root, err := identity.NewCA("fakeagent", validity)
	if err != nil {
		return nil, fmt.Errorf("cannot create a CA: %w", err)
	}
	w := &CertificateFactory{Authority: authority, Authorities: root.Cert}
	w.operator, err = w.hold("", control.Operator)
	return w, err
}

// Client is the TLS configuration with which the operator dials an agent.
func (w *CertificateFactory) Client(wanted ...identity.Name) *tls.Config {
	return w.operator.Client(wanted...)
}

func (w *CertificateFactory) hold(uid string, names ...identity.Name) (*identity.InMemory, error) {
	pair, err := w.Authority.IssueToPod(names, uid, validity)
	if err != nil {
		return nil, err
	}
	return identity.NewInMemory(pair, w.Authorities)
}
