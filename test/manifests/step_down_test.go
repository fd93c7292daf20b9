package manifests_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// Users write only their own name to the annotation that names who requested a step-down.
func TestUsersNameOnlyThemselves(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "alice-", Namespace: "default"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
	}}
	must.Succeed(t, admin.Create(t.Context(), role))
	must.Succeed(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: "default"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}))
	config := apiServer.Config(t)
	config.Impersonate.UserName = "alice"
	alice := testclient.New(t, config)
	pod := podOf(metav1.ObjectMeta{GenerateName: "ledger-", Namespace: "default", Labels: map[string]string{v1.LabelAgent: "later"}})
	must.Succeed(t, admin.Create(t.Context(), pod)) // The API server can't reach the webhook.
	before := pod.DeepCopy()
	pod.Labels[v1.LabelAgent] = v1.AgentEnabled
	must.Succeed(t, admin.Patch(t.Context(), pod, client.MergeFrom(before)))
	write := func(c client.Client, value string, options ...client.PatchOption) error {
		changed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationStepDownBy, value)
		return c.Patch(t.Context(), changed, client.RawPatch("application/merge-patch+json", []byte(patch)), options...)
	}
	const want = "with your own name"
	eventually(t, "another name is refused", func() error {
		if err := write(alice, v1.FormatStepDownBy("ledger", 7, "bob"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %w, want %q", err, want)
		}
		return nil
	})
	for _, value := range []string{"", "alice", "ledger/7", "ledger/7  alice", "ledger/7 alice ", "ledger/7 bob alice", "ledger/7 system:admin"} {
		expect.ErrorContainsf(t, write(alice, value), want, "%q: error", value)
	}
	must.Succeed(t, write(alice, v1.FormatStepDownBy("ledger", 7, "alice")))
	// Others change the pod as before.
	changed := pod.DeepCopy()
	changed.Annotations = map[string]string{v1.AnnotationStepDownBy: v1.FormatStepDownBy("ledger", 7, "alice"), "example.org/other": "value"}
	must.Succeed(t, admin.Patch(t.Context(), changed, client.MergeFrom(pod)))
	changed = pod.DeepCopy()
	changed.Annotations = map[string]string{v1.AnnotationStepDownBy: v1.FormatStepDownBy("ledger", 7, "alice")}
	removed := changed.DeepCopy()
	removed.Annotations = nil
	must.Succeed(t, admin.Patch(t.Context(), removed, client.MergeFrom(changed)))
}
