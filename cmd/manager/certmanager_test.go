package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// issue puts a certificate into a folder, as cert-manager's Secret is mounted,
// and returns it.
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

// served wants the webhook to show a certificate.
func (d *deployed) served(want []byte) error {
	var shown []byte
	connection, err := tls.Dial("tcp", d.port["webhook-port"], &tls.Config{
		InsecureSkipVerify: true, // It is looked at here.
		VerifyConnection: func(state tls.ConnectionState) error {
			shown = state.PeerCertificates[0].Raw
			return nil
		},
	})
	if err != nil {
		return err
	}
	if !bytes.Equal(shown, want) {
		err = fmt.Errorf("it shows another one")
	}
	_ = connection.Close() // It has told all that it should.
	return err
}

// With cert-manager, the certificate comes from a folder, and whom the API server
// trusts is cert-manager's to say.
func TestTheWebhooksCertificateFromAFolder(t *testing.T) {
	d := newDeployed(t)
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := d.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	first := issue(t, folder, 1)
	theirs := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first})
	webhook.Webhooks[0].ClientConfig.CABundle = theirs
	if err := d.Update(t.Context(), &webhook); err != nil {
		t.Fatal(err)
	}
	d.start("--webhook-certificates", folder)
	d.await("it gets ready", d.ready)
	d.await("it shows what is in the folder", func() error { return d.served(first) })
	second := issue(t, folder, 2)
	d.await("it follows the folder", func() error { return d.served(second) })
	if err := d.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(webhook.Webhooks[0].ClientConfig.CABundle, theirs) {
		t.Error("it has told the API server whom to trust")
	}
}
