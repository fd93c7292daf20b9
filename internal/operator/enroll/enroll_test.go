package enroll_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

func TestAPodGetsItsCertificate(t *testing.T) {
	s := newStage(t)
	status, enrolled, refusal := s.post(s.token(s.pod("ledger-0"), v1.TokenAudience))
	if status != http.StatusOK {
		t.Fatal(status, refusal)
	}
	domain := "conclave://" + s.namespace
	if got, want := s.names(enrolled), domain+"/ledger/ledger-0, "+domain+"/audit/ledger-0"; got != want {
		t.Errorf("it is for %s, not %s", got, want)
	}
	block, _ := pem.Decode([]byte(enrolled.Certificate))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 || cert.Subject.String() != "" {
		t.Errorf("it says what the agent asked for: %s %v", cert.Subject, cert.DNSNames)
	}
	if left := time.Until(cert.NotAfter); left > 24*time.Hour {
		t.Errorf("it is valid for %s", left)
	}
	if len(enrolled.Documents) > 0 {
		t.Errorf("there are no groups, and it got %q", enrolled.Documents)
	}
}

func TestWhoGetsNone(t *testing.T) {
	s := newStage(t)
	usual := s.pod("usual")
	change := func(name string, do func(*corev1.Pod)) *corev1.Pod { return s.pod(name, do) }
	finished := s.pod("finished")
	finished.Status.Phase = corev1.PodSucceeded
	if err := s.Status().Update(t.Context(), finished); err != nil {
		t.Fatal(err)
	}
	deleted := s.pod("deleted")
	ofDeleted := s.token(deleted, v1.TokenAudience)
	s.gone(deleted)
	former := s.pod("replaced")
	ofFormer := s.token(former, v1.TokenAudience)
	s.gone(former)
	s.pod("replaced")

	for name, tc := range map[string]struct {
		token  string
		status int
		want   string
	}{
		"no token":         {"", http.StatusUnauthorized, "token is empty"},
		"no token at all":  {"a.b.c", http.StatusUnauthorized, "the API server doesn't accept this token"},
		"another audience": {s.token(usual, "https://kubernetes.default.svc"), http.StatusUnauthorized, "for the audience conclave.dev"},
		"bound to no pod":  {s.token(nil, v1.TokenAudience), http.StatusForbidden, "this token isn't bound to a pod"},
		"a deleted pod":    {ofDeleted, http.StatusUnauthorized, "of a pod that exists"},
		"a replaced pod":   {ofFormer, http.StatusUnauthorized, "of a pod that exists"},
		"a finished pod":   {s.token(finished, v1.TokenAudience), http.StatusConflict, "/finished has finished"},
		"no label": {
			s.token(change("no-label", func(p *corev1.Pod) { p.Labels = nil }), v1.TokenAudience),
			http.StatusForbidden, "/no-label hasn't opted in: it must have the label conclave.dev/agent=enabled",
		},
		"no annotation": {
			s.token(change("no-groups", func(p *corev1.Pod) { p.Annotations = nil }), v1.TokenAudience),
			http.StatusForbidden, "/no-groups: annotation conclave.dev/groups must name the groups",
		},
		"a group that can't be": {
			s.token(change("bad-group", func(p *corev1.Pod) { p.Annotations[v1.AnnotationGroups] = "ledger/x" }), v1.TokenAudience),
			http.StatusForbidden, `"ledger/x" can't be the name of a group`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, refusal := s.post(tc.token)
			if status != tc.status || !strings.Contains(refusal, tc.want) || strings.Contains(refusal, "\n") {
				t.Errorf("got %d %q, want %d %q", status, refusal, tc.status, tc.want)
			}
		})
	}
}

// The API server may know a token for some seconds longer than its pod.
func TestAReviewIsNotBelievedForLong(t *testing.T) {
	s := newStage(t)
	pod := s.pod("ledger-0")
	token := s.token(pod, v1.TokenAudience)
	if status, _, refusal := s.post(token); status != http.StatusOK {
		t.Fatal(status, refusal)
	}
	s.gone(pod)
	if status, _, refusal := s.post(token); status != http.StatusConflict && status != http.StatusUnauthorized {
		t.Error("a pod that is gone gets", status, refusal)
	}
	s.pod("ledger-0")
	if status, _, refusal := s.post(token); status != http.StatusConflict && status != http.StatusUnauthorized {
		t.Error("the successor's certificate is given out:", status, refusal)
	}
}

// reviewing answers token reviews itself.
type reviewing struct {
	client.Client
	answer func(*authenticationv1.TokenReview) error
}

func (r reviewing) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if review, ok := object.(*authenticationv1.TokenReview); ok {
		return r.answer(review)
	}
	return r.Client.Create(ctx, object, opts...)
}

func TestWhatAReviewMayNotSay(t *testing.T) {
	var status authenticationv1.TokenReviewStatus
	var failure error
	s := newStage(t, func(c client.Client) client.Client {
		return reviewing{c, func(review *authenticationv1.TokenReview) error {
			review.Status = status
			return failure
		}}
	})
	pod := s.pod("ledger-0")
	good := func() authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: []string{v1.TokenAudience},
			User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:" + s.namespace + ":ledger",
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/pod-name": {pod.Name},
					"authentication.kubernetes.io/pod-uid":  {string(pod.UID)},
				},
			},
		}
	}
	for name, tc := range map[string]struct {
		change func(*authenticationv1.TokenReviewStatus)
		fail   error
		status int
	}{
		"nothing is wrong":           {func(*authenticationv1.TokenReviewStatus) {}, nil, http.StatusOK},
		"the API server is away":     {func(*authenticationv1.TokenReviewStatus) {}, errors.New("away"), http.StatusServiceUnavailable},
		"not authenticated":          {func(r *authenticationv1.TokenReviewStatus) { r.Authenticated = false }, nil, http.StatusUnauthorized},
		"knows nothing of audiences": {func(r *authenticationv1.TokenReviewStatus) { r.Audiences = nil }, nil, http.StatusUnauthorized},
		"a user":                     {func(r *authenticationv1.TokenReviewStatus) { r.User.Username = "somebody" }, nil, http.StatusForbidden},
		"two pods": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-name"] = []string{pod.Name, "ledger-1"}
		}, nil, http.StatusForbidden},
		"no UID": {func(r *authenticationv1.TokenReviewStatus) {
			delete(r.User.Extra, "authentication.kubernetes.io/pod-uid")
		}, nil, http.StatusForbidden},
		"another UID": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{"1234"}
		}, nil, http.StatusConflict},
		"a pod that isn't there": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Extra["authentication.kubernetes.io/pod-name"] = []string{"ledger-9"}
		}, nil, http.StatusConflict},
		"another namespace": {func(r *authenticationv1.TokenReviewStatus) {
			r.User.Username = "system:serviceaccount:default:ledger"
		}, nil, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			status, failure = good(), tc.fail
			tc.change(&status)
			if got, _, refusal := s.post("token"); got != tc.status {
				t.Errorf("got %d %s, want %d", got, refusal, tc.status)
			}
		})
	}
}

func TestRequestsAreBounded(t *testing.T) {
	s := newStage(t)
	token := s.token(s.pod("ledger-0"), v1.TokenAudience)
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, large)
	if err != nil {
		t.Fatal(err)
	}
	spoilt, _ := pem.Decode([]byte(s.request))
	spoilt.Bytes[len(spoilt.Bytes)-1] ^= 1
	in := func(request string) string {
		text, err := json.Marshal(control.EnrollmentRequest{Token: token, Request: request})
		if err != nil {
			t.Fatal(err)
		}
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
		"to read":         {http.MethodGet, "", http.StatusMethodNotAllowed, "POST an enrolment here"},
		"nothing":         {http.MethodPost, "", http.StatusBadRequest, "an enrolment must be JSON"},
		"too much":        {http.MethodPost, strings.Repeat(" ", 65<<10), http.StatusRequestEntityTooLarge, "an enrolment has 65536 bytes at most"},
		"no request":      {http.MethodPost, in(""), http.StatusBadRequest, "request must be a CERTIFICATE REQUEST in PEM"},
		"half a request":  {http.MethodPost, in(encoded(der[:100])), http.StatusBadRequest, "request must be a certificate request"},
		"an RSA key":      {http.MethodPost, in(encoded(der)), http.StatusBadRequest, "must be for a key of ECDSA or Ed25519, not RSA"},
		"another's key":   {http.MethodPost, in(encoded(spoilt.Bytes)), http.StatusBadRequest, "request isn't signed by its own key"},
		"all is in order": {http.MethodPost, in(s.request), http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, refusal := s.send(tc.method, s.url, []byte(tc.body))
			if status != tc.status || !strings.Contains(refusal, tc.want) {
				t.Errorf("got %d %q, want %d %q", status, refusal, tc.status, tc.want)
			}
		})
	}
	if status, _, refusal := s.send(http.MethodPost, strings.Replace(s.url, "certificates", "others", 1), nil); status != http.StatusNotFound {
		t.Error("another path:", status, refusal)
	}
}

func TestFewEnrolmentsAreUnderWayAtOnce(t *testing.T) {
	const asking, allowed = 32, 16
	var active atomic.Int32
	came, leave := make(chan int32, asking), make(chan struct{})
	defer close(leave)
	s := newStage(t, func(c client.Client) client.Client {
		return reviewing{c, func(*authenticationv1.TokenReview) error {
			came <- active.Add(1)
			<-leave
			active.Add(-1)
			return errors.New("away")
		}}
	})
	var all sync.WaitGroup
	for range asking {
		all.Go(func() {
			if status, _, refusal := s.post("token"); status != http.StatusServiceUnavailable {
				t.Error(status, refusal)
			}
		})
	}
	// As many come as may, and then one for each that leaves.
	for i := range asking {
		if i >= allowed {
			leave <- struct{}{}
		}
		select {
		case now := <-came:
			if now > allowed {
				t.Errorf("%d were under way at once", now)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d came, and no more", i)
		}
	}
	for range allowed {
		leave <- struct{}{}
	}
	all.Wait()
}

func TestAnEnrolmentBringsTheGroups(t *testing.T) {
	s := newStage(t)
	token := s.token(s.pod("ledger-0"), v1.TokenAudience)
	group := &v1.ElectionGroup{Spec: v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "ledger-0", Priority: 1}}}}
	group.Namespace, group.Name = s.namespace, "ledger"
	s.create(group)
	documents := func(want ...string) {
		t.Helper()
		status, enrolled, refusal := s.post(token)
		if status != http.StatusOK || strings.Join(enrolled.Documents, "|") != strings.Join(want, "|") {
			t.Errorf("got %d %s with %q, want %q", status, refusal, enrolled.Documents, want)
		}
	}
	documents() // It has no list yet.
	group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: group.Spec.Members}
	if err := s.Status().Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	documents() // It has no document yet.
	text := func(uid types.UID) string { return "uid: " + string(uid) + "\nrevision: 7\ngroup: {name: ledger}\n" }
	published := &corev1.ConfigMap{Data: map[string]string{control.DocumentKey: text("of another")}}
	published.Namespace, published.Name = s.namespace, control.ConfigMapName("ledger")
	s.create(published)
	documents() // It is that of an earlier group.
	published.Data[control.DocumentKey] = text(group.UID)
	if err := s.Update(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	documents(text(group.UID))
	if err := s.Delete(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	documents() // What is left of the group is nothing to take part in.
}
