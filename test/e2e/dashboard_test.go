package e2e

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// testDashboard deploys the dashboard as described in docs/dashboard.md. A kubelet starts it, mounts its certificate and probes it. Then
// users log in through a forwarded port.
func testDashboard(e env) {
	e.load(buildImage(e.t, "./cmd/dashboard", "conclave/dashboard:e2e"))
	browser := e.createCertificate()
	manifests := filepath.Join(e.t.TempDir(), "dashboard.yaml")
	text := run(e.t, "make", "-s", "-C", repositoryRoot, "deploy-dashboard", "KUBECTL=sh -c cat", "NAMESPACE="+operatorNamespace,
		"DASHBOARD_IMG=conclave/dashboard:e2e", "DASHBOARD_HOSTS=127.0.0.1")
	must.Succeed(e.t, os.WriteFile(manifests, []byte(text), 0o600))
	e.kubectl("apply", "--server-side", "-f", manifests)
	e.t.Cleanup(func() { e.kubectl("delete", "--ignore-not-found", "-f", manifests) })
	e.kubectl("wait", "deployment/conclave-dashboard", "--namespace", operatorNamespace, "--for=condition=Available", "--timeout", "5m",
		"--request-timeout", "0")

	for _, account := range []string{"alice", "mallory"} {
		e.kubectl("create", "serviceaccount", account, "--namespace", samplesNamespace)
	}
	e.kubectl("create", "rolebinding", "alice", "--namespace", samplesNamespace, "--clusterrole", "view", "--serviceaccount", samplesNamespace+":alice")
	address := e.forwardDashboard()
	e.waitUntil(defaultTimeout, "alice sees the groups of her namespace", func() bool {
		groups := e.readGroups(browser, address, "alice")
		return len(groups) > 0 && groups["ledger"] == highest
	})
	if groups := e.readGroups(browser, address, "mallory"); groups == nil || len(groups) > 0 {
		e.t.Errorf("mallory, who has no rights: got groups %v, want an empty list", groups)
	}
	if restarts := e.kubectl("get", "pods", "--namespace", operatorNamespace, "-l", "app.kubernetes.io/component=dashboard",
		"-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"); restarts != "0" {
		e.t.Errorf("got %q restarts of the dashboard, want one container without restarts", restarts)
	}
}

// createCertificate creates the Secret with a certificate for 127.0.0.1, and returns a client that trusts it.
func (e env) createCertificate() *http.Client {
	e.t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	e.t.Cleanup(server.Close)
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must.Succeed(e.t, err)
	folder := e.t.TempDir()
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		must.Succeed(e.t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
	e.kubectl("create", "secret", "tls", "conclave-dashboard", "--namespace", operatorNamespace,
		"--cert", filepath.Join(folder, "tls.crt"), "--key", filepath.Join(folder, "tls.key"))
	e.t.Cleanup(func() {
		e.kubectl("delete", "secret", "conclave-dashboard", "--namespace", operatorNamespace, "--ignore-not-found")
	})
	return server.Client()
}

// forwardDashboard forwards a local port to the dashboard until the test ends, and returns its address.
func (e env) forwardDashboard() string {
	e.t.Helper()
	forward := exec.Command(e.kubectlPath, "port-forward", "service/conclave-dashboard", ":443", "--namespace", operatorNamespace)
	forward.Env = append(os.Environ(), e.environment...)
	output, err := forward.StdoutPipe()
	must.Succeed(e.t, err)
	must.Succeed(e.t, forward.Start())
	e.t.Cleanup(func() {
		_ = forward.Process.Kill() // It may have ended.
		_ = forward.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n') // Forwarding from 127.0.0.1:40123 -> 8443
	address, found := strings.CutPrefix(line, "Forwarding from ")
	address, _, _ = strings.Cut(address, " ")
	if err != nil || !found {
		e.t.Fatalf("got %q, %v from kubectl port-forward, want an address", line, err)
	}
	return address
}

// readGroups returns the groups that a service account of the samples sees, with their coordinators. It returns nil if the dashboard
// sends no groups.
func (e env) readGroups(browser *http.Client, address, account string) map[string]string {
	e.t.Helper()
	token := e.kubectl("create", "token", account, "--namespace", samplesNamespace, "--audience", "dashboard.conclave.dev")
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "https://"+address+"/events", http.NoBody)
	must.Succeed(e.t, err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	response, err := browser.Do(request)
	if err != nil {
		e.t.Logf("the dashboard does not answer: %v", err)
		return nil
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: [")
		if !found {
			continue
		}
		var list []struct{ Namespace, Name, Coordinator string }
		must.Succeed(e.t, json.Unmarshal([]byte("["+data), &list))
		groups := map[string]string{}
		for _, g := range list {
			if g.Namespace != samplesNamespace {
				e.t.Errorf("%s sees group %s of namespace %s", account, g.Name, g.Namespace)
			}
			groups[g.Name] = g.Coordinator
		}
		return groups
	}
	e.t.Logf("got status %s, and no groups", response.Status)
	return nil
}
