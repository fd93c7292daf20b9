package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// issue writes a certificate to a folder, like a mounted Secret of cert-manager, and
// returns it.
func issue(t *testing.T, folder string, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{webhookService + "." + namespace + ".svc"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		written := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(written, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(written, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

// checkServed checks that the webhook serves a certificate.
func (e *env) checkServed(want []byte) error {
	var served []byte
	connection, err := tls.Dial("tcp", e.addresses["webhook-port"], &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection checks it.
		VerifyConnection: func(state tls.ConnectionState) error {
			served = state.PeerCertificates[0].Raw
			return nil
		},
	})
	if err != nil {
		return err
	}
	if !bytes.Equal(served, want) {
		err = errors.New("got another certificate")
	}
	_ = connection.Close() // Only the handshake matters.
	return err
}

// With cert-manager, the certificate comes from a folder, and cert-manager publishes the CA
// bundle.
func TestWebhookCertificateFromFolder(t *testing.T) {
	e := newEnv(t)
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := e.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	first := issue(t, folder, 1)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first})
	webhook.Webhooks[0].ClientConfig.CABundle = bundle
	if err := e.Update(t.Context(), &webhook); err != nil {
		t.Fatal(err)
	}
	e.start("--webhook-certificates", folder)
	e.eventually("the manager is ready", e.ready)
	e.eventually("the webhook serves the certificate in the folder", func() error { return e.checkServed(first) })
	second := issue(t, folder, 2)
	e.eventually("the webhook serves the new certificate", func() error { return e.checkServed(second) })
	if err := e.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(webhook.Webhooks[0].ClientConfig.CABundle, bundle) {
		t.Errorf("got CA bundle %q, want it unchanged: %q", webhook.Webhooks[0].ClientConfig.CABundle, bundle)
	}
}
