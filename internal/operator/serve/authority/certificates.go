package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// ServerCertificate is the TLS certificate of a server. It is held in memory only:
// it is issued when the manager starts, and again after a third of its validity.
type ServerCertificate struct {
	hosts []string
	cert  atomic.Pointer[tls.Certificate]
}

// NewServerCertificate issues a certificate for a server with these host names, and renews it from then on.
func (s *Store) NewServerCertificate(hosts ...string) (*ServerCertificate, error) {
	c := &ServerCertificate{hosts: hosts}
	return c, s.addCertificate(c)
}

// GetCertificate is for tls.Config.GetCertificate.
func (c *ServerCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.cert.Load(), nil
}

// NotAfter returns when the current certificate expires.
func (c *ServerCertificate) NotAfter() time.Time { return c.cert.Load().Leaf.NotAfter }

func (c *ServerCertificate) renew(v view, now time.Time) error {
	if old := c.cert.Load(); old != nil && isCurrent(old.Leaf, v, now) {
		return nil
	}
	pair, err := v.signer.IssueServer(c.hosts, CertificateValidity)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	c.cert.Store(&cert)
	return nil
}

// OperatorCertificate is the certificate by which the operator authenticates to agents.
type OperatorCertificate struct {
	*identity.InMemory
	pair   identity.Pair
	leaf   *x509.Certificate
	bundle string
}

// NewOperatorCertificate issues the operator's certificate, and renews it from then on.
func (s *Store) NewOperatorCertificate() (*OperatorCertificate, error) {
	c := &OperatorCertificate{}
	return c, s.addCertificate(c)
}

func (c *OperatorCertificate) renew(v view, now time.Time) error {
	bundle := v.state.Bundle()
	if c.leaf != nil && isCurrent(c.leaf, v, now) && c.bundle == string(bundle) {
		return nil
	}
	pair, leaf := c.pair, c.leaf
	if leaf == nil || !isCurrent(leaf, v, now) {
		var err error
		if pair, err = v.signer.Issue(identity.Names{control.Operator}, CertificateValidity); err != nil {
			return err
		}
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return err
		}
		leaf = cert.Leaf
	}
	if err := c.setCertificate(pair, bundle); err != nil {
		return err
	}
	c.pair, c.leaf, c.bundle = pair, leaf, string(bundle)
	return nil
}

func (c *OperatorCertificate) setCertificate(pair identity.Pair, bundle []byte) error {
	if c.InMemory != nil {
		return c.Replace(pair, bundle)
	}
	var err error
	c.InMemory, err = identity.NewInMemory(pair, bundle)
	return err
}

// addCertificate issues a certificate, and renews it from then on.
func (s *Store) addCertificate(c renewable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	if now.Sub(s.view.read) > maxViewAge {
		return errors.New("cannot issue certificate: the CA Secret was last read too long ago")
	}
	if err := c.renew(s.view, now); err != nil {
		return err
	}
	s.certificates = append(s.certificates, c)
	return nil
}

// isCurrent reports whether a certificate has at least two thirds of its validity left and was signed by a trusted CA.
func isCurrent(leaf *x509.Certificate, v view, now time.Time) bool {
	if leaf.NotAfter.Sub(now) < CertificateValidity*2/3 {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(v.state.Bundle())
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}
