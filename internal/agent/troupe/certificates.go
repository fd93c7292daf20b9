package troupe

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// writeCertificates makes a CA, and for each name NAME.pem and NAME-key.pem,
// which say who it is: conclave://DOMAIN/GROUP/NAME.
func writeCertificates(folder, group string, names []string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of the CA: %w", err)
	}
	ca := certificate(1, "troupe")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	if err := sign(filepath.Join(folder, "ca.pem"), ca, ca, caKey, caKey); err != nil {
		return err
	}
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("make the key of %s: %w", name, err)
		}
		encoded, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return fmt.Errorf("encode the key of %s: %w", name, err)
		}
		if err := writePEM(filepath.Join(folder, name+"-key.pem"), "PRIVATE KEY", encoded); err != nil {
			return err
		}
		leaf := certificate(int64(i)+2, name)
		leaf.URIs = []*url.URL{{Scheme: "conclave", Host: "default", Path: "/" + group + "/" + name}}
		leaf.KeyUsage = x509.KeyUsageDigitalSignature
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		if err := sign(filepath.Join(folder, name+".pem"), leaf, ca, key, caKey); err != nil {
			return err
		}
	}
	return nil
}

func certificate(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func sign(path string, certificate, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) error {
	signed, err := x509.CreateCertificate(rand.Reader, certificate, parent, key.Public(), parentKey)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", certificate.Subject.CommonName, err)
	}
	return writePEM(path, "CERTIFICATE", signed)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
