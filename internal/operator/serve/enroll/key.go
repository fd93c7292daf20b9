package enroll

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
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
	// Agents use no other key. Others are expensive to verify: P-521 takes more than ten times as long, and RSA keys have
	// no size limit.
	if key, ok := parsed.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, refuse(Malformed, "request must have an ECDSA key on P-256")
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, refuse(Malformed, "request must be signed by its own key: %s", err)
	}
	return parsed.PublicKey, nil
}
