package controllers_test

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// permissions are the rules of the markers in rbac.go.
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
	return rules, nil
})

// userWithPermissions returns a user with exactly these permissions, so that every test
// shows that they suffice.
func userWithPermissions(t testing.TB) string {
	t.Helper()
	rules, err := permissions()
	if err != nil || len(rules) == 0 {
		t.Fatalf("got %d rules in rbac.go, want some: %v", len(rules), err)
	}
	const user = "system:serviceaccount:conclave-system:conclave-manager"
	c, err := client.New(apiServer.Config(t), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "conclave-test"}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name,
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		},
	} {
		if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return user
}

func TestPermissionsAreMinimal(t *testing.T) {
	rules, err := permissions()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		for _, word := range append(append(rule.APIGroups, rule.Resources...), rule.Verbs...) {
			if strings.Contains(word, "*") || word == "secrets" || word == "pods/exec" || word == "deletecollection" {
				t.Errorf("got %s in %v, want no such permission", word, rule)
			}
		}
	}
}
