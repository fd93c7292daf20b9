package controllers_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// permissions are the rules of the markers in rbac.go, and of the optional role.
var permissions = sync.OnceValues(func() ([]rbacv1.PolicyRule, error) {
	text, err := os.ReadFile("rbac.go")
	if err != nil {
		return nil, err
	}
	var rules []rbacv1.PolicyRule
	marker := regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:groups=(\S+),resources=(\S+),verbs=(\S+)$`)
	for _, found := range marker.FindAllStringSubmatch(string(text), -1) {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{strings.Trim(found[1], `"`)},
			Resources: strings.Split(found[2], ";"),
			Verbs:     strings.Split(found[3], ";"),
		})
	}
	optional, err := os.ReadFile("../config/rbac/services.yaml")
	if err != nil {
		return nil, err
	}
	objects, err := manifests.Parse(optional)
	if err != nil {
		return nil, err
	}
	var role rbacv1.ClusterRole
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, &role)
	return append(rules, role.Rules...), err
})

// policies are those of the manager.
var policies = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	return manifests.Build(context.Background(), "..", "config/policy")
})

// userWithPermissions returns a user with exactly these permissions, and restricted by the
// policies, so that every test shows that they suffice.
func userWithPermissions(t testing.TB, config *rest.Config) string {
	t.Helper()
	rules, err := permissions()
	if err != nil || len(rules) == 0 {
		t.Fatalf("got %d rules in rbac.go, want some: %v", len(rules), err)
	}
	policies, err := policies()
	must.Succeed(t, err)
	const user = "system:serviceaccount:conclave-system:conclave-manager"
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	must.Succeed(t, err)
	name := metav1.ObjectMeta{Name: "conclave-test"}
	objects := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name,
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		},
	}
	for _, policy := range policies {
		objects = append(objects, policy.DeepCopy())
	}
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	awaitPolicies(t, config, user)
	return user
}

// awaitPolicies waits until the API server enforces the policies: until the user may not create a Service of no group.
func awaitPolicies(t testing.TB, config *rest.Config, user string) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	must.Succeed(t, err)
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			foreign := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "foreign"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}
			err := c.Create(ctx, foreign, client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "denied request"), nil
		})
	if err != nil {
		t.Fatal("the API server doesn't enforce the policies:", err)
	}
}

func TestPermissionsAreMinimal(t *testing.T) {
	rules, err := permissions()
	must.Succeed(t, err)
	for _, rule := range rules {
		for _, word := range append(append(rule.APIGroups, rule.Resources...), rule.Verbs...) {
			if strings.Contains(word, "*") || word == "secrets" || word == "pods/exec" || word == "deletecollection" {
				t.Errorf("got %s in %v, want no such permission", word, rule)
			}
		}
	}
}
