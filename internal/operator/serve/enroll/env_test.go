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
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/net/httpserver"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

var apiServer = apiserver.New("../../../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

const host = "conclave-identity.conclave-system.svc"

// env is an identity service over HTTPS with a real API server. Each test has its own namespace.
type env struct {
	client.Client
	t         *testing.T
	namespace string
	url       string
	https     *http.Client
	store     *authority.Store
	service   *enroll.Service
	key       *ecdsa.PrivateKey
	request   string
	result    atomic.Value // enroll.Result, of the latest request
	refusals  *enroll.Refusals
}

// answer posts a token, and returns the status, the result and the message. The namespace is bank.
func (e *env) answer(token string) string {
	e.t.Helper()
	status, _, message := e.post(token)
	return strings.ReplaceAll(fmt.Sprintf("%d %s\n%s", status, e.lastResult(), message), e.namespace, "bank")
}

func (e *env) lastResult() enroll.Result {
	result, _ := e.result.Load().(enroll.Result)
	return result
}

func newEnv(t *testing.T, wrap ...func(client.Client) client.Client) *env {
	t.Helper()
	c := testclient.New(t, apiServer.Config(t))
	e := &env{Client: c, t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "enroll-"}}
	e.create(namespace)
	e.namespace = namespace.Name
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "ledger"}})
	e.makeRequest()
	e.serve(wrap)
	return e
}

// makeRequest creates a key and a certificate request. The request names a host, which the service must ignore.
func (e *env) makeRequest() {
	e.t.Helper()
	var err error
	if e.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		e.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{host}}, e.key)
	must.Succeed(e.t, err)
	e.request = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// serve runs the service until the test ends.
func (e *env) serve(wrap []func(client.Client) client.Client) {
	e.t.Helper()
	log := slog.New(slog.NewTextHandler(e.t.Output(), nil))
	var err error
	if e.store, err = authority.Open(e.t.Context(), e.Client, e.namespace, log, authority.Anyway); err != nil {
		e.t.Fatal(err)
	}
	certificate, err := e.store.NewServerCertificate(host)
	must.Succeed(e.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(e.t, err)
	c := e.Client
	for _, w := range wrap {
		c = w(c)
	}
	e.refusals = enroll.NewRefusals()
	e.service = &enroll.Service{
		Namespace: "conclave-system", Client: c, Signer: e.store, Log: log, Refusals: e.refusals,
		Count: func(result enroll.Result) { e.result.Store(result) },
	}
	server := &httpserver.Server{
		Name: "the identity service", Listener: listener, Handler: e.service.Handler(), Limits: enroll.Limits, Log: log,
		TLS: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate.GetCertificate},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	e.t.Cleanup(func() {
		e.https.CloseIdleConnections()
		cancel()
		expect.Succeedf(e.t, <-stopped, "Start returned")
	})
	bundle, err := e.store.Bundle(e.t.Context())
	must.Succeed(e.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	e.https = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host}}}
	e.url = "https://" + listener.Addr().String() + control.CertificatesPath
}

func (e *env) create(object client.Object) {
	e.t.Helper()
	must.Succeed(e.t, e.Create(e.t.Context(), object))
}

// createPod creates a pod that takes part in the groups ledger and audit, after applying the changes.
func (e *env) createPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.namespace, Name: name,
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
	e.create(pod)
	return pod
}

// deletePod deletes a pod at once, as its kubelet does after the pod has stopped.
func (e *env) deletePod(pod *corev1.Pod) {
	e.t.Helper()
	must.Succeed(e.t, e.Delete(e.t.Context(), pod, client.GracePeriodSeconds(0)))
}

// token requests a token as the kubelet does. Without a pod, the token isn't bound.
func (e *env) token(pod *corev1.Pod, audience string) string {
	e.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "ledger"}}
	must.Succeed(e.t, e.SubResource("token").Create(e.t.Context(), account, request))
	return request.Status.Token
}

// post enrolls. It returns the status, and either the response or the error message.
func (e *env) post(token string) (int, control.EnrollmentResponse, string) {
	e.t.Helper()
	body, err := json.Marshal(control.EnrollmentRequest{Token: token, Request: e.request})
	must.Succeed(e.t, err)
	return e.send(http.MethodPost, e.url, body)
}

func (e *env) send(method, url string, body []byte) (int, control.EnrollmentResponse, string) {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), method, url, bytes.NewReader(body))
	must.Succeed(e.t, err)
	httpResponse, err := e.https.Do(request)
	must.Succeed(e.t, err)
	defer httpResponse.Body.Close()
	if !httpResponse.Close {
		e.t.Error("got a response after which the connection remains open, want one request for each connection")
	}
	text, err := io.ReadAll(httpResponse.Body)
	must.Succeed(e.t, err)
	var response control.EnrollmentResponse
	var failure control.ErrorResponse
	if httpResponse.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &response)
	} else {
		err = json.Unmarshal(text, &failure)
	}
	if err != nil {
		e.t.Fatalf("%d %s: %s", httpResponse.StatusCode, text, err)
	}
	return httpResponse.StatusCode, response, failure.Error
}

// verifiedNames verifies a certificate and returns its names.
func (e *env) verifiedNames(r control.EnrollmentResponse) string {
	e.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(e.key)
	must.Succeed(e.t, err)
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	names, err := identity.Verify(identity.Pair{Cert: []byte(r.Certificate), Key: key}, []byte(r.CABundle))
	must.Succeed(e.t, err)
	return names.String()
}
