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
	// backdate lets peers whose clocks are behind accept a new certificate.
	backdate = time.Hour

	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Pair is a certificate and its private key, in PEM.
type Pair struct {
	Cert, Key []byte
}

// CA is a certificate authority that signs the certificates of agents.
//
// All keys are ECDSA on P-256. Ed25519 is no faster here, and fewer TLS libraries,
// hardware security modules and certificate services support it.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA creates a CA with a self-signed certificate. The Pair is for storage.
func NewCA(name string, valid time.Duration) (*CA, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("cannot generate CA key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(valid),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // no intermediate CAs
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("cannot create CA certificate: %w", err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, Pair{}, err
	}
	ca, err := ParseCA(pair)
	return ca, pair, err
}

// LoadCA reads a CA from two files.
func LoadCA(certFile, keyFile string) (*CA, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read CA certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read CA key: %w", err)
	}
	ca, err := ParseCA(Pair{Cert: cert, Key: key})
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return ca, nil
}

// ParseCA parses the Pair of NewCA, or one from another source.
func ParseCA(pair Pair) (*CA, error) {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot parse CA: %w", err)
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, errors.New("CA key cannot sign")
	case !both.Leaf.IsCA:
		return nil, errors.New("not a CA certificate")
	}
	return &CA{cert: both.Leaf, key: key}, nil
}

// NotAfter returns the expiry of the CA's own certificate. The certificates that it signs expire no later.
func (ca *CA) NotAfter() time.Time { return ca.cert.NotAfter }

// Issue creates a key and a certificate for an agent with these names.
func (ca *CA) Issue(names Names, valid time.Duration) (Pair, error) {
	return ca.IssueToPod(names, "", valid)
}

// IssueToPod is like Issue, for an agent in the pod with this UID.
func (ca *CA) IssueToPod(names Names, uid string, valid time.Duration) (Pair, error) {
	return issue(func(key crypto.PublicKey) ([]byte, error) { return ca.sign(names, uid, key, valid) })
}

// issue creates a key and a certificate for it.
func issue(sign func(crypto.PublicKey) ([]byte, error)) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot generate key: %w", err)
	}
	der, err := sign(key.Public())
	if err != nil {
		return Pair{}, err
	}
	return encode(der, key)
}

// AgentHost is the host name in the certificate of each agent in a pod. It lets Prometheus,
// which knows no member names, verify that it scrapes an agent. Nothing else uses it.
const AgentHost = "agent.conclave.dev"

// Sign returns a certificate, in PEM, for an agent with these names and this public
// key. The UID is that of the agent's pod, empty if it has none.
func (ca *CA) Sign(names Names, uid string, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	der, err := ca.sign(names, uid, key, valid)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

func (ca *CA) sign(names Names, uid string, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	if err := names.check(); err != nil {
		return nil, fmt.Errorf("cannot sign certificate: %w", err)
	}
	var uris []*url.URL
	for _, name := range names {
		if err := name.check(); err != nil {
			return nil, fmt.Errorf("cannot sign certificate for %s: %w", name, err)
		}
		uris = append(uris, name.url())
	}
	var hosts []string
	if uid != "" {
		hosts = []string{AgentHost}
	}
	return ca.certify(&x509.Certificate{
		URIs: uris, DNSNames: hosts,
		Subject: pkix.Name{SerialNumber: uid},
		// An agent both dials and accepts connections.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, key, valid)
}

// IssueServer creates a key and a certificate for a server with these host names.
// The certificate names no member of a group.
func (ca *CA) IssueServer(hosts []string, valid time.Duration) (Pair, error) {
	template := &x509.Certificate{DNSNames: hosts, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	return issue(func(key crypto.PublicKey) ([]byte, error) { return ca.certify(template, key, valid) })
}

// certify completes the template with the fields that all certificates share, and signs it.
func (ca *CA) certify(template *x509.Certificate, key crypto.PublicKey, valid time.Duration) ([]byte, error) {
	now := time.Now()
	if !now.Before(ca.cert.NotAfter) {
		return nil, fmt.Errorf("CA certificate expired on %s: create a new CA", day(ca.cert.NotAfter))
	}
	notAfter := now.Add(valid)
	if notAfter.After(ca.cert.NotAfter) {
		notAfter = ca.cert.NotAfter
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), notAfter
	template.BasicConstraintsValid, template.KeyUsage = true, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign certificate: %w", err)
	}
	return der, nil
}

func encode(der []byte, key crypto.PrivateKey) (Pair, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: secret}),
	}, nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
