// Package pki creates the keys, certificates and kubeconfigs of one cluster. One CA issues all certificates. A permanent
// cluster has three CAs, but a throwaway cluster wouldn't benefit from them.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// Certificates are valid from backdate before their creation, in case the clock is set back.
const (
	validity = 10 * 365 * 24 * time.Hour
	backdate = time.Hour
)

// Pair is a private key with its certificate, both in PEM.
type Pair struct {
	Key  []byte `json:"key"`
	Cert []byte `json:"cert"`
}

// Identity is the subject of a certificate. For the API server, the name is the user and the organizations are the groups.
type Identity struct {
	Name          string
	Organizations []string
	DNSNames      []string
	Addresses     []netip.Addr
}

// NewCA creates a self-signed CA.
func NewCA(name string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot generate the CA's key: %w", err)
	}
	template, err := newTemplate(Identity{Name: name})
	if err != nil {
		return Pair{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	return sign(template, template, key, key)
}

// Issue creates a key and a certificate for it that is signed by the CA. The certificate is valid for clients and servers.
func Issue(ca Pair, identity Identity) (Pair, error) {
	parent, parentKey, err := parse(ca)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot read the CA: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot generate a key for %s: %w", identity.Name, err)
	}
	template, err := newTemplate(identity)
	if err != nil {
		return Pair{}, err
	}
	return sign(template, parent, key, parentKey)
}

func newTemplate(identity Identity) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("cannot generate a serial number: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: identity.Name, Organization: identity.Organizations},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:     identity.DNSNames,
	}
	for _, address := range identity.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	return template, nil
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, error) {
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot encode the key of %s: %w", template.Subject.CommonName, err)
	}
	return Pair{
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}),
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
	}, nil
}

func parse(pair Pair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certBlock, _ := pem.Decode(pair.Cert)
	keyBlock, _ := pem.Decode(pair.Key)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("the key and the certificate must be PEM")
	}
	certificate, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot parse the certificate: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot parse the key: %w", err)
	}
	ecdsaKey, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("the key must be an ECDSA key, got %T", key)
	}
	return certificate, ecdsaKey, nil
}

// Kubeconfig returns a kubeconfig for a client certificate. It is JSON, which is valid YAML.
func Kubeconfig(cluster, server string, ca []byte, client Pair) ([]byte, error) {
	encode := base64.StdEncoding.EncodeToString
	content := map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": cluster,
		"clusters": []any{map[string]any{"name": cluster, "cluster": map[string]any{
			"server": server, "certificate-authority-data": encode(ca),
		}}},
		"users": []any{map[string]any{"name": cluster, "user": map[string]any{
			"client-certificate-data": encode(client.Cert), "client-key-data": encode(client.Key),
		}}},
		"contexts": []any{map[string]any{"name": cluster, "context": map[string]any{"cluster": cluster, "user": cluster}}},
	}
	encoded, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot encode a kubeconfig: %w", err)
	}
	return append(encoded, '\n'), nil
}
