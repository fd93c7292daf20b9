package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// repositoryRoot is the root of the repository.
const repositoryRoot = "../.."

// cluster is a kind cluster.
type cluster struct {
	t *testing.T
	// kubectlPath is the kubectl to use, with additional environment variables.
	kubectlPath string
	environment []string
	// objects reads objects as kubectl does, without its 0.3 s of processor time: tests that wait read ten times a second.
	objects client.Reader
	// plugin is the path of the kubectl plugin, once buildPlugin has built it.
	plugin string
	// load loads the images of a tar file onto the nodes.
	load func(archive string)
	// control partitions, heals, kills or starts a node or the control plane.
	control func(verb, node string)
	// machines injects further faults into nodes.
	machines *kindnodes.Nodes
	// name is an element of the cgroups of all processes of the cluster.
	name string
	// networks returns the files of the nodes' network namespaces.
	networks func() []string
}

// newCluster returns the kind cluster of hack/kind/run. Without one, it skips the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("CONCLAVE_KIND") == "" {
		t.Skip("requires a kind cluster: run make test-e2e")
	}
	c := newKindCluster(t)
	kubeconfig, _ := strings.CutPrefix(c.environment[0], "KUBECONFIG=")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.Succeed(t, err)
	config.QPS = -1 // Tests that wait read several objects at a time.
	scheme := runtime.NewScheme()
	must.Succeed(t, clientgoscheme.AddToScheme(scheme))
	must.Succeed(t, v1.AddToScheme(scheme))
	c.objects, err = client.New(config, client.Options{Scheme: scheme})
	must.Succeed(t, err)
	return c
}

// withT returns the cluster for a subtest.
func (c *cluster) withT(t *testing.T) *cluster {
	copied := *c
	copied.t = t
	return &copied
}

// nodes returns the nodes that run pods.
func (c *cluster) nodes() []string {
	c.t.Helper()
	return strings.Fields(c.kubectl("get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o",
		"jsonpath={.items[*].metadata.name}"))
}

// kubectl runs kubectl and returns its output. If kubectl fails, the test fails. On a busy machine, the API server may
// not complete a handshake in time. Then it hasn't received the request, so that it can be repeated.
func (c *cluster) kubectl(arguments ...string) string {
	c.t.Helper()
	var output string
	var err error
	testwait.Within(defaultTimeout, time.Second, func() bool {
		output, err = c.tryKubectl(arguments...)
		return err == nil || !strings.Contains(output, "TLS handshake timeout")
	})
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// tryKubectl runs kubectl and returns its output, or its error output if it fails.
func (c *cluster) tryKubectl(arguments ...string) (string, error) {
	command := exec.Command(c.kubectlPath, append([]string{"--request-timeout", "30s"}, arguments...)...)
	command.Env = append(os.Environ(), c.environment...)
	return runCommand(command)
}

// get reads an object. As in kubectl, a handshake that a busy API server didn't complete is repeated.
func (c *cluster) get(namespace, name string, into client.Object) {
	c.t.Helper()
	c.read(func(ctx context.Context) error {
		return c.objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	})
}

// list reads the objects with these labels, in all namespaces if the namespace is empty.
func (c *cluster) list(namespace string, labels map[string]string, into client.ObjectList) {
	c.t.Helper()
	c.read(func(ctx context.Context) error {
		return c.objects.List(ctx, into, client.InNamespace(namespace), client.MatchingLabels(labels))
	})
}

func (c *cluster) read(read func(context.Context) error) {
	c.t.Helper()
	var err error
	testwait.Within(defaultTimeout, time.Second, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = read(ctx)
		return err == nil || !strings.Contains(err.Error(), "TLS handshake timeout")
	})
	must.Succeed(c.t, err)
}

// createNamespace creates a namespace with the restricted Pod Security Standard, and deletes it when the test ends.
func (c *cluster) createNamespace(name string) {
	c.t.Helper()
	remove := func() {
		c.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout", "5m", "--request-timeout", "0")
	}
	remove() // Delete the namespace of an interrupted run.
	c.t.Cleanup(remove)
	c.kubectl("create", "namespace", name)
	c.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	// Pods are rejected until the service account exists.
	c.waitUntil(defaultTimeout, "the namespace has a service account", func() bool {
		_, err := c.tryKubectl("get", "serviceaccount", "default", "--namespace", name)
		return err == nil
	})
}

// waitUntil waits until the condition holds, and logs how long that took.
func (c *cluster) waitUntil(limit time.Duration, what string, condition func() bool) {
	c.t.Helper()
	start := time.Now()
	if !testwait.Within(limit, 100*time.Millisecond, condition) {
		c.t.Fatalf("condition not met within %s: %s\n%s", limit, what,
			c.kubectl("describe", "pods", "--namespace", namespace))
	}
	c.t.Logf("%s, after %s", what, time.Since(start).Round(10*time.Millisecond))
}

// buildImage builds the image of a main package, as users do, and returns its tar file. The arguments are further ones
// of hack/image.
func buildImage(t *testing.T, source, tag string, arguments ...string) string {
	t.Helper()
	repository, err := filepath.Abs(repositoryRoot)
	must.Succeed(t, err)
	folder := t.TempDir()
	_, version, _ := strings.Cut(tag, ":")
	run(t, "go", append([]string{
		"-C", filepath.Join(repositoryRoot, "hack", "image"), "run", ".", "-source", repository, "-package", source,
		"-version", version, "-tag", tag, "-output", folder,
	}, arguments...)...)
	archives, err := filepath.Glob(filepath.Join(folder, "*.tar"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("got archives %v of the image %s and error %v, want one", archives, tag, err)
	}
	return archives[0]
}

// run runs a program and returns its output. If the program fails, the test fails.
func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := runCommand(command)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(arguments, " "), err, output)
	}
	return output
}

// runCommand runs a command and returns its output, or its error output if it fails.
func runCommand(command *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return strings.TrimSpace(stderr.String()), err
	}
	return strings.TrimSpace(stdout.String()), nil
}

func requireContains(t *testing.T, text, part string) {
	t.Helper()
	expect.Containsf(t, text, part, "text")
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content := must.ReadFile(t, path)
	return string(content)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
}
