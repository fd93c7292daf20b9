package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/test/manifests"
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

// env is an API server with all of config/default, and a manager with the permissions
// that this grants.
type env struct {
	client.Client
	t         *testing.T
	addresses map[string]string // by flag
	log       *logBuffer
}

// logBuffer has the manager's log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newEnv(t *testing.T) *env {
	t.Helper()
	apiserver.Need(t)
	var environment envtest.Environment
	config, err := environment.Start()
	if err != nil {
		t.Fatal("start the API server:", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error("stop the API server:", err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Client: c, t: t, addresses: map[string]string{}, log: &logBuffer{}}
	e.apply()
	user, err := environment.AddUser(envtest.User{Name: account, Groups: []string{"system:serviceaccounts"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	return e
}

func (e *env) apply() {
	e.t.Helper()
	objects, err := manifests.Build(e.t.Context(), "../..", "config/default")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, object := range objects {
		if err := e.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")); err != nil {
			e.t.Fatal(object.GetKind(), object.GetName(), err)
		}
	}
}

// start runs the manager as a process. It returns a function that stops the process and
// returns its exit status.
func (e *env) start(flags ...string) func() int {
	e.t.Helper()
	for _, flag := range []string{"metrics-address", "health-address", "webhook-port", "identity-port"} {
		port, err := testnet.FreePort()
		if err != nil {
			e.t.Fatal(err)
		}
		e.addresses[flag] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	args := append([]string{"--namespace", namespace, "--agent-image", "agent:1", "--leader-elect"}, flags...)
	for flag, address := range e.addresses {
		if strings.HasSuffix(flag, "port") {
			_, address, _ = strings.Cut(address, ":")
		}
		args = append(args, "--"+flag, address)
	}
	executable, err := os.Executable()
	if err != nil {
		e.t.Fatal(err)
	}
	manager := exec.CommandContext(context.WithoutCancel(e.t.Context()), executable, args...)
	manager.Env, manager.Stderr = append(os.Environ(), asManager+"=true"), e.log
	if err := manager.Start(); err != nil {
		e.t.Fatal(err)
	}
	stop := sync.OnceValue(func() int {
		if err := manager.Process.Signal(syscall.SIGTERM); err != nil {
			e.t.Error("the manager ended before SIGTERM:", err)
		}
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

// eventually polls a check until it returns no error.
func (e *env) eventually(what string, check func() error) {
	e.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(e.t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		e.t.Fatalf("timed out waiting until %s: %v: %v", what, err, last)
	}
}

func (e *env) get(object client.Object, in, name string) error {
	return e.Get(e.t.Context(), client.ObjectKey{Namespace: in, Name: name}, object)
}

// request sends a GET, or a POST if there is a body, to a server that must have a
// certificate of the manager's CA.
func (e *env) request(flag, service, path, token string, body []byte) (int, string, error) {
	e.t.Helper()
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := e.get(&webhook, "", "conclave"); err != nil {
		e.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(webhook.Webhooks[0].ClientConfig.CABundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: service + "." + namespace + ".svc"}}
	defer transport.CloseIdleConnections()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(e.t.Context(), method, "https://"+e.addresses[flag]+path, bytes.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
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
	err := e.SubResource("token").Create(e.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}, request)
	if err != nil {
		e.t.Fatal(err)
	}
	return request.Status.Token
}

func (e *env) create(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		if err := e.Create(e.t.Context(), object); err != nil {
			e.t.Fatal(err)
		}
	}
}

func TestManagerWorksWithItsPermissions(t *testing.T) {
	e := newEnv(t)
	stop := e.start()
	e.eventually("the manager is ready", e.ready)

	group := &v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"},
		Spec: v1.ElectionGroupSpec{
			Members: []v1.Member{{Pod: "ledger-0", Priority: 1}},
			Service: &v1.CoordinatorService{Name: "ledger", Ports: []v1.ServicePort{{Port: 80}}},
		},
	}
	e.create(group)
	e.eventually("the ConfigMap exists", func() error {
		return e.get(&corev1.ConfigMap{}, "default", control.ConfigMapName("ledger"))
	})
	e.eventually("the Service exists", func() error { return e.get(&corev1.Service{}, "default", "ledger") })
	e.expectEnrollment(t)
	e.expectMetrics(t)
	e.expectWebhookRepaired(t)

	if strings.Contains(e.log.String(), "forbidden") {
		t.Error("got \"forbidden\" in the log, want sufficient permissions")
	}
	if status := stop(); status != command.ExitOK {
		t.Errorf("got exit status %d, want %d", status, command.ExitOK)
	}
	var lease coordinationv1.Lease
	if err := e.get(&lease, namespace, "conclave-manager"); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("got lease %+v, want it released: %v", lease.Spec, err)
	}
}

// ready queries the readiness probe.
func (e *env) ready() error {
	response, err := http.Get("http://" + e.addresses["health-address"] + "/readyz")
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

func (e *env) expectEnrollment(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "ledger-0", Labels: map[string]string{v1.LabelAgent: "by-hand"},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "ledger", Containers: []corev1.Container{{Name: "application", Image: "none"}}},
	}
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}, pod)
	// The API server can't reach the webhook: there is no Service network here.
	pod.Labels[v1.LabelAgent] = v1.AgentEnabled
	if err := e.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(control.EnrollmentRequest{
		Token: e.token("default", "ledger", authenticationv1.TokenRequestSpec{
			Audiences:      []string{v1.TokenAudience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}),
		Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
	})
	if err != nil {
		t.Fatal(err)
	}
	var enrolled control.EnrollmentResponse
	status, text, err := e.request("identity-port", identityService, control.CertificatesPath, "", body)
	if err == nil {
		err = json.Unmarshal([]byte(text), &enrolled)
	}
	if err != nil || status != http.StatusOK || len(enrolled.Documents) != 1 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	var published corev1.ConfigMap
	if err := e.get(&published, "default", control.ConfigMapName("ledger")); err != nil {
		t.Fatal(err)
	}
	if published.Data[control.CABundleKey] != enrolled.CABundle || published.Data[control.DocumentKey] != enrolled.Documents[0] {
		t.Errorf("got %+v, want the CA bundle and document of the ConfigMap: %+v", enrolled, published.Data)
	}
}

// expectWebhookRepaired removes the CA bundle from the webhook configuration. The watch
// makes the manager write it again.
func (e *env) expectWebhookRepaired(t *testing.T) {
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := e.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	want := webhook.Webhooks[0].ClientConfig.CABundle
	webhook.Webhooks[0].ClientConfig.CABundle = nil
	if err := e.Update(t.Context(), &webhook); err != nil {
		t.Fatal(err)
	}
	e.eventually("the webhook configuration has the CA bundle again", func() error {
		err := e.get(&webhook, "", webhookConfig)
		if err == nil && !bytes.Equal(webhook.Webhooks[0].ClientConfig.CABundle, want) {
			err = fmt.Errorf("got CA bundle %q, want %q", webhook.Webhooks[0].ClientConfig.CABundle, want)
		}
		return err
	})
}

func (e *env) expectMetrics(t *testing.T) {
	e.create(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "conclave-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
		},
	)
	scrape := func(token string) (int, string) {
		status, text, err := e.request("metrics-address", metricsService, "/metrics", token, nil)
		if err != nil {
			t.Fatal(err)
		}
		return status, text
	}
	if status, text := scrape(""); status != http.StatusUnauthorized {
		t.Errorf("without a token: got status %d, want %d: %s", status, http.StatusUnauthorized, text)
	}
	if status, text := scrape(e.token("default", "stranger", authenticationv1.TokenRequestSpec{})); status != http.StatusForbidden {
		t.Errorf("without permission: got status %d, want %d: %s", status, http.StatusForbidden, text)
	}
	var text string
	e.eventually("the reader is authorized", func() error {
		var status int
		if status, text = scrape(e.token("default", "reader", authenticationv1.TokenRequestSpec{})); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	rules, err := os.ReadFile("../../config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`conclave_operator_\w+`).FindAllString(string(rules), -1)
	if len(names) < 5 {
		t.Errorf("got metrics %q in the alerts, want at least 5", names)
	}
	for _, name := range names {
		if !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("got no metric %s, which an alert uses:\n%s", name, text)
		}
	}
}
