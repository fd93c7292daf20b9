package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var apiServer = apiserver.New("../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

// build compiles the dashboard as it is released: a test program occupies more memory.
func (e *env) build() (binary string) {
	e.t.Helper()
	must.Succeed(e.t, program.DependOnProgram(e.t.Context(), "../..", "./cmd/dashboard"))
	binary = filepath.Join(e.t.TempDir(), "dashboard")
	build := exec.CommandContext(e.t.Context(), "go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		e.t.Fatalf("%v: %s", err, output)
	}
	return binary
}

// env has an API server with config/dashboard, and a running dashboard with the permissions of
// its service account.
type env struct {
	client.Client
	t *testing.T
	// a and b are namespaces, each with a group called ledger.
	a, b string
	// address is that of the dashboard.
	address string
	roots   *x509.CertPool
	log     *testwait.Log
	pid     int
	// browsers is their number.
	browsers byte
}

func newEnv(t *testing.T) *env {
	t.Helper()
	need.Complete(t)
	config := apiServer.Config(t)
	config.QPS = -1
	c := testclient.New(t, config)
	e := &env{Client: c, t: t, log: &testwait.Log{}}
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "conclave-system"}})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	objects, err := manifests.Build(t.Context(), "../..", "config/dashboard")
	must.Succeed(t, err)
	for _, object := range objects {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl")); err != nil {
			t.Fatal(object.GetKind(), err)
		}
	}
	e.a, e.b = e.namespace("a-"), e.namespace("b-")
	for _, namespace := range []string{e.a, e.b} {
		e.group(namespace, "ledger")
	}
	return e
}

func (e *env) create(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		must.Succeed(e.t, e.Create(e.t.Context(), object))
	}
}

func (e *env) namespace(prefix string) string {
	e.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	e.create(n)
	return n.Name
}

func (e *env) group(namespace, name string) *v1.ElectionGroup {
	e.t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i := range 5 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint(name, "-", i), Priority: int32(10 * (i + 1))})
	}
	e.create(g)
	return g
}

// user creates a service account in namespace a.
func (e *env) user(name string) *corev1.ServiceAccount {
	e.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.a, Name: name}}
	e.create(account)
	return account
}

// grant permits a user to use these verbs on groups of a namespace, or on those of these names.
func (e *env) grant(to *corev1.ServiceAccount, namespace string, verbs []string, names ...string) *rbacv1.RoleBinding {
	e.t.Helper()
	name := metav1.ObjectMeta{Namespace: namespace, Name: to.Name}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: to.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: to.Namespace, Name: to.Name}},
	}
	e.create(&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"conclave.dev"}, Resources: []string{"electiongroups"}, Verbs: verbs, ResourceNames: names},
	}}, binding)
	return binding
}

var read = []string{"get", "list", "watch"}

// token creates a token of a user, by default for the audience of the dashboard.
func (e *env) token(of *corev1.ServiceAccount, audiences ...string) string {
	e.t.Helper()
	if len(audiences) == 0 {
		audiences = []string{audience}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	must.Succeed(e.t, e.SubResource("token").Create(e.t.Context(), of, request))
	return request.Status.Token
}

// start runs the dashboard as a process, until the test ends.
func (e *env) start(flags ...string) {
	e.t.Helper()
	account, err := apiServer.Environment.AddUser(envtest.User{
		Name: "system:serviceaccount:conclave-system:conclave-dashboard", Groups: []string{"system:serviceaccounts"},
	}, nil)
	must.Succeed(e.t, err)
	text, err := account.KubeConfig()
	must.Succeed(e.t, err)
	kubeconfig := filepath.Join(e.t.TempDir(), "kubeconfig")
	must.Succeed(e.t, os.WriteFile(kubeconfig, text, 0o600))
	if len(flags) == 0 {
		flags = []string{"--address", "127.0.0.1:0", "--certificates", e.certificate()}
	}
	dashboard := exec.CommandContext(context.WithoutCancel(e.t.Context()), e.build(), append(flags, "--host", "localhost")...)
	// The settings of config/dashboard.
	dashboard.Env, dashboard.Stderr = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE=conclave-system", "GOMEMLIMIT=80MiB", "GOGC=30"), e.log
	must.Succeed(e.t, dashboard.Start())
	e.pid = dashboard.Process.Pid
	e.t.Cleanup(func() {
		if err := dashboard.Process.Signal(syscall.SIGTERM); err != nil {
			e.t.Error("the dashboard ended before SIGTERM:", err)
		}
		if err := dashboard.Wait(); err != nil {
			e.t.Error("the dashboard failed:", err)
		}
		if e.t.Failed() {
			e.t.Log(e.log)
		}
	})
	testwait.Until(e.t, "the dashboard logs its address", func() bool {
		for line := range strings.Lines(e.log.String()) {
			var entry struct{ Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Address != "" {
				e.address = entry.Address
			}
		}
		return e.address != ""
	})
	if e.roots != nil {
		probe := e.browser()
		testwait.Until(e.t, "the dashboard is ready", func() bool { return probe.get("/readyz", nil).StatusCode == http.StatusOK })
	}
}

// certificate writes a certificate for localhost to a folder.
func (e *env) certificate() (folder string) {
	e.t.Helper()
	folder = e.t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(e.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(e.t, err)
	private, err := x509.MarshalECPrivateKey(key)
	must.Succeed(e.t, err)
	e.roots = x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(block)
		e.roots.AppendCertsFromPEM(text)
		must.Succeed(e.t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	return folder
}
