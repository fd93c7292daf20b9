package manifests_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// attempt is a write that somebody tries with the manager's service account.
type attempt struct {
	what string
	// refusal is a part of the policy's message; it is empty if the write is allowed.
	refusal string
	write   func(context.Context, client.Client) error
}

// create, patch and remove return attempts that change nothing.
func create(what, refusal string, object client.Object) attempt {
	return attempt{what, refusal, func(ctx context.Context, c client.Client) error {
		copied, _ := object.DeepCopyObject().(client.Object)
		return c.Create(ctx, copied, client.DryRunAll)
	}}
}

func patch[T client.Object](what, refusal string, object T, change func(T)) attempt {
	return attempt{what, refusal, func(ctx context.Context, c client.Client) error {
		before, _ := object.DeepCopyObject().(T)
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), before); err != nil {
			return err
		}
		changed, _ := before.DeepCopyObject().(T)
		change(changed)
		return c.Patch(ctx, changed, client.MergeFrom(before), client.DryRunAll)
	}}
}

func remove(what, refusal string, object client.Object) attempt {
	return attempt{what, refusal, func(ctx context.Context, c client.Client) error {
		copied, _ := object.DeepCopyObject().(client.Object)
		return c.Delete(ctx, copied, client.DryRunAll)
	}}
}

// TestPoliciesRestrictTheManager attempts what somebody might who has taken over the
// manager. Without the policies, its role permits all of it.
func TestPoliciesRestrictTheManager(t *testing.T) {
	admin := connect(t)
	policies, others := splitPolicies(build(t, "config/default"))
	apply(t, admin, others)
	for _, policy := range policies { // An earlier test may have created them.
		if err := admin.Delete(t.Context(), policy.DeepCopy()); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	asManager := connectAsManager(t)
	attempts := managerAttempts(newFixture(t, admin))
	for _, a := range attempts {
		eventually(t, a.what+" without the policies", func() error { return a.write(t.Context(), asManager) })
	}
	apply(t, admin, policies)
	for _, a := range attempts {
		if a.refusal != "" {
			eventually(t, a.what, func() error { return expectRefusal(a.write(t.Context(), asManager), a.refusal) })
		}
	}
	for _, a := range attempts {
		if err := a.write(t.Context(), asManager); a.refusal == "" && err != nil {
			t.Errorf("%s: got error %v, want it allowed", a.what, err)
		}
		expect.Succeedf(t, a.write(t.Context(), admin), "%s as another user", a.what)
	}
}

// TestRolesRestrictTheManager attempts what the policies don't need to refuse: the manager's roles don't permit it.
func TestRolesRestrictTheManager(t *testing.T) {
	admin := connect(t)
	apply(t, admin, build(t, "config/default"))
	f, asManager := newFixture(t, admin), connectAsManager(t)
	secret := &corev1.Secret{ObjectMeta: f.metadata("password")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + f.namespace}}
	electionGroup := &v1.ElectionGroup{
		ObjectMeta: f.metadata(group), Spec: v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "ledger-0", Priority: 1}}},
	}
	for _, object := range []client.Object{secret, node, electionGroup} {
		must.Succeed(t, admin.Create(t.Context(), object))
	}
	clusterAdmin := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "conclave-manager-pods"},
	}
	for _, a := range []attempt{
		{"read a Secret", "", func(ctx context.Context, c client.Client) error {
			return c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		}},
		{"list Secrets", "", func(ctx context.Context, c client.Client) error {
			return c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
		}},
		{"issue a token", "", func(ctx context.Context, c client.Client) error {
			account := &corev1.ServiceAccount{ObjectMeta: metadata(namespace, manager)}
			return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
		}},
		{"evict a pod", "", func(ctx context.Context, c client.Client) error {
			return c.SubResource("eviction").Create(ctx, f.member, &policyv1.Eviction{})
		}},
		create("create a Secret of another namespace", "", &corev1.Secret{ObjectMeta: f.metadata("new")}),
		create("create a pod", "", podOf(f.metadata("new"))),
		remove("delete a pod", "", f.member),
		create("create a ConfigMap", "", &corev1.ConfigMap{ObjectMeta: f.metadata("new")}),
		remove("delete a group", "", electionGroup),
		remove("delete a policy", "", binding),
		create("bind a role", "",
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "new"}, RoleRef: clusterAdmin}),
		{"taint a node", "", func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, node,
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)), client.DryRunAll)
		}},
		{"change a group", "", func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, electionGroup,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		}},
	} {
		if err := a.write(t.Context(), asManager); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want it forbidden", a.what, err)
		}
	}
}

// connectAsManager returns a client with the manager's service account.
func connectAsManager(t *testing.T) client.Client {
	t.Helper()
	need.Complete(t)
	config := apiServer.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + manager,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	c := testclient.New(t, config)
	return c
}

// splitPolicies separates the admission policies and their bindings from other objects.
func splitPolicies(objects []*unstructured.Unstructured) (policies, others []*unstructured.Unstructured) {
	for _, object := range objects {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			policies = append(policies, object)
		} else {
			others = append(others, object)
		}
	}
	return policies, others
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		})
	if err != nil {
		t.Errorf("%s: %v", what, last)
	}
}

func expectRefusal(err error, message string) error {
	if err == nil || !strings.Contains(err.Error(), message) {
		return fmt.Errorf("got error %w, want one with %q", err, message)
	}
	return nil
}
