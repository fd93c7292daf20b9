package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestSecondOperatorIsRefused: it would take permissions and the webhook from the first one. Its removal would delete
// the CRD.
func TestSecondOperatorIsRefused(t *testing.T) {
	c := newTargetCluster(t)
	c.deploy()
	const want = "the operator of this cluster is in namespace conclave-system: set NAMESPACE=conclave-system, or run " +
		"this first: make undeploy NAMESPACE=conclave-system"
	for _, target := range []string{"deploy", "undeploy"} {
		if output, err := c.run(target, "NAMESPACE=shop"); err == nil || !strings.Contains(output, want) {
			t.Errorf("make %s: got %q (%v), want %q", target, output, err, want)
		}
	}
	c.expect(true)
	c.deploy() // an upgrade
}

// TestUndeployNeedsNoPodsOfStrictGroups: without the operator, they could not be deleted.
func TestUndeployNeedsNoPodsOfStrictGroups(t *testing.T) {
	c := newTargetCluster(t)
	c.deploy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "ledger-0", Finalizers: []string{v1.StopFinalizer("ledger")},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "application", Image: "none"}}
	must.Succeed(t, c.Create(t.Context(), pod))
	for _, target := range []string{"undeploy", "uninstall"} {
		const want = "could not be deleted without the operator: delete these groups first, or set " +
			"another mode: default/ledger"
		if output, err := c.run(target); err == nil || !strings.Contains(output, want) {
			t.Errorf("make %s: got %q (%v), want %q", target, output, err, want)
		}
	}
	c.expect(true)
	pod.Finalizers = nil
	must.Succeed(t, c.Update(t.Context(), pod))
	var output string
	var work sync.WaitGroup
	var err error
	work.Go(func() { output, err = c.run("undeploy") })
	c.finalizeNamespace()
	if work.Wait(); err != nil {
		t.Fatalf("make undeploy: %v\n%s", err, output)
	}
	c.expect(false)
	crd := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "electiongroups." + v1.GroupVersion.Group},
		crd); !apierrors.IsNotFound(err) {
		t.Errorf("read the CRD without an operator: got error %v, want none there", err)
	}
}

// targetCluster is a cluster that only the arguments of kubectl select, as a context does: not the current kubeconfig.
type targetCluster struct {
	client.Client

	t                   *testing.T
	kubectl, kubeconfig string
}

func newTargetCluster(t *testing.T) *targetCluster {
	t.Helper()
	dependOn(t, "Makefile", "config", "hack/tools", "hack/overlay", "cmd/manager")
	need.Complete(t)
	environment := apiserver.Start(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, environment.KubeConfig, 0o600))
	t.Setenv("KUBECONFIG", "")
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	return &targetCluster{t: t, kubectl: kubectl, kubeconfig: kubeconfig, Client: testclient.New(t, environment.Config)}
}

// finalizeNamespace does what the controller of namespaces does in a cluster: it ends the deletion of the operator's
// namespace, for which kubectl waits, after everything else is gone. Without their namespace, the policies refuse to
// delete Services.
func (c *targetCluster) finalizeNamespace() {
	c.t.Helper()
	deleted := &corev1.Namespace{}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{} // kubectl deletes it last.
	testwait.Until(c.t, "the objects of the operator are deleted", func() bool {
		return apierrors.IsNotFound(c.Get(c.t.Context(), client.ObjectKey{Name: "conclave"}, webhook)) &&
			c.Get(c.t.Context(), client.ObjectKey{Name: namespace}, deleted) == nil && deleted.DeletionTimestamp != nil
	})
	deleted.Spec.Finalizers = nil
	must.Succeed(c.t, c.SubResource("finalize").Update(c.t.Context(), deleted))
}

// run runs a target of the Makefile, without generating the manifests again.
func (c *targetCluster) run(target string, variables ...string) (string, error) {
	arguments := append([]string{"-s", "-o", "manifests", target, "KUBECTL=" + c.kubectl + " --kubeconfig " +
		c.kubeconfig, "IMG=manager", "AGENT_IMG=agent"}, variables...)
	command := exec.CommandContext(c.t.Context(), "make", arguments...)
	command.Dir = root
	output, err := command.CombinedOutput()
	return string(output), err
}

func (c *targetCluster) deploy() {
	c.t.Helper()
	if output, err := c.run("deploy"); err != nil {
		c.t.Fatalf("make deploy: %v\n%s", err, output)
	}
}

// expect checks whether there is an operator with its permissions.
func (c *targetCluster) expect(installed bool) {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: manager}, &appsv1.Deployment{})
	if client.IgnoreNotFound(err) != nil || installed != (err == nil) {
		c.t.Errorf("the Deployment: got error %v, want installed %t", err, installed)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + namespace + ":" + manager,
		Groups:             []string{"system:serviceaccounts", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "create", Resource: "services"},
	}}
	must.Succeed(c.t, c.Create(c.t.Context(), review))
	expect.Equalf(c.t, review.Status.Allowed, installed, "permissions of the manager")
}
