// Package chart tests the Helm chart: it renders the chart with the engine of Helm, and compares the objects with those
// of kustomize.
package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

const root = "../../.."

// object is an object of Kubernetes.
type object map[string]any

// at returns what is at a path, or nil.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[key]
	}
	return value
}

// pod returns the spec of the pods of a Deployment or Job, and its first container.
func (o object) pod(t *testing.T) (spec, container object) {
	t.Helper()
	spec, ok := o.at("spec", "template", "spec").(map[string]any)
	if !ok {
		t.Fatalf("got %v, want an object with a template", o)
	}
	containers, ok := spec["containers"].([]any)
	if !ok || len(containers) != 1 {
		t.Fatalf("got containers %v, want one", spec["containers"])
	}
	container, ok = containers[0].(map[string]any)
	if !ok {
		t.Fatalf("got container %v", containers[0])
	}
	return spec, container
}

// objects are the objects of an installation, by kind, namespace and name.
type objects map[string]object

func (o objects) add(t *testing.T, text string) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var found object
		if err := yaml.Unmarshal([]byte(document), &found); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if len(found) == 0 {
			continue
		}
		words := []string{}
		for _, path := range [][]string{{"kind"}, {"metadata", "namespace"}, {"metadata", "name"}} {
			if word, ok := found.at(path...).(string); ok {
				words = append(words, word)
			}
		}
		key := strings.Join(words, " ")
		if o[key] != nil {
			t.Errorf("got two objects %s", key)
		}
		o[key] = found
		sortEnvironment(found)
	}
}

// sortEnvironment sorts the variables of all containers: kustomize puts those that it changes first.
func sortEnvironment(o object) {
	containers, _ := o.at("spec", "template", "spec", "containers").([]any)
	for _, container := range containers {
		fields, _ := container.(map[string]any)
		variables, _ := fields["env"].([]any)
		slices.SortFunc(variables, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

var load = sync.OnceValues(
	func() (*v2.Chart, error) { return loader.LoadDir(filepath.Join(root, "charts", "conclave")) })

// render returns the objects that helm install would create, and those of hooks. The values are YAML.
func render(t *testing.T, namespace, values string) (installed, hooks objects, err error) {
	t.Helper()
	chart, err := load()
	must.Succeed(t, err)
	given, err := common.ReadValues([]byte(values))
	must.Succeed(t, err)
	all, err := util.ToRenderValues(chart, given,
		common.ReleaseOptions{Name: "elections", Namespace: namespace, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, nil, err
	}
	rendered := objects{}
	installed, hooks = objects{}, objects{}
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			rendered.add(t, text)
		}
	}
	for key, found := range rendered {
		if found.at("metadata", "annotations", "helm.sh/hook") != nil {
			hooks[key] = found
		} else {
			installed[key] = found
		}
	}
	return installed, hooks, nil
}

func mustRender(t *testing.T, namespace, values string) objects {
	t.Helper()
	installed, _, err := render(t, namespace, values)
	must.Succeed(t, err)
	return installed
}

// kustomize returns what kustomize builds from a folder, without the namespace, which helm install --create-namespace
// creates.
func kustomize(t *testing.T, folder string) objects {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "tools", "tool"), "kustomize", "build", folder)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	found := objects{}
	found.add(t, string(text))
	for key := range found {
		if strings.HasPrefix(key, "Namespace ") {
			delete(found, key)
		}
	}
	return found
}

// overlay returns what make deploy applies with these variables of hack/overlay.
func overlay(t *testing.T, variables ...string) objects {
	t.Helper()
	folder := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(folder, "config"), os.DirFS(filepath.Join(root, "config"))))
	script, err := filepath.Abs(filepath.Join(root, "hack", "overlay"))
	must.Succeed(t, err)
	command := exec.CommandContext(t.Context(), script)
	command.Dir, command.Env = folder, append(os.Environ(), variables...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return kustomize(t, filepath.Join(folder, "bin", "deploy"))
}

// compare reports each object that differs. The chart keeps the CRD when it is uninstalled.
func compare(t *testing.T, got, want objects) {
	t.Helper()
	if crd := got["CustomResourceDefinition electiongroups.conclave.dev"]; crd != nil {
		if annotations, ok := crd.at("metadata", "annotations").(map[string]any); !ok ||
			annotations["helm.sh/resource-policy"] != "keep" {
			t.Error("helm uninstall deletes the CRD, and all groups with it, want it kept")
		} else {
			delete(annotations, "helm.sh/resource-policy")
		}
	}
	if len(want) == 0 {
		t.Error("got no objects to compare with")
	}
	for key := range want {
		switch {
		case got[key] == nil:
			t.Errorf("the chart lacks %s", key)
		case !reflect.DeepEqual(got[key], want[key]):
			t.Errorf("%s: the chart has\n%s\nwant\n%s", key, text(t, got[key]), text(t, want[key]))
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("only the chart has %s", key)
		}
	}
}

func text(t *testing.T, o object) string {
	t.Helper()
	content, err := yaml.Marshal(o)
	must.Succeed(t, err)
	return string(content)
}

func TestDefaultsAreThoseOfConfig(t *testing.T) {
	compare(t, mustRender(t, "conclave-system", ""), kustomize(t, filepath.Join(root, "config", "default")))
}

const images = `
image: {repository: example.org/manager, tag: v1}
agent: {image: {repository: example.org/agent, tag: "", digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}}
`

var imageVariables = []string{"IMG=example.org/manager:v1", "AGENT_IMG=example.org/agent@sha256:" +
	strings.Repeat("0", 64)}

// TestChartIsWhatMakeDeploys, in another namespace.
func TestChartIsWhatMakeDeploys(t *testing.T) {
	compare(t, mustRender(t, "elections", images), overlay(t, append(imageVariables, "NAMESPACE=elections")...))
}

// TestAdditionsAreThoseOfConfig: each of them adds the objects of a folder.
func TestAdditionsAreThoseOfConfig(t *testing.T) {
	without := mustRender(t, "conclave-system", "")
	for _, name := range []string{"prometheus", "grafana", "witness"} {
		t.Run(name, func(t *testing.T) {
			got := mustRender(t, "conclave-system", name+": {enabled: true}")
			for key := range without {
				delete(got, key)
			}
			compare(t, got, kustomize(t, filepath.Join(root, "config", name)))
		})
	}
}

// TestServicesAreOptional: without the value, only their permission is missing.
func TestServicesAreOptional(t *testing.T) {
	want := mustRender(t, "elections", images)
	for _, key := range []string{"ClusterRole conclave-services", "ClusterRoleBinding conclave-services"} {
		if want[key] == nil {
			t.Errorf("the chart lacks %s", key)
		}
		delete(want, key)
	}
	got := mustRender(t, "elections", images+"services: {enabled: false}")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for key, o := range got {
		if strings.Contains(key, "Role") && strings.Contains(text(t, o), "endpointslices") {
			t.Errorf("%s permits EndpointSlices", key)
		}
	}
}

// TestQuotasOfTenants: the chart limits the objects of the namespaces that a user names.
func TestQuotasOfTenants(t *testing.T) {
	got := mustRender(t, "elections", "quotas: {bank: {pods: 100, count/electiongroups.conclave.dev: 10}}")
	quota := got["ResourceQuota bank conclave"]
	if want := map[string]any{"pods": 100.0, "count/electiongroups.conclave.dev": 10.0}; !reflect.DeepEqual(
		quota.at("spec", "hard"), want) {
		t.Errorf("got %v, want %v", quota.at("spec", "hard"), want)
	}
}

func TestValuesReachThePods(t *testing.T) {
	values := `
replicas: 3
resources: {limits: {memory: 1Gi}}
extraArgs: [--log-level=debug]
priorityClassName: high
imagePullSecrets: [{name: registry}]
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
`
	rendered := mustRender(t, "elections", images+values)
	deployment := rendered["Deployment elections conclave-manager"]
	if got := deployment.at("spec", "replicas"); got != 3.0 {
		t.Errorf("got %v replicas, want 3", got)
	}
	pod, container := deployment.pod(t)
	check(t, pod, `{priorityClassName: high, imagePullSecrets: [{name: registry}], nodeSelector: {disk: ssd}, `+
		`tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}}`)
	check(t, container, `{image: "example.org/manager:v1", args: [--log-level=info, --log-level=debug], resources: `+
		`{limits: {memory: 1Gi, ephemeral-storage: 512Mi}, `+
		`requests: {cpu: 50m, memory: 320Mi, ephemeral-storage: 64Mi}}}`)
}

func TestHelmLintFindsNothing(t *testing.T) {
	linter := lint.RunAll(filepath.Join(root, "charts", "conclave"), nil, "elections")
	for _, message := range linter.Messages {
		if message.Err.Error() != "icon is recommended" { // Conclave has none.
			t.Error(message)
		}
	}
}

// check compares some fields of an object.
func check(t *testing.T, got object, fields string) {
	t.Helper()
	var want object
	must.Succeed(t, yaml.Unmarshal([]byte(fields), &want))
	for field, value := range want {
		if !reflect.DeepEqual(got[field], value) {
			t.Errorf("got %s %v, want %v", field, got[field], value)
		}
	}
}

// TestUninstallChecksFirst: the hook runs as the manager does, but no Service and no Deployment selects its pod.
func TestUninstallChecksFirst(t *testing.T) {
	installed, hooks, err := render(t, "elections", images)
	must.Succeed(t, err)
	job := hooks["Job elections conclave-uninstall"]
	if len(hooks) != 1 || job.at("metadata", "annotations", "helm.sh/hook") != "pre-delete" {
		t.Fatalf("got hooks %v, want one before helm uninstall", hooks)
	}
	pod, container := job.pod(t)
	check(t, pod, `{serviceAccountName: conclave-manager, restartPolicy: Never}`)
	check(t, container, `{image: "example.org/manager:v1", args: [check-uninstall]}`)
	labels, ok := job.at("spec", "template", "metadata", "labels").(map[string]any)
	if !ok || labels["app.kubernetes.io/name"] != "conclave" {
		t.Fatalf("got labels %v, want those of Conclave", labels)
	}
	for key, o := range installed {
		selector, ok := o.at("spec", "selector").(map[string]any)
		if nested, isNested := selector["matchLabels"].(map[string]any); isNested {
			selector = nested
		}
		if ok && !slices.ContainsFunc(slices.Collect(maps.Keys(selector)),
			func(label string) bool { return labels[label] != selector[label] }) {
			t.Errorf("%s selects the pod of the hook", key)
		}
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 3":                   "additional properties 'replica' not allowed",
		"replicas: 0":                  "minimum: got 0, want 1",
		"replicas: two":                "got string, want integer",
		"imagePullSecrets: registry":   "got string, want array",
		"extraArgs: [log-level=debug]": "does not match pattern",
		"image: {digest: 'sha256:12'}": "does not match pattern",
		"image: {repository: ''}":      "minLength: got 0, want 1",
		"image: {tag: ''}":             "set image.tag or image.digest",
		"agent: {image: {tag: ''}}":    "set agent.image.tag or agent.image.digest",
		"agent: {image: {digest: sha256:" + strings.Repeat("0",
			64) + "}}": "set either agent.image.tag or agent.image.digest, and the other one to an empty string",
	} {
		if _, _, err := render(t, "elections", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", values, err, want)
		}
	}
}
