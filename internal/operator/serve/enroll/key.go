package enroll

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
)

// requestedKey returns the public key of a certificate request. The signature of the
// request proves that the sender has the private key.
func requestedKey(request string) (crypto.PublicKey, error) {
	block, _ := pem.Decode([]byte(request))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, refuse(Malformed, "request must be a CERTIFICATE REQUEST in PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, refuse(Malformed, "request must be a certificate request: %s", err)
	}
	switch parsed.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		// RSA keys have no size limit, and large ones are expensive to verify.
		return nil, refuse(Malformed, "request must have an ECDSA or Ed25519 key, not %s", parsed.PublicKeyAlgorithm)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, refuse(Malformed, "request must be signed by its own key: %s", err)
	}
	return parsed.PublicKey, nil
}
