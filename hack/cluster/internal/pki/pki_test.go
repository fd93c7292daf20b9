package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestIssuedCertificateIsValidForClientsAndServers(t *testing.T) {
	ca, err := NewCA("ca")
	must.Succeed(t, err)
	address := netip.MustParseAddr("172.30.0.11")
	pair, err := Issue(ca, Identity{
		Name: "system:node:node-1", Organizations: []string{"system:nodes"},
		DNSNames: []string{"node-1"}, Addresses: []netip.Addr{address},
	})
	must.Succeed(t, err)
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	for _, name := range []string{"node-1", address.String()} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			options := x509.VerifyOptions{DNSName: name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}
			if _, err := loaded.Leaf.Verify(options); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if subject := loaded.Leaf.Subject; subject.CommonName != "system:node:node-1" || subject.Organization[0] != "system:nodes" {
		t.Errorf("got subject %v", subject)
	}
	if _, err := Issue(pair, Identity{Name: "intruder"}); err != nil {
		t.Fatal(err)
	} else if forged, _ := Issue(pair, Identity{Name: "intruder"}); verifies(t, roots, forged) {
		t.Error("got a valid certificate that a node issued")
	}
}

func verifies(t *testing.T, roots *x509.CertPool, pair Pair) bool {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must.Succeed(t, err)
	_, err = loaded.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func TestKubeconfigContainsServerAndCredentials(t *testing.T) {
	content, err := Kubeconfig("test", "https://127.0.0.1:1", []byte("ca"), Pair{Key: []byte("key"), Cert: []byte("cert")})
	must.Succeed(t, err)
	var read struct {
		Context string `json:"current-context"`
		Users   []struct {
			User map[string]string `json:"user"`
		} `json:"users"`
	}
	must.Succeed(t, json.Unmarshal(content, &read))
	if read.Context != "test" || read.Users[0].User["client-key-data"] != "a2V5" || !strings.Contains(string(content), "https://127.0.0.1:1") {
		t.Errorf("got kubeconfig %s", content)
	}
}
