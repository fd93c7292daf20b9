package enroll

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net/http"
)

// keyOf is the public key of a certificate request, whose private half the
// sender has shown to have.
func keyOf(request string) (crypto.PublicKey, error) {
	block, _ := pem.Decode([]byte(request))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, refuse(http.StatusBadRequest, "request must be a CERTIFICATE REQUEST in PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "request must be a certificate request: %s", err)
	}
	switch parsed.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		// RSA keys can be of any size, and take long to verify.
		return nil, refuse(http.StatusBadRequest, "request must be for a key of ECDSA or Ed25519, not %s", parsed.PublicKeyAlgorithm)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, refuse(http.StatusBadRequest, "request isn't signed by its own key: %s", err)
	}
	return parsed.PublicKey, nil
}
