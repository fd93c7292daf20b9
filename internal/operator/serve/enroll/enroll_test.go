package enroll_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestPodGetsCertificateForItsGroups(t *testing.T) {
	e := newEnv(t)
	pod := e.createPod("ledger-0")
	status, response, message := e.post(e.token(pod, v1.TokenAudience))
	must.Equalf(t, status, http.StatusOK, "%q: status", message)
	expect.Equalf(t, e.lastResult(), enroll.Issued, "result")
	domain := "conclave://" + e.namespace
	expect.Equalf(t, e.verifiedNames(response), domain+"/ledger/ledger-0, "+domain+"/audit/ledger-0",
		"names in the certificate")
	block, _ := pem.Decode([]byte(response.Certificate))
	cert, err := x509.ParseCertificate(block.Bytes)
	must.Succeed(t, err)
	if !slices.Equal(cert.DNSNames, []string{identity.AgentHost}) || len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 ||
		cert.Subject.String() != "SERIALNUMBER="+string(pod.UID) {
		t.Errorf("got subject %s and DNS names %v, want the UID %s, and nothing from the certificate request",
			cert.Subject, cert.DNSNames, pod.UID)
	}
	expect.AtMostf(t, time.Until(cert.NotAfter), 24*time.Hour, "lifetime of the certificate")
}

func TestRefusedEnrollments(t *testing.T) {
	e := newEnv(t)
	usual := e.createPod("usual")
	change := func(name string, do func(*corev1.Pod)) *corev1.Pod { return e.createPod(name, do) }
	finished := e.createPod("finished")
	finished.Status.Phase = corev1.PodSucceeded
	must.Succeed(t, e.Status().Update(t.Context(), finished))
	deleted := e.createPod("deleted")
	ofDeleted := e.token(deleted, v1.TokenAudience)
	e.deletePod(deleted)
	former := e.createPod("replaced")
	ofFormer := e.token(former, v1.TokenAudience)
	e.deletePod(former)
	e.createPod("replaced")

	cases := golden.Open(t, "testdata/refused.txt")
	for name, token := range map[string]string{
		"no token":           "",
		"malformed token":    "a.b.c",
		"another audience":   e.token(usual, "https://kubernetes.default.svc"),
		"not bound to a pod": e.token(nil, v1.TokenAudience),
		"deleted pod":        ofDeleted,
		"replaced pod":       ofFormer,
		"finished pod":       e.token(finished, v1.TokenAudience),
		"no label":           e.token(change("no-label", func(p *corev1.Pod) { p.Labels = nil }), v1.TokenAudience),
		"reserved name":      e.token(e.createPod("conclave-witness-0"), v1.TokenAudience),
		"no annotation":      e.token(change("no-groups", func(p *corev1.Pod) { p.Annotations = nil }), v1.TokenAudience),
		"invalid group name": e.token(
			change("bad-group", func(p *corev1.Pod) { p.Annotations[v1.AnnotationGroups] = "ledger/x" }), v1.TokenAudience),
	} {
		t.Run(name, func(t *testing.T) {
			cases.Compare(t, name, e.answer(token))
		})
	}
}

// TestWitnessGetsCertificateWithoutGroups: it names the witness, in no namespace, whatever the pod's annotation says.
func TestWitnessGetsCertificateWithoutGroups(t *testing.T) {
	e := newEnv(t)
	e.service.Namespace = e.namespace
	_, response, _ := e.post(e.token(e.createPod("conclave-witness-0"), v1.TokenAudience))
	expect.Equalf(t, e.lastResult(), enroll.Issued, "result")
	expect.Equalf(t, e.verifiedNames(response), "conclave://conclave.dev/witness/conclave-witness-0", "names")
	_, response, _ = e.post(e.token(e.createPod("ledger-0"), v1.TokenAudience))
	expect.Equalf(t, strings.Contains(e.verifiedNames(response), "conclave.dev"), false, "another pod is a witness")
}

// The API server caches token reviews, so it may accept a token for some seconds after its pod was deleted.
func TestTokenOfADeletedPodIsRefused(t *testing.T) {
	e := newEnv(t)
	pod := e.createPod("ledger-0")
	token := e.token(pod, v1.TokenAudience)
	if status, _, message := e.post(token); status != http.StatusOK {
		t.Fatalf("got %d %q, want 200", status, message)
	}
	e.deletePod(pod)
	if status, _, message := e.post(token); status != http.StatusConflict && status != http.StatusUnauthorized {
		t.Errorf("token of a deleted pod: got %d %q, want 401 or 409", status, message)
	}
	e.createPod("ledger-0")
	if status, _, message := e.post(token); status != http.StatusConflict && status != http.StatusUnauthorized {
		t.Errorf("token of a replaced pod: got %d %q, want 401 or 409", status, message)
	}
}

// fakeReviewer answers token reviews instead of the API server.
type fakeReviewer struct {
	client.Client
	answer func(*authenticationv1.TokenReview) error
}

func (r fakeReviewer) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if review, ok := object.(*authenticationv1.TokenReview); ok {
		return r.answer(review)
	}
	return r.Client.Create(ctx, object, opts...)
}

func TestRefusedTokenReviews(t *testing.T) {
	var status authenticationv1.TokenReviewStatus
	var failure error
	e := newEnv(t, func(c client.Client) client.Client {
		return fakeReviewer{c, func(review *authenticationv1.TokenReview) error {
			review.Status = status
			return failure
		}}
	})
	pod := e.createPod("ledger-0")
	good := func() authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: []string{v1.TokenAudience},
			User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:" + e.namespace + ":ledger",
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/pod-name": {pod.Name},
					"authentication.kubernetes.io/pod-uid":  {string(pod.UID)},
				},
			},
		}
	}
	cases := golden.Open(t, "testdata/reviews.txt")
	for name, tc := range map[string]struct {
		change func(*authenticationv1.TokenReviewStatus)
		fail   error
	}{
		"valid":                     {func(*authenticationv1.TokenReviewStatus) {}, nil},
		"API server is unreachable": {func(*authenticationv1.TokenReviewStatus) {}, errors.New("unreachable")},
		"not authenticated":         {func(r *authenticationv1.TokenReviewStatus) { r.Authenticated = false }, nil},
		"no audiences":              {func(r *authenticationv1.TokenReviewStatus) { r.Audiences = nil }, nil},
		"not a service account": {
			func(r *authenticationv1.TokenReviewStatus) { r.User.Username = "somebody" }, nil,
		},
		"two pods": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-name"] = []string{pod.Name, "ledger-1"}
		}, nil},
		"no UID": {func(r *authenticationv1.TokenReviewStatus) {
			delete(r.User.Extra, "authentication.kubernetes.io/pod-uid")
		}, nil},
		"another UID": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{"1234"}
		}, nil},
		"missing pod": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-name"] = []string{"ledger-9"}
		}, nil},
		"another namespace": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Username = "system:serviceaccount:default:ledger"
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			status, failure = good(), tc.fail
			tc.change(&status)
			cases.Compare(t, name, strings.ReplaceAll(e.answer("token"), string(pod.UID), "UID"))
		})
	}
}

// TestRefusalsAreRemembered until the host gets a certificate. A permission that the operator lacks is named.
func TestRefusalsAreRemembered(t *testing.T) {
	const forbidden = `tokenreviews.authentication.k8s.io is forbidden: User "conclave-manager" cannot create resource`
	var failure error
	e := newEnv(t, func(c client.Client) client.Client {
		return fakeReviewer{c, func(review *authenticationv1.TokenReview) error {
			return cmp.Or(failure, c.Create(t.Context(), review))
		}}
	})
	token := e.token(e.createPod("ledger-0"), v1.TokenAudience)
	for _, step := range []struct {
		failure error
		token   string
		want    string
	}{
		{
			errors.New("dial tcp 10.0.0.1:6443"), token,
			"The agent has no certificate: the API server cannot review the token; retry later",
		},
		{
			&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: forbidden}}, token,
			"The agent has no certificate: " + forbidden,
		},
		{
			nil, "", "The agent has no certificate: token is empty: it must be the pod's service account token for " +
				"the audience conclave.dev",
		},
		{nil, token, ""},
	} {
		failure = step.failure
		e.post(step.token)
		expect.Equal(t, e.refusals.Of("127.0.0.1"), step.want)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	e := newEnv(t)
	token := e.token(e.createPod("ledger-0"), v1.TokenAudience)
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, large)
	must.Succeed(t, err)
	slow, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	must.Succeed(t, err)
	slowDER, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, slow)
	must.Succeed(t, err)
	invalid, _ := pem.Decode([]byte(e.request))
	invalid.Bytes[len(invalid.Bytes)-1] ^= 1
	in := func(request string) string {
		text, err := json.Marshal(control.EnrollmentRequest{Token: token, Request: request})
		must.Succeed(t, err)
		return string(text)
	}
	encoded := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	}
	for name, tc := range map[string]struct {
		method, body string
		status       int
		want         string
	}{
		"GET":        {http.MethodGet, "", http.StatusMethodNotAllowed, "method must be POST"},
		"empty body": {http.MethodPost, "", http.StatusBadRequest, "enrollment must be JSON"},
		"too large": {http.MethodPost, strings.Repeat(" ",
			17<<10), http.StatusRequestEntityTooLarge, "enrollment must have at most 16384 bytes"},
		"no request": {http.MethodPost, in(""), http.StatusBadRequest, "request must be a CERTIFICATE REQUEST in PEM"},
		"truncated request": {
			http.MethodPost, in(encoded(der[:100])), http.StatusBadRequest, "request must be a certificate request",
		},
		"RSA key":      {http.MethodPost, in(encoded(der)), http.StatusBadRequest, "must have an ECDSA key on P-256"},
		"key on P-521": {http.MethodPost, in(encoded(slowDER)), http.StatusBadRequest, "must have an ECDSA key on P-256"},
		"invalid signature": {
			http.MethodPost, in(encoded(invalid.Bytes)), http.StatusBadRequest, "request must be signed by its own key",
		},
		"valid": {http.MethodPost, in(e.request), http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, message := e.send(tc.method, e.url, []byte(tc.body))
			if status != tc.status || !strings.Contains(message, tc.want) {
				t.Errorf("got %d %q, want %d %q", status, message, tc.status, tc.want)
			}
		})
	}
	if status, _, message := e.send(http.MethodPost, strings.Replace(e.url, "certificates", "others", 1),
		nil); status != http.StatusNotFound {
		t.Errorf("another path: got %d %q, want 404", status, message)
	}
}

func TestConcurrentEnrollmentsAreLimited(t *testing.T) {
	const requests, allowed = 32, 16
	var active atomic.Int32
	started, finish := make(chan int32, requests), make(chan struct{})
	defer close(finish)
	e := newEnv(t, func(c client.Client) client.Client {
		return fakeReviewer{c, func(*authenticationv1.TokenReview) error {
			started <- active.Add(1)
			<-finish
			active.Add(-1)
			return errors.New("unreachable")
		}}
	})
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if status, _, message := e.post("token"); status != http.StatusServiceUnavailable {
				t.Errorf("got %d %q, want 503", status, message)
			}
		})
	}
	// As many requests start as allowed, and then one for each that finishes.
	for i := range requests {
		if i >= allowed {
			finish <- struct{}{}
		}
		select {
		case now := <-started:
			expect.AtMostf(t, now, allowed, "concurrent reviews")
		case <-time.After(time.Minute):
			t.Fatalf("got %d reviews, want %d", i, requests)
		}
	}
	for range allowed {
		finish <- struct{}{}
	}
	all.Wait()
}

// slowNamespace is an API server that accepts the token "greedy" as that of a pod in the
// namespace greedy, and doesn't return that pod until it is released.
type slowNamespace struct {
	client.Client
	waiting  *atomic.Int32
	released chan struct{}
}

func (s slowNamespace) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	review, ok := object.(*authenticationv1.TokenReview)
	if !ok || review.Spec.Token != "greedy" {
		return s.Client.Create(ctx, object, opts...)
	}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{
		v1.TokenAudience,
	}, User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:greedy:default",
		Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"greedy-0"}, "authentication.kubernetes.io/pod-uid": {"u"},
		},
	}}
	return nil
}

func (s slowNamespace) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	opts ...client.GetOption,
) error {
	if key.Namespace != "greedy" {
		return s.Client.Get(ctx, key, object, opts...)
	}
	s.waiting.Add(1)
	<-s.released
	return errors.New("not now")
}

// The pods of a namespace enroll all at once, and each takes long. Those of another one don't wait for them.
func TestNamespaceDoesNotDelayEnrollmentsOfOthers(t *testing.T) {
	const requests, most = 64, 8
	var slow slowNamespace
	e := newEnv(t, func(c client.Client) client.Client {
		slow = slowNamespace{Client: c, waiting: &atomic.Int32{}, released: make(chan struct{})}
		return slow
	})
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if status, _, message := e.post("greedy"); status != http.StatusServiceUnavailable {
				t.Errorf("got %d %q, want 503", status, message)
			}
		})
	}
	testwait.Until(t, "the greedy namespace has its share", func() bool { return slow.waiting.Load() >= most })
	if status, _, message := e.post(e.token(e.createPod("ledger-0"), v1.TokenAudience)); status != http.StatusOK {
		t.Errorf("got %d %q for a pod of another namespace, want 200", status, message)
	}
	expect.Equalf(t, slow.waiting.Load(), most, "enrollments of a namespace at once")
	close(slow.released)
	all.Wait()
}
