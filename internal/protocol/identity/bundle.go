package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// parse parses a certificate, its key and the CA bundle, and verifies the
// certificate. The errors name the sources by paths.
func parse(paths Paths, texts [3][]byte) (*loaded, error) {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", paths.Cert, paths.Key, err)
	}
	cas, err := parsePool(texts[2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths.CA, err)
	}
	var names Names
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if names, err = verifyChain(chainOf(&cert), cas, use); err != nil {
			return nil, fmt.Errorf("%s with %s: %w", paths.Cert, paths.CA, err)
		}
	}
	return &loaded{cert: &cert, names: names, cas: cas}, nil
}

// inMemory names the sources of a certificate that isn't in files.
var inMemory = Paths{"certificate", "key", "CA bundle"}

// Verify checks that a certificate is valid now, has this key, and is signed by a CA
// of the bundle. It returns the names in the certificate.
func Verify(pair Pair, caBundle []byte) (Names, error) {
	result, err := parse(inMemory, [3][]byte{pair.Cert, pair.Key, caBundle})
	if err != nil {
		return nil, err
	}
	return result.names, nil
}

// ParseCABundle parses the CA certificates in a PEM text. The text must have at least
// one, and nothing else.
func ParseCABundle(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			// A file that is being written may end within a certificate.
			if len(all) == 0 || bytes.Contains(rest, []byte("-----BEGIN")) {
				return nil, errors.New("must contain complete CA certificates in PEM")
			}
			return all, nil
		}
		if block.Type != certificateBlock {
			return nil, fmt.Errorf("must contain only CA certificates, got a %s", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot parse CA certificate: %w", err)
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("must contain only CA certificates, but that of %q is not one", cert.Subject)
		}
		all = append(all, cert)
	}
}

func parsePool(text []byte) (*x509.CertPool, error) {
	all, err := ParseCABundle(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, cert := range all {
		pool.AddCert(cert)
	}
	return pool, nil
}

func chainOf(cert *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{cert.Leaf}
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return chain
}

// verifyChain verifies that the first certificate of a chain is valid now for a use,
// and signed by one of the CAs. It returns the names in the certificate.
func verifyChain(chain []*x509.Certificate, cas *x509.CertPool, use x509.ExtKeyUsage) (Names, error) {
	if len(chain) == 0 {
		return nil, errors.New("missing")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: cas, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return nil, explain(chain[0], err)
	}
	return NamesOf(chain[0])
}

// explain adds to common verification errors what to do about them.
func explain(cert *x509.Certificate, err error) error {
	var (
		invalid x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.Equal(cert):
		// Without err, which has the current time: an error that repeats is logged once.
		return fmt.Errorf("not valid now, only from %s to %s: issue a new certificate, or correct the clock of this machine",
			day(cert.NotBefore), day(cert.NotAfter))
	case errors.As(err, &unknown):
		return fmt.Errorf("signed by none of the CAs in the CA bundle: %w", err)
	}
	return err
}
