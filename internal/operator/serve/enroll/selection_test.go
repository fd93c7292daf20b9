package enroll_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

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
	e.create(&v1.ElectionGroup{ObjectMeta: meta("ledger"), Spec: v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "both", Priority: 1}, {Pod: "declared", Priority: 2}}}})
	mail := &v1.ElectionGroup{ObjectMeta: meta("mail"), Spec: v1.ElectionGroupSpec{
		Selector: &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "mail"}}, PriorityFrom: &v1.PriorityFrom{Ordinal: v1.HighestFirst},
	}}
	e.create(mail)
	mail.Status.Protocol = v1.ProtocolState{
		MemberList: &v1.MemberList{Version: 1, LeaseMillis: 9, State: v1.ListSettled, Members: []v1.Member{{Pod: "leaving", Priority: 1}}},
		Document:   &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)},
	}
	if err := e.Status().Update(t.Context(), mail); err != nil {
		t.Fatal(err)
	}
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
		if got := e.verifiedNames(response); got != strings.Join(want, ", ") {
			t.Errorf("%s: got a certificate for %s, want %s", name, got, want)
		}
	}
}
