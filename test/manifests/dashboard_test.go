package manifests_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPermissionsOfTheDashboard: it reads groups, asks who may see them, and writes nothing.
func TestPermissionsOfTheDashboard(t *testing.T) {
	objects := build(t, "config/dashboard")
	want := []string{
		"authentication.k8s.io/tokenreviews: create",
		"authorization.k8s.io/subjectaccessreviews: create",
		"conclave.dev/electiongroups: list watch",
	}
	if got := formatRules(find[rbacv1.ClusterRole](t, objects, "ClusterRole", "conclave-dashboard").Rules); !slices.Equal(got, want) {
		t.Errorf("got permissions %q, want %q", got, want)
	}
	lease := []string{"coordination.k8s.io/leases " + operatorlease.Name + ": get"}
	if got := formatRules(find[rbacv1.Role](t, objects, "Role", "conclave-dashboard").Rules); !slices.Equal(got, lease) {
		t.Errorf("got permissions %q in its namespace, want %q", got, lease)
	}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Secret" {
			t.Errorf("got %s %s, want none", kind, object.GetName())
		}
	}
}

// TestDashboardIsRestricted: the namespace of the operator admits the pod of the dashboard.
func TestDashboardIsRestricted(t *testing.T) {
	c := connect(t)
	apply(t, c, build(t, "config/default"))
	objects := build(t, "config/dashboard")
	apply(t, c, objects)
	template := find[appsv1.Deployment](t, objects, "Deployment", "conclave-dashboard").Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "dashboard", Labels: template.Labels}
	if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("cannot create the pod: %v", err)
	}
	if container := pod.Spec.Containers[0]; !*container.SecurityContext.ReadOnlyRootFilesystem || container.Resources.Limits.Memory().IsZero() {
		t.Errorf("got container %+v, want a read-only root and a memory limit", container)
	}
}

// TestDeployDashboard: the variables of the Makefile set the image, the namespace and the hosts.
func TestDeployDashboard(t *testing.T) {
	command := exec.CommandContext(t.Context(), "make", "-s", "deploy-dashboard", "KUBECTL=sh -c cat", "NAMESPACE=elections",
		"DASHBOARD_IMG=example.org/dashboard@sha256:0123", "DASHBOARD_HOSTS=a.example.org,b.example.org")
	command.Dir = root
	text, err := command.Output()
	must.Succeed(t, err)
	objects, err := manifests.Parse(text)
	must.Succeed(t, err)
	if strings.Contains(string(text), namespace) {
		t.Error("got the default namespace in the manifests, want the other one everywhere")
	}
	container := find[appsv1.Deployment](t, objects, "Deployment", "conclave-dashboard").Spec.Template.Spec.Containers[0]
	want := []string{"--certificates=/etc/dashboard", "--host=localhost", "--host=conclave-dashboard.elections.svc", "--host=a.example.org", "--host=b.example.org"}
	if container.Image != "example.org/dashboard@sha256:0123" || !slices.Equal(container.Args, want) {
		t.Errorf("got image %s with arguments %q, want %q", container.Image, container.Args, want)
	}
}
