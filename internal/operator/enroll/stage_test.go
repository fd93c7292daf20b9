package enroll_test

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
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/authority"
	"github.com/conclave-dev/conclave/internal/operator/enroll"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
)

var apiServer = apiserver.New("../../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

const host = "conclave-identity.conclave-system.svc"

// stage is an identity service over HTTPS before a real API server, with a
// namespace of its own for each test.
type stage struct {
	client.Client
	t         *testing.T
	namespace string
	url       string
	https     *http.Client
	keeper    *authority.Keeper
	key       *ecdsa.PrivateKey
	request   string
}

func newStage(t *testing.T, wrap ...func(client.Client) client.Client) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(apiServer.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Client: c, t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "enrol-"}}
	s.create(namespace)
	s.namespace = namespace.Name
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ledger"}})
	s.ask()
	s.serve(wrap)
	return s
}

// ask makes a key, and a request for a certificate that asks for too much.
func (s *stage) ask() {
	s.t.Helper()
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{host}}, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.request = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// serve runs the service until the test ends.
func (s *stage) serve(wrap []func(client.Client) client.Client) {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	var err error
	if s.keeper, err = authority.Open(s.t.Context(), s.Client, s.namespace, log); err != nil {
		s.t.Fatal(err)
	}
	serving, err := s.keeper.Serving(host)
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.Client
	for _, w := range wrap {
		c = w(c)
	}
	service := &enroll.Server{
		Service:  &enroll.Service{Client: c, Authority: s.keeper, Log: log},
		Listener: listener, Certificate: serving.Certificate,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- service.Start(ctx) }()
	s.t.Cleanup(func() {
		s.https.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			s.t.Error("the service ended with", err)
		}
	})
	bundle, err := s.keeper.Bundle(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	s.https = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host}}}
	s.url = "https://" + listener.Addr().String() + control.CertificatesPath
}

func (s *stage) create(object client.Object) {
	s.t.Helper()
	if err := s.Create(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// pod makes one that takes part in ledger and audit, unless it is changed first.
func (s *stage) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			Labels:      map[string]string{v1.LabelAgent: v1.AgentEnabled},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger, audit"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "ledger",
			Containers:         []corev1.Container{{Name: "application", Image: "none"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	s.create(pod)
	return pod
}

// gone deletes a pod as if its kubelet had done so.
func (s *stage) gone(pod *corev1.Pod) {
	s.t.Helper()
	if err := s.Delete(s.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		s.t.Fatal(err)
	}
}

// token is one as the kubelet gets it; pod may be nil.
func (s *stage) token(pod *corev1.Pod, audience string) string {
	s.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ledger"}}
	if err := s.SubResource("token").Create(s.t.Context(), account, request); err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// post enrols, and returns the status with either answer.
func (s *stage) post(token string) (int, control.EnrollmentResponse, string) {
	s.t.Helper()
	body, err := json.Marshal(control.EnrollmentRequest{Token: token, Request: s.request})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.send(http.MethodPost, s.url, body)
}

func (s *stage) send(method, url string, body []byte) (int, control.EnrollmentResponse, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.https.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var enrolled control.EnrollmentResponse
	var refusal control.ErrorResponse
	if response.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &enrolled)
	} else {
		err = json.Unmarshal(text, &refusal)
	}
	if err != nil {
		s.t.Fatalf("%d %s: %s", response.StatusCode, text, err)
	}
	return response.StatusCode, enrolled, refusal.Error
}

// names are those of a certificate that is in order.
func (s *stage) names(e control.EnrollmentResponse) string {
	s.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	names, err := identity.Verify(identity.Pair{Cert: []byte(e.Certificate), Key: key}, []byte(e.CABundle))
	if err != nil {
		s.t.Fatal(err)
	}
	return names.String()
}
