package manifests_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

const (
	root      = "../.."
	namespace = "conclave-system"
	manager   = "conclave-manager"
)

func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifests.Build(t.Context(), root, folder)
	must.Succeed(t, err)
	if len(objects) == 0 {
		t.Fatalf("%s has no objects", folder)
	}
	return objects
}

// find returns the object with a kind and name.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			typed := new(T)
			must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
			return typed
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// formatRules returns a line for each resource of the rules, so that they can be compared and reviewed.
func formatRules(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		verbs := strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " ")
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				line := strings.TrimPrefix(group+"/"+resource, "/")
				if len(rule.ResourceNames) > 0 {
					line += " " + strings.Join(rule.ResourceNames, ",")
				}
				lines = append(lines, line+": "+verbs)
			}
		}
		for _, url := range rule.NonResourceURLs {
			lines = append(lines, url+": "+verbs)
		}
	}
	slices.Sort(lines)
	return lines
}

// The permissions of the manager. docs/reference.md explains each of them.
var (
	clusterRules = []string{
		"admissionregistration.k8s.io/mutatingwebhookconfigurations conclave: get list patch watch",
		"authentication.k8s.io/tokenreviews: create",
		"authorization.k8s.io/subjectaccessreviews: create",
		"conclave.dev/electiongroups/finalizers: update",
		"conclave.dev/electiongroups/status: update",
		"conclave.dev/electiongroups: get list watch",
		"events.k8s.io/events: create",
		"nodes: list watch",
		"pods: get list patch watch",
	}
	optionalRules = []string{
		"discovery.k8s.io/endpointslices: create delete get list patch watch",
		"services: create delete get list patch watch",
	}
	namespaceRules = []string{
		"coordination.k8s.io/leases conclave-manager: get update",
		"coordination.k8s.io/leases: create",
		"events: create patch",
		"secrets conclave-ca,conclave-metrics: get update",
		"secrets: create",
	}
)

func TestPermissionsOfTheManager(t *testing.T) {
	objects := build(t, "config/default")
	for what, lists := range map[string][2][]string{
		"ClusterRole": {formatRules(find[rbacv1.ClusterRole](t, objects, "ClusterRole", manager).Rules), clusterRules},
		"optional ClusterRole": {formatRules(find[rbacv1.ClusterRole](t, objects, "ClusterRole",
			"conclave-services").Rules), optionalRules},
		"Role": {formatRules(find[rbacv1.Role](t, objects, "Role", manager).Rules), namespaceRules},
	} {
		if got, want := strings.Join(lists[0], "\n"), strings.Join(lists[1], "\n"); got != want {
			t.Errorf("%s: got permissions\n%s\nwant\n%s", what, got, want)
		}
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			bound := find[rbacv1.RoleBinding](t, []*unstructured.Unstructured{object}, object.GetKind(), object.GetName())
			if !slices.Contains([]string{manager, "conclave-services"}, bound.RoleRef.Name) ||
				bound.RoleRef.Name != bound.Name || len(bound.Subjects) != 1 || bound.Subjects[0].Name != manager ||
				bound.Subjects[0].Namespace != namespace {
				t.Errorf("%s %s grants %v to %v, want only the manager", object.GetKind(), object.GetName(),
					bound.RoleRef, bound.Subjects)
			}
		}
	}
}

// violation describes why a rule grants too much. It is empty if the rule is acceptable.
func violation(rule rbacv1.PolicyRule, ownNamespace bool) string {
	for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs,
		rule.ResourceNames, rule.NonResourceURLs) {
		switch {
		case strings.Contains(word, "*"):
			return "a wildcard"
		case slices.Contains([]string{
			"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "serviceaccounts/token", "nodes/proxy",
		}, word):
			return "access to other pods or accounts: " + word
		case slices.Contains([]string{"impersonate", "escalate", "bind"}, word):
			return "privilege escalation: " + word
		}
	}
	if !slices.Contains(rule.Resources, "secrets") {
		return ""
	}
	if !ownNamespace {
		return "Secrets of other namespaces"
	}
	for _, verb := range rule.Verbs {
		// A rule for "create" cannot be restricted by name.
		if verb != "create" && !slices.Equal(rule.ResourceNames, []string{"conclave-ca", "conclave-metrics"}) ||
			verb == "list" || verb == "watch" {
			return verb + " of other Secrets"
		}
	}
	return ""
}

func TestNoExcessivePermissions(t *testing.T) {
	for _, object := range build(t, "config/default") {
		if kind := object.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		role := find[rbacv1.Role](t, []*unstructured.Unstructured{object}, object.GetKind(), object.GetName())
		for _, rule := range role.Rules {
			if found := violation(rule, role.Namespace == namespace); found != "" {
				t.Errorf("%s %s: %s: %v", object.GetKind(), role.Name, found, rule)
			}
		}
	}
	for _, rule := range []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"conclave-ca", "conclave-metrics"},
			Verbs: []string{"get", "list"},
		},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}},
	} {
		if violation(rule, true) == "" {
			t.Errorf("no violation found in %v", rule)
		}
	}
}

var apiServer = apiserver.New()

func TestMain(m *testing.M) { apiServer.Main(m) }

func connect(t *testing.T) client.Client {
	t.Helper()
	need.Complete(t)
	c := testclient.New(t, apiServer.Config(t))
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

func apply(t *testing.T, c client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		object = object.DeepCopy()
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("kubectl")); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func TestApply(t *testing.T) {
	c := connect(t)
	objects := build(t, "config/default")
	apply(t, c, objects)
	apply(t, c, objects)

	pod := managerPod(t, objects)
	expect.Succeedf(t, c.Create(t.Context(), pod.DeepCopy(), client.DryRunAll),
		"cannot create the manager's pod in its namespace")
	// The API server enforces the restricted Pod Security Standard.
	for name, weaken := range map[string]func(*corev1.PodSpec){
		"root":       func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"seccomp":    func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"escalation": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"capability": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
	} {
		weaker := pod.DeepCopy()
		weaken(&weaker.Spec)
		if err := c.Create(t.Context(), weaker, client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "restricted") {
			t.Errorf("%s: got error %v, want a violation of Pod Security", name, err)
		}
	}
}

// managerPod returns a pod of the manager's Deployment.
func managerPod(t *testing.T, objects []*unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	template := find[appsv1.Deployment](t, objects, "Deployment", manager).Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = namespace, "manager"
	return pod
}

func TestDeploymentOfTheManager(t *testing.T) {
	objects := build(t, "config/default")
	deployment := find[appsv1.Deployment](t, objects, "Deployment", manager)
	container := deployment.Spec.Template.Spec.Containers[0]
	if *deployment.Spec.Replicas != 2 || !*container.SecurityContext.ReadOnlyRootFilesystem ||
		container.ImagePullPolicy != corev1.PullIfNotPresent || container.Resources.Limits.Memory().IsZero() ||
		!container.Resources.Limits.Cpu().IsZero() || container.Resources.Requests.Cpu().IsZero() {
		t.Errorf("got %d replicas with container %+v", *deployment.Spec.Replicas, container)
	}
	for _, object := range objects {
		if object.GetKind() == "Secret" {
			t.Errorf("got Secret %s, want none: applying the manifests again would overwrite it", object.GetName())
		}
	}
}

// dependOn makes Go's test cache notice changes of files and folders of the repository.
func dependOn(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		must.Succeed(t, program.DependOnFolder(filepath.Join(root, path)))
	}
}

// buildInstaller runs make build-installer.
func buildInstaller(t *testing.T, variables ...string) (string, []*unstructured.Unstructured) {
	t.Helper()
	dependOn(t, "Makefile", "config", "hack/tools", "hack/overlay")
	file := filepath.Join(t.TempDir(), "install.yaml")
	command := exec.CommandContext(t.Context(), "make",
		append([]string{"-s", "build-installer", "INSTALLER=" + file, "IMG=manager", "AGENT_IMG=agent"}, variables...)...)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text := must.ReadFile(t, file)
	objects, err := manifests.Parse(text)
	must.Succeed(t, err)
	return string(text), objects
}

// Each image comes from one variable of the Makefile.
func TestInstallerSetsImages(t *testing.T) {
	_, objects := buildInstaller(t, "IMG=example.org/manager:v1", "AGENT_IMG=example.org/agent@sha256:0123")
	container := managerPod(t, objects).Spec.Containers[0]
	agent := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "AGENT_IMAGE" })
	if container.Image != "example.org/manager:v1" || agent < 0 ||
		container.Env[agent].Value != "example.org/agent@sha256:0123" {
		t.Errorf("got image %s and environment %v, want the images of the Makefile's variables",
			container.Image, container.Env)
	}
	expect.Lenf(t, objects, len(build(t, "config/default")), "objects")
}

func TestInstallerSetsNamespace(t *testing.T) {
	const other = "elections"
	text, objects := buildInstaller(t, "NAMESPACE="+other)
	for line := range strings.Lines(text) {
		if strings.Contains(line, namespace) {
			t.Errorf("got line %q with the default namespace", strings.TrimSpace(line))
		}
	}
	for _, object := range objects {
		if in := object.GetNamespace(); in != "" && in != other {
			t.Errorf("%s %s: got namespace %s, want %s", object.GetKind(), object.GetName(), in, other)
		}
	}
	itself := find[corev1.Namespace](t, objects, "Namespace", other)
	for i, webhook := range find[admissionregistrationv1.MutatingWebhookConfiguration](t, objects,
		"MutatingWebhookConfiguration", "conclave").Webhooks {
		expect.Equalf(t, webhook.ClientConfig.Service.Namespace, other,
			"namespace of the Service of webhook %s", webhook.Name)
		selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
		must.Succeed(t, err)
		const name, injection = corev1.LabelMetadataName, v1.LabelInjection
		operator := maps.Clone(itself.Labels)
		operator[injection] = v1.InjectionEnabled
		for _, n := range []struct {
			labels map[string]string
			want   [2]bool // for pods with the label, and for those without
		}{
			{itself.Labels, [2]bool{false, false}},
			{operator, [2]bool{false, false}},
			{map[string]string{name: metav1.NamespaceSystem, injection: v1.InjectionEnabled}, [2]bool{false, false}},
			{map[string]string{name: "bank"}, [2]bool{true, false}},
			{map[string]string{name: "bank", injection: "disabled"}, [2]bool{true, false}},
			{map[string]string{name: "bank", injection: v1.InjectionEnabled}, [2]bool{true, true}},
			{map[string]string{name: namespace}, [2]bool{true, false}},
		} {
			expect.Equalf(t, selector.Matches(labels.Set(n.labels)), n.want[i],
				"webhook %s for namespaces with labels %v", webhook.Name, n.labels)
		}
	}
	c := connect(t)
	apply(t, c, objects)
}
