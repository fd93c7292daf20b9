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

// Serving is a server's certificate. It is in no file: it is made when the
// manager starts, and again when a third of its time is over.
type Serving struct {
	hosts []string
	cert  atomic.Pointer[tls.Certificate]
}

// Serving makes a certificate for a server that is known by the names of its
// hosts, and renews it.
func (k *Keeper) Serving(hosts ...string) (*Serving, error) {
	s := &Serving{hosts: hosts}
	return s, k.hold(s)
}

// Certificate is tls.Config's GetCertificate.
func (s *Serving) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.cert.Load(), nil
}

func (s *Serving) renew(v view, now time.Time) error {
	if old := s.cert.Load(); old != nil && lasts(old.Leaf, v, now) {
		return nil
	}
	pair, err := v.signer.IssueServer(s.hosts, CertificateValid)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	s.cert.Store(&cert)
	return nil
}

// Operator is the operator's certificate, which it shows to agents.
type Operator struct {
	*identity.InMemory
	pair   identity.Pair
	leaf   *x509.Certificate
	bundle string
}

// Operator makes the operator's certificate, and renews it.
func (k *Keeper) Operator() (*Operator, error) {
	o := &Operator{}
	return o, k.hold(o)
}

func (o *Operator) renew(v view, now time.Time) error {
	bundle := v.state.Bundle()
	if o.leaf != nil && lasts(o.leaf, v, now) && o.bundle == string(bundle) {
		return nil
	}
	pair, leaf := o.pair, o.leaf
	if leaf == nil || !lasts(leaf, v, now) {
		var err error
		if pair, err = v.signer.Issue(identity.Names{control.Operator}, CertificateValid); err != nil {
			return err
		}
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return err
		}
		leaf = cert.Leaf
	}
	if err := o.take(pair, bundle); err != nil {
		return err
	}
	o.pair, o.leaf, o.bundle = pair, leaf, string(bundle)
	return nil
}

func (o *Operator) take(pair identity.Pair, bundle []byte) error {
	if o.InMemory != nil {
		return o.Replace(pair, bundle)
	}
	var err error
	o.InMemory, err = identity.NewInMemory(pair, bundle)
	return err
}

// hold makes a holder's certificate, and has it renewed from then on.
func (k *Keeper) hold(h holder) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	if now.Sub(k.view.read) > oldest {
		return errors.New("the authority hasn't been read for long")
	}
	if err := h.renew(k.view, now); err != nil {
		return err
	}
	k.holders = append(k.holders, h)
	return nil
}

// lasts reports whether two thirds of a certificate's time are left, and its
// authority is one that is trusted.
func lasts(leaf *x509.Certificate, v view, now time.Time) bool {
	if leaf.NotAfter.Sub(now) < CertificateValid*2/3 {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(v.state.Bundle())
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}
