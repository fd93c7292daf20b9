package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"
)

const (
	// backdate is for peers whose clocks are behind.
	backdate = time.Hour

	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Pair is a certificate and its private key, in PEM.
type Pair struct {
	Cert, Key []byte
}

// CA signs the certificates of agents.
//
// Its keys and theirs are ECDSA on P-256: as fast as Ed25519 here, and unlike
// that one, every TLS library, security module and certificate service that
// somebody may already have for this takes them.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA makes an authority, and what is to be kept of it.
func NewCA(name string, valid time.Duration) (*CA, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("make the authority's key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(valid),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs no other authorities
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("make the authority's certificate: %w", err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, Pair{}, err
	}
	a, err := ParseCA(pair)
	return a, pair, err
}

// LoadCA reads an authority from two files.
func LoadCA(certFile, keyFile string) (*CA, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	a, err := ParseCA(Pair{Cert: cert, Key: key})
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return a, nil
}

// ParseCA understands what NewCA gave out, or others made.
func ParseCA(pair Pair) (*CA, error) {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("no authority: %w", err)
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, errors.New("the authority's key can't sign")
	case !both.Leaf.IsCA:
		return nil, errors.New("this certificate is no authority's")
	}
	return &CA{cert: both.Leaf, key: key}, nil
}

// NotAfter is when the authority's own certificate expires: none of its
// certificates lasts longer.
func (a *CA) NotAfter() time.Time { return a.cert.NotAfter }

// Issue makes a key, and a certificate for names.
func (a *CA) Issue(names Names, valid time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := a.sign(names, key.Public(), valid)
	if err != nil {
		return Pair{}, err
	}
	return encode(der, key)
}

// Sign makes a certificate, in PEM, for the holder of the key to a public key.
func (a *CA) Sign(names Names, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	der, err := a.sign(names, key, valid)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

func (a *CA) sign(names Names, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	if err := names.check(); err != nil {
		return nil, fmt.Errorf("a certificate can't be signed: %w", err)
	}
	var uris []*url.URL
	for _, name := range names {
		if err := name.check(); err != nil {
			return nil, fmt.Errorf("a certificate for %s can't be signed: %w", name, err)
		}
		uris = append(uris, name.url())
	}
	return a.certify(&x509.Certificate{
		URIs: uris,
		// An agent dials and is dialled.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, key, valid)
}

// IssueServer makes a key, and a certificate for a server that is known by the
// names of its hosts. It speaks for no member.
func (a *CA) IssueServer(hosts []string, valid time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := a.certify(&x509.Certificate{
		DNSNames:    hosts,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public(), valid)
	if err != nil {
		return Pair{}, err
	}
	return encode(der, key)
}

// certify signs what all certificates have in common.
func (a *CA) certify(template *x509.Certificate, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	now := time.Now()
	if !now.Before(a.cert.NotAfter) {
		return nil, fmt.Errorf("the authority expired on %s: make a new one", day(a.cert.NotAfter))
	}
	until := now.Add(valid)
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), until
	template.BasicConstraintsValid, template.KeyUsage = true, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return der, nil
}

func encode(der []byte, key crypto.PrivateKey) (Pair, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: secret}),
	}, nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
