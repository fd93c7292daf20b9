package enroll_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func (e *env) createGroup(name string, mode v1.SafetyMode) {
	e.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	group.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
	group.Spec.Safety.Mode = mode
	e.create(group)
}

// A pod that gets a certificate for a group in Strict mode has the group's finalizer. Its other finalizers remain.
func TestPodOfStrictGroupIsHeld(t *testing.T) {
	e := newEnv(t)
	e.createGroup("ledger", v1.Strict)
	e.createGroup("audit", v1.Majority)
	pod := e.createPod("ledger-0", func(pod *corev1.Pod) {
		pod.Finalizers = []string{"example.org/other"}
		pod.Spec.NodeName = "node"
	})
	token := e.token(pod, v1.TokenAudience)
	for _, occasion := range []string{"first certificate", "renewal"} {
		if status, _, message := e.post(token); status != http.StatusOK {
			t.Fatalf("%s: got %d %q, want 200", occasion, status, message)
		}
		must.Succeed(t, e.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		slices.Sort(pod.Finalizers)
		expect.EqualSlicesf(t, pod.Finalizers, []string{v1.StopFinalizer("ledger"), "example.org/other"},
			"%s: finalizers", occasion)
	}
	// A restarted agent of a pod that is being deleted gets another certificate.
	e.deletePod(pod)
	if status, _, message := e.post(token); status != http.StatusOK {
		t.Errorf("during the deletion: got %d %q, want 200", status, message)
	}
}

// A pod that can't be held gets no certificate: it could disappear while it still votes.
func TestPodThatIsBeingDeletedGetsNoCertificateForStrictGroup(t *testing.T) {
	e := newEnv(t)
	e.createGroup("ledger", v1.Strict)
	pod := e.createPod("ledger-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "node" })
	token := e.token(pod, v1.TokenAudience)
	must.Succeed(t, e.Delete(t.Context(), pod, client.GracePeriodSeconds(30)))
	status, _, message := e.post(token)
	if status != http.StatusConflict || !strings.HasSuffix(message, "ledger-0 is being deleted") {
		t.Errorf("got %d %q, want 409 and the reason", status, message)
	}
}

// deletingClient deletes a pod before each patch.
type deletingClient struct {
	client.Client
	options []client.DeleteOption
}

func (c deletingClient) Patch(ctx context.Context, object client.Object, patch client.Patch,
	options ...client.PatchOption,
) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	if err := c.Delete(ctx, pod, c.options...); err != nil {
		return err
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

// A pod that is deleted between the read and the patch gets no certificate, either.
func TestPodThatIsDeletedInTheMeantimeGetsNoCertificate(t *testing.T) {
	for name, grace := range map[string]int64{"it is being deleted": 30, "it is gone": 0} {
		e := newEnv(t, func(c client.Client) client.Client {
			return deletingClient{c, []client.DeleteOption{client.GracePeriodSeconds(grace)}}
		})
		e.createGroup("ledger", v1.Strict)
		pod := e.createPod("ledger-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "node" })
		status, _, message := e.post(e.token(pod, v1.TokenAudience))
		if status != http.StatusConflict || !strings.HasSuffix(message, "ledger-0 is being deleted") {
			t.Errorf("%s: got %d %q, want 409 and the reason", name, status, message)
		}
	}
}

// selectedBy makes a pod one whose groups are those that select it, as recorded.
func selectedBy(recorded string, labels ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationSelectedBy: recorded}
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			pod.Labels[key] = value
		}
	}
}

// TestSelectedPodGetsCertificateForGroupsThatSelectIt: the annotation alone isn't enough, so
// whoever can edit it doesn't thereby move the pod into another group.
func TestSelectedPodGetsCertificateForGroupsThatSelectIt(t *testing.T) {
	e := newEnv(t)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: e.namespace, Name: name}
	}
	e.create(&v1.ElectionGroup{ObjectMeta: meta("ledger"), Spec: v1.ElectionGroupSpec{
		Members: []v1.Member{{Pod: "both", Priority: 1}, {Pod: "declared", Priority: 2}},
	}})
	mail := &v1.ElectionGroup{ObjectMeta: meta("mail"), Spec: v1.ElectionGroupSpec{
		Selector:     &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "mail"}},
		PriorityFrom: &v1.PriorityFrom{Ordinal: v1.HighestFirst},
	}}
	e.create(mail)
	mail.Status.Protocol = v1.ProtocolState{
		MemberList: &v1.MemberList{
			Version: 1, LeaseMillis: 9, State: v1.ListSettled, Members: []v1.Member{{Pod: "leaving", Priority: 1}},
		},
		Document: &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)},
	}
	must.Succeed(t, e.Status().Update(t.Context(), mail))
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		groups string
	}{
		"both":        {selectedBy("ledger,mail", "app=mail"), "ledger mail"},
		"declared":    {selectedBy("ledger,mail,gone"), "ledger"},
		"leaving":     {selectedBy("ledger,mail"), "mail"}, // It is still in the member list.
		"unselected":  {selectedBy("ledger,mail"), ""},
		"of-no-group": {selectedBy("gone"), ""},
		"waiting":     {selectedBy("", "app=mail"), ""},
	} {
		status, response, message := e.post(e.token(e.createPod(name, test.change), v1.TokenAudience))
		if test.groups == "" {
			want := "no ElectionGroup in namespace " + e.namespace + " selects pod " + name + " yet"
			if status != http.StatusForbidden || message != want {
				t.Errorf("%s: got %d %q, want %d %q", name, status, message, http.StatusForbidden, want)
			}
			continue
		}
		if status != http.StatusOK {
			t.Errorf("%s: got %d %q, want 200", name, status, message)
			continue
		}
		var want []string
		for group := range strings.FieldsSeq(test.groups) {
			want = append(want, "conclave://"+e.namespace+"/"+group+"/"+name)
		}
		expect.Equalf(t, e.verifiedNames(response), strings.Join(want, ", "), "%s: names in the certificate", name)
	}
}
