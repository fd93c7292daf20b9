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

// asManager has the program of the tests be the manager: one process can't be two,
// one after the other, since what it counts is registered for good.
const asManager = "CONCLAVE_TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// deployed is a manager before a real API server that has all of config/default,
// with the rights that this gives it.
type deployed struct {
	client.Client
	t    *testing.T
	port map[string]string // addresses by flag
	log  *logged
}

// logged is what the manager has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newDeployed(t *testing.T) *deployed {
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
	d := &deployed{Client: c, t: t, port: map[string]string{}, log: &logged{}}
	d.apply()
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
	return d
}

func (d *deployed) apply() {
	d.t.Helper()
	objects, err := manifests.Build(d.t.Context(), "../..", "config/default")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, object := range objects {
		if err := d.Apply(d.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")); err != nil {
			d.t.Fatal(object.GetKind(), object.GetName(), err)
		}
	}
}

// start runs the manager as a process; the function that it returns ends it, and
// returns its exit status.
func (d *deployed) start(flags ...string) func() int {
	d.t.Helper()
	for _, flag := range []string{"metrics-address", "health-address", "webhook-port", "identity-port"} {
		port, err := testnet.FreePort()
		if err != nil {
			d.t.Fatal(err)
		}
		d.port[flag] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	args := append([]string{"--namespace", namespace, "--agent-image", "agent:1", "--leader-elect"}, flags...)
	for flag, address := range d.port {
		if strings.HasSuffix(flag, "port") {
			_, address, _ = strings.Cut(address, ":")
		}
		args = append(args, "--"+flag, address)
	}
	executable, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	manager := exec.CommandContext(context.WithoutCancel(d.t.Context()), executable, args...)
	manager.Env, manager.Stderr = append(os.Environ(), asManager+"=true"), d.log
	if err := manager.Start(); err != nil {
		d.t.Fatal(err)
	}
	end := sync.OnceValue(func() int {
		if err := manager.Process.Signal(syscall.SIGTERM); err != nil {
			d.t.Error("it ended before it was told to:", err)
		}
		_ = manager.Wait() // Its status says it.
		return manager.ProcessState.ExitCode()
	})
	d.t.Cleanup(func() {
		end()
		if d.t.Failed() {
			d.t.Log(d.log)
		}
	})
	return end
}

// await looks again and again, until done says that it is.
func (d *deployed) await(what string, done func() error) {
	d.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(d.t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = done()
		return last == nil, nil
	})
	if err != nil {
		d.t.Fatalf("%s: %v: %v", what, err, last)
	}
}

func (d *deployed) get(object client.Object, in, name string) error {
	return d.Get(d.t.Context(), client.ObjectKey{Namespace: in, Name: name}, object)
}

// ask is a GET or POST whose server must have a certificate of the authorities.
func (d *deployed) ask(flag, service, path, token string, body []byte) (int, string, error) {
	d.t.Helper()
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := d.get(&webhook, "", "conclave"); err != nil {
		d.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(webhook.Webhooks[0].ClientConfig.CABundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: service + "." + namespace + ".svc"}}
	defer transport.CloseIdleConnections()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(d.t.Context(), method, "https://"+d.port[flag]+path, bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
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

func (d *deployed) token(in, name string, spec authenticationv1.TokenRequestSpec) string {
	d.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: spec}
	err := d.SubResource("token").Create(d.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}, request)
	if err != nil {
		d.t.Fatal(err)
	}
	return request.Status.Token
}

func (d *deployed) create(objects ...client.Object) {
	d.t.Helper()
	for _, object := range objects {
		if err := d.Create(d.t.Context(), object); err != nil {
			d.t.Fatal(err)
		}
	}
}

func TestTheManagerWorksWithItsRights(t *testing.T) {
	d := newDeployed(t)
	end := d.start()
	d.await("it gets ready", d.ready)

	group := &v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"},
		Spec: v1.ElectionGroupSpec{
			Members: []v1.Member{{Pod: "ledger-0", Priority: 1}},
			Service: &v1.CoordinatorService{Name: "ledger", Ports: []v1.ServicePort{{Port: 80}}},
		},
	}
	d.create(group)
	d.await("the group gets its document", func() error {
		return d.get(&corev1.ConfigMap{}, "default", control.ConfigMapName("ledger"))
	})
	d.await("the group gets its Service", func() error { return d.get(&corev1.Service{}, "default", "ledger") })
	d.enrols(t)
	d.measures(t)
	d.mends(t)

	if strings.Contains(d.log.String(), "forbidden") {
		t.Error("it lacks a right")
	}
	if status := end(); status != command.ExitOK {
		t.Error("it ends with", status)
	}
	var lease coordinationv1.Lease
	if err := d.get(&lease, namespace, "conclave-manager"); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("its lease isn't free for the next: %v %+v", err, lease.Spec)
	}
}

// ready asks the probe.
func (d *deployed) ready() error {
	response, err := http.Get("http://" + d.port["health-address"] + "/readyz")
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

func (d *deployed) enrols(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "ledger-0", Labels: map[string]string{v1.LabelAgent: "by-hand"},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "ledger", Containers: []corev1.Container{{Name: "application", Image: "none"}}},
	}
	d.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}, pod)
	// No webhook can be reached by the name of a Service here.
	pod.Labels[v1.LabelAgent] = v1.AgentEnabled
	if err := d.Update(t.Context(), pod); err != nil {
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
		Token: d.token("default", "ledger", authenticationv1.TokenRequestSpec{
			Audiences:      []string{v1.TokenAudience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}),
		Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
	})
	if err != nil {
		t.Fatal(err)
	}
	var enrolled control.EnrollmentResponse
	status, text, err := d.ask("identity-port", identityService, control.CertificatesPath, "", body)
	if err == nil {
		err = json.Unmarshal([]byte(text), &enrolled)
	}
	if err != nil || status != http.StatusOK || len(enrolled.Documents) != 1 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	var published corev1.ConfigMap
	if err := d.get(&published, "default", control.ConfigMapName("ledger")); err != nil {
		t.Fatal(err)
	}
	if published.Data[control.CABundleKey] != enrolled.CABundle || published.Data[control.DocumentKey] != enrolled.Documents[0] {
		t.Errorf("it got %+v, and mounts %+v", enrolled, published.Data)
	}
}

// mends: nothing but what it watches has it look at the webhook's configuration again.
func (d *deployed) mends(t *testing.T) {
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	if err := d.get(&webhook, "", webhookConfig); err != nil {
		t.Fatal(err)
	}
	want := webhook.Webhooks[0].ClientConfig.CABundle
	webhook.Webhooks[0].ClientConfig.CABundle = nil
	if err := d.Update(t.Context(), &webhook); err != nil {
		t.Fatal(err)
	}
	d.await("the webhook's configuration has the authorities again", func() error {
		err := d.get(&webhook, "", webhookConfig)
		if err == nil && !bytes.Equal(webhook.Webhooks[0].ClientConfig.CABundle, want) {
			err = fmt.Errorf("it has %q", webhook.Webhooks[0].ClientConfig.CABundle)
		}
		return err
	})
}

func (d *deployed) measures(t *testing.T) {
	d.create(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "conclave-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
		},
	)
	scrape := func(token string) (int, string) {
		status, text, err := d.ask("metrics-address", metricsService, "/metrics", token, nil)
		if err != nil {
			t.Fatal(err)
		}
		return status, text
	}
	if status, text := scrape(""); status != http.StatusUnauthorized {
		t.Error("nobody in particular gets", status, text)
	}
	if status, text := scrape(d.token("default", "stranger", authenticationv1.TokenRequestSpec{})); status != http.StatusForbidden {
		t.Error("a stranger gets", status, text)
	}
	var text string
	d.await("the reader may read", func() error {
		var status int
		if status, text = scrape(d.token("default", "reader", authenticationv1.TokenRequestSpec{})); status != http.StatusOK {
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
		t.Errorf("the alerts go by %q", names)
	}
	for _, name := range names {
		if !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("an alert goes by %s, which there isn't:\n%s", name, text)
		}
	}
}
