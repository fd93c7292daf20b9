package lifecycle

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
)

// api is a client of the API server. It doesn't use client-go: for four requests, that would add a large module graph
// whose versions would have to match those of the operator.
type api struct {
	server string
	client http.Client
}

func newAPI(server string, ca []byte, client pki.Pair) (*api, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's CA must be a PEM certificate")
	}
	certificate, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the administrator's certificate: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
	}}
	return &api{server: server, client: http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

func (a *api) do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("cannot encode a request: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, content)
	if err != nil {
		return fmt.Errorf("cannot create a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("cannot read the answer to %s %s: %w", method, path, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return &apiError{status: response.StatusCode, text: fmt.Sprintf("%s %s: %s", method, path, answer)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

type apiError struct {
	status int
	text   string
}

func (e *apiError) Error() string { return e.text }

// ready returns nil if the API server is ready.
func (a *api) ready(ctx context.Context) error { return a.do(ctx, http.MethodGet, "/readyz", nil, nil) }

// reachesKubelet returns nil if the API server can send requests to the kubelet, as for kubectl logs and exec.
func (a *api) reachesKubelet(ctx context.Context, node string) error {
	return a.do(ctx, http.MethodGet, "/api/v1/nodes/"+node+"/proxy/healthz", nil, nil)
}

// create creates an object if it doesn't exist.
func (a *api) create(ctx context.Context, path string, object any) error {
	err := a.do(ctx, http.MethodPost, path, object, nil)
	var refused *apiError
	if errors.As(err, &refused) && refused.status == http.StatusConflict {
		return nil
	}
	return err
}

// nodeReady reports whether the node is Ready according to a heartbeat at that time or later. An older status may be that
// of a node that was killed since.
func (a *api) nodeReady(ctx context.Context, name string, since time.Time) (bool, error) {
	var node struct {
		Status struct {
			Conditions []struct {
				Type              string    `json:"type"`
				Status            string    `json:"status"`
				LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := a.do(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, &node); err != nil {
		var refused *apiError
		if errors.As(err, &refused) && refused.status == http.StatusNotFound {
			return false, nil // The node hasn't registered yet.
		}
		return false, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			// Times in the API have a resolution of a second.
			return condition.Status == "True" && !condition.LastHeartbeatTime.Before(since.Truncate(time.Second)), nil
		}
	}
	return false, nil
}

// grantDNS grants the nodes' CoreDNS read access to the objects from which it answers.
func (a *api) grantDNS(ctx context.Context) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	rule := func(group string, resources ...string) map[string]any {
		return map[string]any{"apiGroups": []string{group}, "resources": resources, "verbs": []string{"list", "watch"}}
	}
	role := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
		"metadata": map[string]any{"name": program.DNSUser},
		"rules": []any{
			rule("", "services", "pods", "namespaces"),
			rule("discovery.k8s.io", "endpointslices"),
		},
	}
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": program.DNSUser},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": program.DNSUser},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": program.DNSUser}},
	}
	if err := a.create(ctx, rbac+"clusterroles", role); err != nil {
		return fmt.Errorf("cannot grant CoreDNS read access: %w", err)
	}
	if err := a.create(ctx, rbac+"clusterrolebindings", binding); err != nil {
		return fmt.Errorf("cannot grant CoreDNS read access: %w", err)
	}
	return nil
}
