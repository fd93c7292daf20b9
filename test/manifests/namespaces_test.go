package manifests_test

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// With WATCH_NAMESPACES, the manager has permissions in these namespaces instead of all.
func TestInstallerWatchesNamespaces(t *testing.T) {
	_, objects := buildInstaller(t, "NAMESPACE=elections", "WATCH_NAMESPACES=bank,shop")
	var bindings []string
	for _, object := range objects {
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			t.Error("got a webhook configuration, want none: it is for all namespaces")
		case "ClusterRoleBinding", "RoleBinding":
			bound := find[rbacv1.RoleBinding](t, []*unstructured.Unstructured{object}, object.GetKind(), object.GetName())
			for _, subject := range bound.Subjects {
				bindings = append(bindings, fmt.Sprintf("%s %s in %q for %s/%s", bound.RoleRef.Kind, bound.RoleRef.Name, bound.Namespace, subject.Namespace, subject.Name))
			}
		}
	}
	slices.Sort(bindings)
	want := []string{
		`ClusterRole conclave-manager in "bank" for elections/conclave-manager`,
		`ClusterRole conclave-manager in "shop" for elections/conclave-manager`,
		`ClusterRole conclave-manager-reviews in "" for elections/conclave-manager`,
		`Role conclave-manager in "elections" for elections/conclave-manager`,
	}
	if !slices.Equal(bindings, want) {
		t.Errorf("got bindings %q, want %q", bindings, want)
	}
	reviews := formatRules(find[rbacv1.ClusterRole](t, objects, "ClusterRole", "conclave-manager-reviews").Rules)
	if want := []string{"authentication.k8s.io/tokenreviews: create", "authorization.k8s.io/subjectaccessreviews: create"}; !slices.Equal(reviews, want) {
		t.Errorf("got permissions %q in all namespaces, want %q", reviews, want)
	}
	if args := managerPod(t, objects).Spec.Containers[0].Args; !slices.Contains(args, "--watch-namespaces=bank,shop") {
		t.Errorf("got arguments %q, want the namespaces", args)
	}
}
