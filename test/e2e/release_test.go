package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

const (
	quickStartVersion = "v0.1.0"
	// otherVersion is another build of the same sources.
	otherVersion = "v0.1.0-rc.1"
)

// TestReleaseInstallation installs the operator and an application on an empty cluster, upgrades and removes the
// operator, with nothing but the files of a release and what the documents say.
func TestReleaseInstallation(t *testing.T) {
	c := newCluster(t)
	folder := t.TempDir()
	helm := filepath.Join(folder, "bin", "helm")
	// With the flags of test/thirdparty/chart, whose compiled packages it uses.
	run(t, "env", "CGO_ENABLED=0", "go", "-C", filepath.Join(repositoryRoot, "test", "thirdparty"), "build", "-trimpath",
		"-o", helm, "helm.sh/helm/v4/cmd/helm")
	images := registry{}
	release := buildRelease(t, images, quickStartVersion, filepath.Join(folder, "dist", "release"))
	other := buildRelease(t, images, otherVersion, filepath.Join(folder, "other"))
	python := images.addPython(t)

	images.serve(c)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.tryKubectl("get", "pods", "--all-namespaces", "-o", "wide"))
			t.Log(c.tryKubectl("get", "events", "--all-namespaces"))
		}
	})
	s := shell{c, folder}
	coordinator := func() string {
		return c.kubectl("get", "electiongroup", "ledger", "-o", "jsonpath={.status.coordinator.pod}")
	}

	start := time.Now()
	for _, command := range commands(t, "README.md", "quick start") {
		s.run(strings.TrimSuffix(command, " --watch")) // It watches without end.
		t.Logf("after %s: %s", time.Since(start).Round(time.Second), command)
	}
	c.waitUntil(defaultTimeout, "the deleted pod is coordinator again", func() bool { return coordinator() == highest })
	c.waitUntil(defaultTimeout, "the application of the sample works", func() bool {
		output, err := c.tryKubectl("logs", highest, "-c", "application")
		return err == nil && strings.Contains(output, "ledger: works with token ")
	})
	sample := c.sendRequests("default", "ledger-coordinator", ":8080/", "")
	sample.awaitReceipt("the sample answers through its Service", receipt{})
	sample.stop()
	sample.report("the sample ran")

	cashier := s.runApplication(python)
	s.run("helm upgrade conclave " + other + "/conclave-" + strings.TrimPrefix(otherVersion, "v") +
		".tgz --namespace conclave-system --wait --timeout 5m")
	c.waitUntil(defaultTimeout, "the operator is upgraded", func() bool {
		output, err := c.tryKubectl("logs", "--namespace", operatorNamespace, "-l",
			"app.kubernetes.io/name=conclave", "--tail", "-1")
		// It fails if a former pod ends meanwhile.
		return err == nil && strings.Contains(output, `"version":"`+otherVersion+`"`)
	})
	c.waitUntil(defaultTimeout, "the group has a coordinator after the upgrade",
		func() bool { return coordinator() != "" })
	s.run("helm rollback conclave --namespace conclave-system --wait --timeout 5m")
	// On a busy machine, the highest member may be held back for minutes, so any election will do.
	term := func() string {
		return c.kubectl("get", "electiongroup", "ledger", "-o", "jsonpath={.status.coordinator.term}")
	}
	leader, before := "", ""
	c.waitUntil(defaultTimeout, "the group has a coordinator after the rollback", func() bool {
		leader, before = coordinator(), term()
		return leader != "" && before != ""
	})
	c.kubectl("delete", "pod", leader)
	c.waitUntil(defaultTimeout, "the group elects after the rollback",
		func() bool { now := term(); return now != "" && now != before })
	cashier.report("the operator was upgraded and rolled back")
	cashier.stop()

	// Strict groups need the operator to release their pods.
	strict := strings.Replace(readFile(t, release+"/sample-deployment.yaml"), "spec:\n  selector:",
		"spec:\n  safety: {mode: Strict}\n  selector:", 1)
	writeFile(t, folder+"/strict.yaml", strict)
	s.run("kubectl apply -f strict.yaml && kubectl wait --for=condition=Available electiongroup/teller " +
		"--timeout 5m --request-timeout 0")
	output, err := s.try("helm uninstall conclave --namespace conclave-system --timeout 2m")
	t.Logf("uninstalling with a Strict group: %s", output)
	if err == nil {
		t.Error("helm uninstall has removed the operator although there is a Strict group")
	}
	requireContains(t, output, "3 pods of groups in Strict mode could not be deleted without the operator")
	s.run("kubectl delete -f strict.yaml")
	s.run("kubectl delete -f dist/release/sample-statefulset.yaml")
	c.kubectl("wait", "pod", "-l", "app!=cashier", "--for=delete", "--timeout", "5m", "--request-timeout", "0")
	// The other application runs on, without its group.
	s.run("kubectl delete electiongroup cashier")
	s.run("helm uninstall conclave --namespace conclave-system --wait --timeout 5m")
	s.run("kubectl rollout restart deployment/cashier")
	s.run("kubectl rollout status deployment/cashier --timeout 5m --request-timeout 0")
	requireLeft(c, "APIService v1.conclave.dev", "CustomResourceDefinition electiongroups.conclave.dev",
		"Lease conclave-manager", "Namespace conclave-system", "Secret conclave-ca", "Secret conclave-metrics")
	s.run("kubectl delete crd electiongroups.conclave.dev && kubectl delete namespace conclave-system")
	requireLeft(c)
	s.run("kubectl delete deployment/cashier configmap/cashier")

	s.run("kubectl apply --server-side -f dist/release/install.yaml")
	s.run("kubectl wait deployment/conclave-manager --namespace conclave-system --for=condition=Available " +
		"--timeout 5m --request-timeout 0")
	s.run("kubectl apply -f dist/release/sample-council.yaml")
	for _, group := range []string{
		"bully", "status-table", "ring-active-list", "ring-all-ids", "ring-champion", "ring-skip",
	} {
		c.kubectl("wait", "--for=condition=Available", "electiongroup/"+group, "--timeout", "5m", "--request-timeout", "0")
	}
	s.run("kubectl delete -f dist/release/sample-council.yaml")
	c.kubectl("wait", "pod", "--all", "--for=delete", "--timeout", "5m", "--request-timeout", "0")
	s.run("kubectl delete -f dist/release/install.yaml --timeout 5m --request-timeout 0")
	requireLeft(c)
}

// buildRelease builds the files of a release for this machine into a folder, and adds the images to a registry.
func buildRelease(t *testing.T, images registry, version, folder string) string {
	t.Helper()
	must.Succeed(t, os.MkdirAll(folder, 0o755))
	run(t, "go", "-C", repositoryRoot, "run", "./hack/release", "-version", version, "-registry",
		"localhost:5000/conclave", "-platform", "linux/"+runtime.GOARCH, "-output", folder)
	archives, err := filepath.Glob(filepath.Join(folder, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("got archives %q, error %v", archives, err)
	}
	for _, archive := range archives {
		images.add(t, archive)
	}
	return folder
}

// runApplication does what docs/application.md says, with Python from our own registry, and then kills the
// coordinator's agent. It returns a client of the application.
func (s shell) runApplication(python string) *traffic {
	s.t.Helper()
	const document = "docs/application.md"
	text := readFile(s.t, filepath.Join(repositoryRoot, document))
	for name, language := range map[string]string{"cashier.py": "python", "cashier.yaml": "yaml"} {
		_, block, _ := strings.Cut(text, "\n```"+language+"\n")
		block, _, _ = strings.Cut(block, "```\n")
		writeFile(s.t, filepath.Join(s.folder, name), strings.ReplaceAll(block, "python:3-alpine", python))
	}
	start := time.Now()
	do := func(mark string) {
		s.t.Helper()
		for _, command := range commands(s.t, document, mark) {
			if strings.Contains(command, " exec ") { // A user who gets no answer asks again.
				s.waitUntil(defaultTimeout, "the application answers", func() bool {
					output, err := s.try(command)
					return err == nil && strings.Contains(output, `"token"`)
				})
			} else {
				s.run(command)
			}
			s.t.Logf("after %s: %s", time.Since(start).Round(100*time.Millisecond), command)
		}
	}
	do("start")
	client := s.sendRequests("default", "cashier", "/", "")
	first := client.awaitReceipt("the application answers through its Service", receipt{})
	do("failover")
	client.awaitReceipt("another pod answers", first)
	client.report("the pod was deleted")
	s.run("kubectl rollout status deployment/cashier --timeout 5m --request-timeout 0")
	s.run("kubectl wait --for=condition=Degraded=false electiongroup/cashier --timeout 5m --request-timeout 0")
	second := client.awaitReceipt("all pods are back", receipt{})
	agents := program.Agents(s.name)
	killed := slices.IndexFunc(agents, func(p process) bool { return p.Pod == second.Pod })
	if killed < 0 {
		s.t.Fatalf("got agents %v, want one of %s", agents, second.Pod)
	}
	must.Succeed(s.t, syscall.Kill(agents[killed].PID, syscall.SIGKILL))
	client.awaitReceipt("another pod answers", second)
	client.report("the agent was killed")
	return client
}

// shell runs commands as a user does, in a folder with the release, with helm and kubectl.
type shell struct {
	*cluster
	folder string
}

func (s shell) try(command string) (string, error) {
	shell := exec.Command("bash", "-euo", "pipefail", "-c", command)
	shell.Dir = s.folder
	shell.Env = append(append(os.Environ(), s.environment...),
		"PATH="+filepath.Join(s.folder, "bin")+":"+os.Getenv("PATH"), "HOME="+s.folder)
	return runCommand(shell)
}

func (s shell) run(command string) {
	s.t.Helper()
	if output, err := s.try(command); err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, output)
	}
}

// commands returns the commands of helm and kubectl below a mark in a document.
func commands(t *testing.T, document, mark string) (commands []string) {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, filepath.Join(repositoryRoot, document)), "<!-- "+mark+" -->\n\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		command := strings.TrimSpace(line)
		if !strings.HasPrefix(command, "helm ") && !strings.HasPrefix(command, "kubectl ") {
			t.Fatalf("%s must have commands of helm and kubectl, got %q", document, command)
		}
		commands = append(commands, command)
	}
	if commands == nil {
		t.Fatalf("%s must have commands after <!-- %s -->", document, mark)
	}
	return commands
}

// requireLeft checks which objects of Conclave the cluster has: those whose kind, name, labels, annotations, owners or
// finalizers name it, and those in its namespace. Not the label by which users opt in, and neither events nor what
// Kubernetes adds to each namespace.
func requireLeft(c *cluster, want ...string) {
	c.t.Helper()
	kinds := strings.Fields(c.kubectl("api-resources", "--verbs", "list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return strings.HasPrefix(kind, "events") })
	var left []string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("left: %q", left)
		}
	}()
	c.waitUntil(defaultTimeout, fmt.Sprintf("only %q are left", want), func() bool {
		var list metav1.PartialObjectMetadataList
		must.Succeed(c.t,
			json.Unmarshal([]byte(c.kubectl("get", strings.Join(kinds, ","), "--all-namespaces", "-o", "json")), &list))
		left = nil
		for _, object := range list.Items {
			delete(object.Annotations, corev1.LastAppliedConfigAnnotation)
			delete(object.Labels, "conclave.dev/agent")
			text, err := json.Marshal(object)
			must.Succeed(c.t, err)
			ours := strings.Contains(strings.ReplaceAll(string(text), os.Getenv("KIND_CLUSTER_NAME"), "kind"), "conclave")
			if ours && object.Name != "kube-root-ca.crt" && object.Kind+object.Name != "ServiceAccountdefault" {
				left = append(left, object.Kind+" "+object.Name)
			}
		}
		slices.Sort(left)
		return slices.Equal(left, want)
	})
}
