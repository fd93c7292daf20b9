package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
	e.eventually("the document is published", func() error {
		err := e.get(group, "default", "ledger")
		if err == nil && group.Status.Protocol.Document == nil {
			err = errors.New("the status has no document")
		}
		return err
	})
	e.eventually("the Service exists", func() error { return e.get(&corev1.Service{}, "default", "ledger") })
	e.expectEnrollment(t)
	e.expectMetrics(t)
	e.expectMetricsCredentials(t)
	e.expectWebhookRepaired(t)

	expect.Equalf(t, e.log.Contains("forbidden"), false, "permissions are missing, as the log says")
	e.expectRefusedWriteCounted(t)
	expect.Equalf(t, stop(), command.ExitOK, "exit status")
	var lease coordinationv1.Lease
	if err := e.get(&lease, namespace, "conclave-manager"); err != nil || lease.Spec.HolderIdentity == nil ||
		*lease.Spec.HolderIdentity != "" {
		t.Errorf("got lease %+v, want it released: %v", lease.Spec, err)
	}
}

func (e *env) expectEnrollment(t *testing.T) {
	status, text := e.enroll(t)
	var enrolled control.EnrollmentResponse
	if err := json.Unmarshal([]byte(text), &enrolled); err != nil || status != http.StatusOK ||
		enrolled.Certificate == "" || enrolled.CABundle == "" {
		t.Fatalf("%d %s: %v", status, text, err)
	}
}

// createPod creates a pod with an agent of the group ledger.
func (e *env) createPod(pod types.NamespacedName) *corev1.Pod {
	e.t.Helper()
	created := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Labels: map[string]string{v1.LabelAgent: "by-hand"},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "ledger", Containers: []corev1.Container{{Name: "application", Image: "none"}},
			InitContainers: []corev1.Container{{Name: v1.AgentContainer, Image: "none", RestartPolicy: new(
				corev1.ContainerRestartPolicyAlways)}},
		},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "ledger"}}
	if err := e.Create(e.t.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		e.t.Fatal(err)
	}
	e.create(created)
	// The API server can't reach the webhook: there is no Service network here.
	created.Labels[v1.LabelAgent] = v1.AgentEnabled
	must.Succeed(e.t, e.Update(e.t.Context(), created))
	return created
}

// enroll creates a pod, and enrolls with its token. It returns the response.
func (e *env) enroll(t *testing.T) (status int, text string) {
	t.Helper()
	pod := e.createPod(types.NamespacedName{Namespace: "default", Name: "ledger-0"})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must.Succeed(t, err)
	body, err := json.Marshal(control.EnrollmentRequest{
		Token: e.token("default", "ledger", authenticationv1.TokenRequestSpec{
			Audiences:      []string{v1.TokenAudience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}),
		Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
	})
	must.Succeed(t, err)
	status, text, err = e.request(t.Context(), "identity-port", identityService, control.CertificatesPath, "", body)
	must.Succeed(t, err)
	return status, text
}

// expectWebhookRepaired removes the CA bundle from the webhook configuration. The watch
// makes the manager write it again.
func (e *env) expectWebhookRepaired(t *testing.T) {
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	must.Succeed(t, e.get(&webhook, "", webhookConfig))
	want := webhook.Webhooks[0].ClientConfig.CABundle
	webhook.Webhooks[0].ClientConfig.CABundle = nil
	must.Succeed(t, e.Update(t.Context(), &webhook))
	e.eventually("the webhook configuration has the CA bundle again", func() error {
		err := e.get(&webhook, "", webhookConfig)
		if err == nil && !bytes.Equal(webhook.Webhooks[0].ClientConfig.CABundle, want) {
			err = fmt.Errorf("got CA bundle %q, want %q", webhook.Webhooks[0].ClientConfig.CABundle, want)
		}
		return err
	})
}
