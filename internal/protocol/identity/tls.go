package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Server is how an agent is dialled: TLS 1.3, and both sides show who they are.
func (f *Files) Server() *tls.Config { return server(f.current) }

// PublicServer is how an agent is dialled by anybody. Whoever shows a certificate must
// show a valid one; who they are, PeerNames says.
func (f *Files) PublicServer() *tls.Config {
	config := f.Server()
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

// Client is how an agent dials whoever may speak for one of wanted, or for
// anyone if wanted is empty.
//
// In TLS 1.3 the dialling side is done before it is verified: if the other side
// refuses it, the first Read says so.
func (f *Files) Client(wanted ...Name) *tls.Config { return client(f.current, wanted) }

func server(current func() *loaded) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true, // who resumes a session shows no certificate
		ClientAuth:             tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return current().cert, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := verified(state.PeerCertificates, current().authorities, x509.ExtKeyUsageClientAuth)
			return inPeers(err)
		},
	}
}

func client(current func() *loaded, wanted Names) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// What crypto/tls would verify is a host name, against authorities that
		// can't change. VerifyConnection does instead, and is always called.
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return current().cert, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			names, err := verified(state.PeerCertificates, current().authorities, x509.ExtKeyUsageServerAuth)
			if err == nil && len(wanted) > 0 && !names.Intersects(wanted) {
				err = fmt.Errorf("it is for %s, and not for %s", names, wanted)
			}
			return inPeers(err)
		},
	}
}

// PeerNames are the names of the other side of a connection whose handshake is over.
func PeerNames(state tls.ConnectionState) (Names, error) {
	if !state.HandshakeComplete || len(state.PeerCertificates) == 0 {
		return nil, errors.New("the peer has shown no certificate")
	}
	names, err := NamesOf(state.PeerCertificates[0])
	return names, inPeers(err)
}

func inPeers(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the peer's certificate: %w", err)
}

// verified are the names of a certificate that an authority has signed, for a
// use, and that is valid now.
func verified(chain []*x509.Certificate, authorities *x509.CertPool, use x509.ExtKeyUsage) (Names, error) {
	if len(chain) == 0 {
		return nil, errors.New("there is none")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return nil, explained(chain[0], err)
	}
	return NamesOf(chain[0])
}

// explained says what to do about the usual mistakes.
func explained(cert *x509.Certificate, err error) error {
	var (
		invalid x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.Equal(cert):
		return fmt.Errorf("it is valid from %s to %s, so by this machine's clock not now: issue a new one, or set the clock: %w",
			day(cert.NotBefore), day(cert.NotAfter), err)
	case errors.As(err, &unknown):
		return fmt.Errorf("it is of another authority than those of the CA file: %w", err)
	}
	return err
}
