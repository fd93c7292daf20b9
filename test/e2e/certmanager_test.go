package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var withCertManager = flag.Bool("cert-manager", false, "test the operator with a webhook certificate of cert-manager")

// certManager is the module of cert-manager in hack/certmanager.
const certManager = "github.com/cert-manager/cert-manager"

// TestCertManager installs the operator with config/certmanager, and renews the certificates that cert-manager issues. Meanwhile, all
// pods that opt in are admitted, and the coordinator doesn't change.
func TestCertManager(t *testing.T) {
	if !*withCertManager {
		t.Skip("building cert-manager takes minutes: run make test-cert-manager")
	}
	c := newCluster(t, "hack")
	for source, tag := range map[string]string{"./cmd/manager": "conclave/manager:e2e", "./cmd/agent": "conclave/agent:e2e"} {
		c.load(buildImage(t, source, tag))
	}
	c.load(buildImage(t, ".", "conclave/certmanager:e2e", "-source", certManagerFolder(t)))
	c.kubectl("apply", "--server-side", "-f", filepath.Join(run(t, "go", "-C", certManagerFolder(t), "list", "-m", "-f", "{{.Dir}}", certManager), "deploy", "crds"))
	c.kubectl("apply", "-f", "testdata/certmanager.yaml")
	c.kubectl("apply", "--server-side", "-f", buildOverlay(t))
	c.kubectl("wait", "deployment/conclave-manager", "--namespace", operatorNamespace, "--for=condition=Available", "--timeout", "5m", "--request-timeout", "0")
	c.createNamespace(samplesNamespace)
	t.Cleanup(func() { logCertificates(c) })
	e := env{c, observe(t, c.name, "ledger", leaderPollInterval), map[string]electionGroup{}}
	start := time.Now()
	e.awaitInjection()
	testFirstGroup(e)
	e.awaitAgreement(start, highest, pods...)

	start = time.Now()
	e.admitPods()
	for _, certificate := range []string{"conclave-webhook", "conclave-webhook-ca", "conclave-webhook"} {
		e.renew(certificate)
	}
	e.awaitAllMembers()
	e.awaitAgreement(start, highest, pods...)
	if tenures := describeTenures(e.leadingSince(start)); len(tenures) != 1 {
		t.Errorf("got %d tenures while certificates were renewed, want 1:\n%s", len(tenures), strings.Join(tenures, "\n"))
	}
}

func certManagerFolder(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(repositoryRoot, "hack", "certmanager"))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// buildOverlay builds testdata/certmanager-overlay.yaml, and returns the file with the manifests.
func buildOverlay(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/certmanager-overlay.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(repositoryRoot, "bin", "e2e-certmanager")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	manifests := filepath.Join(t.TempDir(), "install.yaml")
	built := run(t, filepath.Join(repositoryRoot, "hack", "tools", "tool"), "kustomize", "build", folder)
	if err := os.WriteFile(manifests, []byte(built), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifests
}

// tryPod asks the API server to admit a pod that opts in, and doesn't create it.
func (e env) tryPod() error {
	output, err := e.tryKubectl("create", "--dry-run=server", "--namespace", samplesNamespace, "-f", "testdata/certmanager-pod.yaml", "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	if !strings.Contains(output, "conclave-agent") {
		return fmt.Errorf("the pod got no agent: %s", output)
	}
	return nil
}

// awaitInjection waits until the API server has the CA bundle.
func (e env) awaitInjection() {
	e.t.Helper()
	var err error
	e.waitUntil(defaultTimeout, "the webhook injects agents", func() bool { err = e.tryPod(); return err == nil })
}

// admitPods asks the API server again and again to admit a pod, until the test ends. Each pod must be admitted.
func (e env) admitPods() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	admitted, refused := 0, 0
	var first error
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := e.tryPod(); err == nil {
				admitted++
			} else if refused++; first == nil {
				first = fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err)
			}
		}
	}()
	e.t.Cleanup(func() {
		cancel()
		<-ended
		e.t.Logf("%d pods were admitted", admitted)
		if refused > 0 || admitted == 0 {
			e.t.Errorf("%d pods were refused and %d admitted while certificates were renewed; the first error: %v", refused, admitted, first)
		}
	})
}

// renew renews a certificate as "cmctl renew" does, and waits until all replicas of the operator serve the webhook with the certificate
// in the Secret.
func (e env) renew(certificate string) {
	e.t.Helper()
	before := e.issued(certificate)
	e.kubectl("patch", "certificate", certificate, "--namespace", operatorNamespace, "--subresource", "status", "--type", "merge", "-p",
		`{"status":{"conditions":[{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"renewed by the test"}]}}`)
	e.waitUntil(defaultTimeout, "cert-manager has renewed "+certificate, func() bool { return !bytes.Equal(e.issued(certificate).Raw, before.Raw) })
	e.waitUntil(defaultTimeout, "all replicas serve the certificate of the webhook", func() bool {
		current, served := e.issued("conclave-webhook"), e.servedByWebhook()
		return len(served) == 2 && !slices.ContainsFunc(served, func(c *x509.Certificate) bool { return !bytes.Equal(c.Raw, current.Raw) })
	})
}

// issued returns the certificate in the Secret of a Certificate.
func (e env) issued(certificate string) *x509.Certificate {
	e.t.Helper()
	var secret struct {
		Data struct {
			Cert []byte `json:"tls.crt"`
		}
	}
	if err := json.Unmarshal([]byte(e.kubectl("get", "secret", certificate, "--namespace", operatorNamespace, "-o", "json")), &secret); err != nil {
		e.t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data.Cert)
	if block == nil {
		e.t.Fatalf("Secret %s has no certificate", certificate)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		e.t.Fatal(err)
	}
	return parsed
}

// servedByWebhook returns the certificate that each replica of the operator serves.
func (e env) servedByWebhook() (all []*x509.Certificate) {
	e.t.Helper()
	for _, pid := range e.operatorProcesses() {
		inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			continue // The replica has ended.
		}
		connection, err := dialer(inside)(context.Background(), "tcp", "127.0.0.1:9443")
		_ = inside.Close() // It was only read.
		if err != nil {
			continue
		}
		client := tls.Client(connection, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // The test compares the certificate.
		if client.Handshake() == nil {
			all = append(all, client.ConnectionState().PeerCertificates[0])
		}
		_ = client.Close() // Only the handshake matters.
	}
	return all
}

func logCertificates(c *cluster) {
	logOperatorDiagnostics(c)
	if !c.t.Failed() {
		return
	}
	for _, arguments := range [][]string{
		{"describe", "issuers,certificates,certificaterequests", "--namespace", operatorNamespace},
		{"get", "mutatingwebhookconfiguration", "conclave", "-o", "yaml"},
		{"logs", "--namespace", "cert-manager", "deployment/cert-manager", "--tail", "100"},
	} {
		output, err := c.tryKubectl(arguments...)
		c.t.Logf("kubectl %s (%v):\n%s", strings.Join(arguments, " "), err, output)
	}
}
