package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const (
	namespace = "conclave-system"
	account   = "system:serviceaccount:" + namespace + ":conclave-manager"
)

// asManager makes the test binary run the manager. A process can't run two managers, one
// after the other: metrics stay registered.
const asManager = "CONCLAVE_TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// env is an API server with all of config/default, and a manager with the permissions that this grants.
type env struct {
	client.Client
	caBundle  []byte // nil means that of the webhook configuration
	t         *testing.T
	addresses map[string]string // by flag
	log       *testwait.Log
	pid       int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	need.Complete(t)
	environment := apiserver.Start(t)
	c := testclient.New(t, environment.Config)
	e := &env{Client: c, t: t, addresses: map[string]string{}, log: &testwait.Log{}}
	e.applyConfig()
	user, err := environment.AddUser(envtest.User{Name: account, Groups: []string{"system:serviceaccounts"}}, nil)
	must.Succeed(t, err)
	text, err := user.KubeConfig()
	must.Succeed(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, text, 0o600))
	t.Setenv("KUBECONFIG", kubeconfig)
	return e
}

func (e *env) applyConfig() {
	e.t.Helper()
	objects, err := manifests.Build(e.t.Context(), "../..", "config/default")
	must.Succeed(e.t, err)
	for _, object := range objects {
		if err := e.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("kubectl")); err != nil {
			e.t.Fatal(object.GetKind(), object.GetName(), err)
		}
	}
}

// start runs the manager as a process. It returns a function that stops the process and returns its exit status.
func (e *env) start() func() int {
	e.t.Helper()
	for _, flag := range []string{"metrics-address", "health-address", "webhook-port", "identity-port"} {
		port, err := testnet.FreePort()
		must.Succeed(e.t, err)
		e.addresses[flag] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	var args []string
	for flag, address := range e.addresses {
		if strings.HasSuffix(flag, "port") {
			_, address, _ = strings.Cut(address, ":")
		}
		args = append(args, "--"+flag, address)
	}
	executable, err := os.Executable()
	must.Succeed(e.t, err)
	manager := exec.CommandContext(context.WithoutCancel(e.t.Context()), executable, args...)
	manager.Env, manager.Stderr = append(os.Environ(), asManager+"=true", "POD_NAMESPACE="+namespace,
		"AGENT_IMAGE=agent:1"), e.log
	must.Succeed(e.t, manager.Start())
	e.pid = manager.Process.Pid
	stop := sync.OnceValue(func() int {
		expect.Succeedf(e.t, manager.Process.Signal(syscall.SIGTERM), "the manager ended before SIGTERM")
		_ = manager.Wait() // The exit status has the result.
		return manager.ProcessState.ExitCode()
	})
	e.t.Cleanup(func() {
		stop()
		if e.t.Failed() {
			e.t.Log(e.log)
		}
	})
	return stop
}

// eventually waits until a check returns no error.
func (e *env) eventually(what string, check func() error) {
	e.t.Helper()
	const interval = 20 * time.Millisecond // The client limits its requests.
	var last error
	if !testwait.Within(testwait.Limit, interval, func() bool { last = check(); return last == nil }) {
		e.t.Fatalf("timed out waiting until %s: %v", what, last)
	}
}

func (e *env) get(object client.Object, in, name string) error {
	return e.Get(e.t.Context(), client.ObjectKey{Namespace: in, Name: name}, object)
}

// tlsConfig trusts the manager's CA.
func (e *env) tlsConfig(service string) *tls.Config {
	e.t.Helper()
	bundle := e.caBundle
	if bundle == nil {
		var webhook admissionregistrationv1.MutatingWebhookConfiguration
		must.Succeed(e.t, e.get(&webhook, "", webhookConfig))
		bundle = webhook.Webhooks[0].ClientConfig.CABundle
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &tls.Config{RootCAs: roots, ServerName: service + "." + namespace + ".svc"}
}

// request sends a GET, or a POST if there is a body, to a server that must have a certificate of the manager's CA.
func (e *env) request(ctx context.Context, flag, service, path, token string, body []byte) (int, string, error) {
	e.t.Helper()
	transport := &http.Transport{TLSClientConfig: e.tlsConfig(service)} //nolint:contextcheck // the CA is read
	defer transport.CloseIdleConnections()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+e.addresses[flag]+path, bytes.NewReader(body))
	must.Succeed(e.t, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (e *env) token(in, name string, spec authenticationv1.TokenRequestSpec) string {
	e.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: spec}
	err := e.SubResource("token").Create(e.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}, request)
	must.Succeed(e.t, err)
	return request.Status.Token
}

func (e *env) create(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		must.Succeed(e.t, e.Create(e.t.Context(), object))
	}
}

// ready queries the readiness probe.
func (e *env) ready() error {
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet,
		"http://"+e.addresses["health-address"]+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return err
}
