package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// TestSeveralOperators: two teams of a cluster install an operator each, in the namespaces
// that they serve, and remove it again.
func TestSeveralOperators(t *testing.T) {
	c := newSharedCluster(t)
	bank, shop := []string{"NAMESPACE=bank", "WATCH_NAMESPACES=bank"}, []string{"NAMESPACE=shop", "WATCH_NAMESPACES=shop"}
	c.make("deploy", bank...)
	for message, variables := range map[string][]string{
		"the operator in namespace bank also serves bank: each namespace must have one operator":                         {"NAMESPACE=shop", "WATCH_NAMESPACES=shop,bank"},
		"the operator in namespace bank serves bank: set WATCH_NAMESPACES to other namespaces, or remove that one first": {"NAMESPACE=shop"},
	} {
		if output, err := c.run("deploy", variables...); err == nil || !strings.Contains(output, message) {
			t.Errorf("make deploy %q: got %q (%v), want %q", variables, output, err, message)
		}
	}
	c.make("deploy", shop...)
	c.expect("bank", true)
	c.expect("shop", true)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger-0", Finalizers: []string{v1.StopFinalizer("ledger")}}}
	pod.Spec.Containers = []corev1.Container{{Name: "application", Image: "none"}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"undeploy", "uninstall"} {
		want := "Delete each such group first (kubectl delete electiongroup ledger --namespace bank)"
		if output, err := c.run(target, bank...); err == nil || !strings.Contains(output, want) {
			t.Errorf("make %s: got %q (%v), want %q", target, output, err, want)
		}
	}
	c.expect("bank", true)
	pod.Finalizers = nil
	if err := c.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	output := c.make("undeploy", bank...)
	if want := "keeping the CRDs, ClusterRoles and policies, because there are other operators, in the namespaces: shop"; !strings.Contains(output, want) {
		t.Errorf("got %q, want %q", output, want)
	}
	c.expect("bank", false)
	c.expect("shop", true)
	if err := c.List(t.Context(), &v1.ElectionGroupList{}); err != nil {
		t.Errorf("list the groups: %v", err)
	}
	c.make("undeploy", shop...)
	c.expect("shop", false)
	crd := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "electiongroups." + v1.GroupVersion.Group}, crd); !apierrors.IsNotFound(err) {
		t.Errorf("read the CRD without an operator: got error %v, want none there", err)
	}
}

// An operator that serves all namespaces excludes others.
func TestOneOperatorForAllNamespaces(t *testing.T) {
	c := newSharedCluster(t)
	c.make("deploy")
	want := "the operator in namespace conclave-system serves all namespaces: remove it first (make undeploy NAMESPACE=conclave-system), or use that one"
	if output, err := c.run("deploy", "NAMESPACE=shop", "WATCH_NAMESPACES=shop"); err == nil || !strings.Contains(output, want) {
		t.Errorf("got %q (%v), want %q", output, err, want)
	}
	c.make("deploy") // an upgrade
}

// TestOperatorServesFewerNamespaces: an installation loses the permissions, and the webhook, that it
// doesn't need any more. Otherwise, the API server would refuse every pod that opts in.
func TestOperatorServesFewerNamespaces(t *testing.T) {
	c := newSharedCluster(t)
	c.make("deploy", "NAMESPACE=bank")
	c.make("deploy", "NAMESPACE=bank", "WATCH_NAMESPACES=bank,shop")
	var webhooks admissionregistrationv1.MutatingWebhookConfigurationList
	if err := c.List(t.Context(), &webhooks); err != nil || len(webhooks.Items) > 0 {
		t.Errorf("got %d webhook configurations (%v), want none", len(webhooks.Items), err)
	}
	if c.permits("bank", authorizationv1.ResourceAttributes{Namespace: "default", Verb: "create", Resource: "configmaps"}) {
		t.Error("the operator has permissions for all namespaces, want bank and shop only")
	}
	c.make("deploy", "NAMESPACE=bank", "WATCH_NAMESPACES=bank")
	c.expect("bank", true)
	c.make("deploy", "NAMESPACE=bank")
	if err := c.List(t.Context(), &webhooks); err != nil || len(webhooks.Items) != 1 {
		t.Errorf("for all namespaces again: got %d webhook configurations (%v), want one", len(webhooks.Items), err)
	}
}

// sharedCluster is a cluster with two namespaces, which users have created.
type sharedCluster struct {
	client.Client

	t       *testing.T
	kubectl string
}

func newSharedCluster(t *testing.T) *sharedCluster {
	t.Helper()
	dependOn(t, "Makefile", "config", "hack/tools", "hack/overlay", "hack/operators", "hack/prune", "hack/held")
	need.Complete(t)
	environment := apiserver.Start(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	c := &sharedCluster{t: t, kubectl: filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")}
	c.Client = testclient.New(t, environment.Config)
	for _, name := range []string{"bank", "shop"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run runs a target of the Makefile, without generating the manifests again.
func (c *sharedCluster) run(target string, variables ...string) (string, error) {
	arguments := append([]string{"-s", "-o", "manifests", target, "KUBECTL=" + c.kubectl, "IMG=manager", "AGENT_IMG=agent"}, variables...)
	command := exec.CommandContext(c.t.Context(), "make", arguments...)
	command.Dir = root
	output, err := command.CombinedOutput()
	return string(output), err
}

func (c *sharedCluster) make(target string, variables ...string) string {
	c.t.Helper()
	output, err := c.run(target, variables...)
	if err != nil {
		c.t.Fatalf("make %s %q: %v\n%s", target, variables, err, output)
	}
	return output
}

// expect checks whether there is an operator in a namespace, and that its account has the
// permissions that it needs in this namespace and no other, or none.
func (c *sharedCluster) expect(in string, installed bool) {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: in, Name: manager}, &appsv1.Deployment{})
	if client.IgnoreNotFound(err) != nil || installed != (err == nil) {
		c.t.Errorf("the Deployment in %s: got error %v, want installed %t", in, err, installed)
	}
	if err := c.Get(c.t.Context(), client.ObjectKey{Name: in}, &corev1.Namespace{}); err != nil {
		c.t.Errorf("the namespace of the users: %v", err)
	}
	var permitted []string
	for _, namespace := range []string{"bank", "shop"} {
		if c.permits(in, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "configmaps"}) {
			permitted = append(permitted, namespace)
		}
	}
	if c.permits(in, authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}) {
		permitted = append(permitted, "reviews")
	}
	var want []string
	if installed {
		want = []string{in, "reviews"}
	}
	if !slices.Equal(permitted, want) {
		c.t.Errorf("the operator in %s: got permissions for %q, want %q", in, permitted, want)
	}
}

// permits asks the API server about the account of the manager in a namespace.
func (c *sharedCluster) permits(in string, attributes authorizationv1.ResourceAttributes) bool {
	c.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + in + ":" + manager, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes,
	}}
	if err := c.Create(c.t.Context(), review); err != nil {
		c.t.Fatal(err)
	}
	return review.Status.Allowed
}
