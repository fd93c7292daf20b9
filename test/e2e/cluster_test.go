package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// top is the top of the repository.
const top = "../.."

// cluster is a Kubernetes that pods are run in.
type cluster struct {
	t *testing.T
	// client is the kubectl to use, and environment what it needs.
	client      string
	environment []string
	// load puts the images of a tar file onto the nodes.
	load func(archive string)
	// own runs hack/cluster on the cluster, and name is its name there. Both are zero unless it's the test's own.
	own  func(verb string, arguments ...string)
	name string
}

func newCluster(t *testing.T, kind string) *cluster {
	t.Helper()
	switch kind {
	case "hack":
		return newOwnCluster(t)
	case "kind":
		return newCurrentCluster(t)
	default:
		t.Fatalf("CONCLAVE_E2E=%s: the tests run in hack, a cluster of their own, or in kind, that of the current kubeconfig", kind)
		return nil
	}
}

// newOwnCluster starts a throwaway cluster with three nodes, which is gone when the test ends.
func newOwnCluster(t *testing.T) *cluster {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(folder, "state"))
	tool := filepath.Join(folder, "cluster")
	run(t, "go", "-C", filepath.Join(top, "hack", "cluster"), "build", "-o", tool, ".")
	name := "e2e-" + checkout(t)
	run(t, tool, "down", "--name", name) // Whatever an interrupted run has left.
	t.Cleanup(func() { run(t, tool, "down", "--name", name) })
	kubeconfig, found := strings.CutPrefix(run(t, tool, "up", "--nodes", "3", "--name", name), "export ")
	if !found {
		t.Fatalf("up printed %q, which is no variable to export", kubeconfig)
	}
	own := func(verb string, arguments ...string) {
		t.Helper()
		run(t, tool, append([]string{verb, "--name", name}, arguments...)...)
	}
	return &cluster{
		t: t, client: filepath.Join(run(t, tool, "assets"), "kubectl"), environment: []string{kubeconfig},
		load: func(archive string) { own("load", archive) }, own: own, name: name,
	}
}

// checkout is the same for each run in one checkout, so that a run cleans up after one that was interrupted, and another
// for each checkout, so that two of them can be tested at once.
func checkout(t *testing.T) string {
	t.Helper()
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(working)))
}

// newCurrentCluster takes the cluster of the current kubeconfig. Without kind, the images must be on its nodes already.
func newCurrentCluster(t *testing.T) *cluster {
	t.Helper()
	client, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatal("there is no kubectl in PATH: install it, or run make test-e2e CLUSTER=hack")
	}
	c := &cluster{t: t, client: client}
	c.load = func(archive string) {
		name, isKind := strings.CutPrefix(c.kubectl("config", "current-context"), "kind-")
		if _, err := exec.LookPath("kind"); err != nil || !isKind {
			t.Logf("no kind, or the cluster is none of its: taking it that %s is on the nodes already", archive)
			return
		}
		run(t, "kind", "load", "image-archive", archive, "--name", name)
	}
	return c
}

// in is the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	copied := *c
	copied.t = t
	return &copied
}

// kubectl fails the test if it fails.
func (c *cluster) kubectl(arguments ...string) string {
	c.t.Helper()
	said, err := c.try(arguments...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, said)
	}
	return said
}

// try returns what kubectl printed, or if it fails, what it complained of.
func (c *cluster) try(arguments ...string) (string, error) {
	command := exec.Command(c.client, append([]string{"--request-timeout", "30s"}, arguments...)...)
	command.Env = append(os.Environ(), c.environment...)
	return output(command)
}

// makeNamespace makes a namespace anew in which Pod Security is enforced, for as long as the test lasts.
func (c *cluster) makeNamespace(name string) {
	c.t.Helper()
	remove := func() {
		c.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout", "2m", "--request-timeout", "0")
	}
	remove() // An interrupted run may have left it.
	c.t.Cleanup(remove)
	c.kubectl("create", "namespace", name)
	c.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	// No pod is let in before its account is there.
	c.eventually(30*time.Second, "the namespace has its service account", func() bool {
		_, err := c.try("get", "serviceaccount", "default", "--namespace", name)
		return err == nil
	})
}

// awaitEnd returns when the pod's program has ended without an error.
func (c *cluster) awaitEnd(pod string) {
	c.t.Helper()
	c.eventually(time.Minute, pod+" has ended", func() bool {
		var found struct {
			Status struct {
				Phase             string
				ContainerStatuses []struct {
					State struct{ Waiting struct{ Reason string } }
				}
			}
		}
		printed := c.kubectl("get", "pod", pod, "--namespace", namespace, "-o", "json")
		if err := json.Unmarshal([]byte(printed), &found); err != nil {
			c.t.Fatal(err)
		}
		for _, status := range found.Status.ContainerStatuses {
			if reason := status.State.Waiting.Reason; reason == "ErrImageNeverPull" {
				c.t.Fatalf("%s: the image isn't on the node, or for another platform", reason)
			}
		}
		if found.Status.Phase == "Failed" {
			c.t.Fatalf("%s failed: %s", pod, c.kubectl("logs", "--namespace", namespace, pod))
		}
		return found.Status.Phase == "Succeeded"
	})
}

// eventually polls until it's so.
func (c *cluster) eventually(limit time.Duration, what string, so func() bool) {
	c.t.Helper()
	begun := time.Now()
	for !so() {
		if time.Since(begun) > limit {
			c.t.Fatalf("not within %s: %s\n%s", limit, what, c.kubectl("describe", "pods", "--namespace", namespace))
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Logf("%s, after %s", what, time.Since(begun).Round(10*time.Millisecond))
}

// makeImage makes the image of a main package, as users do, and returns the tar file with it.
func makeImage(t *testing.T, source, tag string) string {
	t.Helper()
	repository, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	run(t, "go", "-C", filepath.Join(top, "hack", "image"), "run", ".", "-source", repository, "-package", source,
		"-version", "e2e", "-tag", tag, "-output", folder)
	return filepath.Join(folder, filepath.Base(source)+".tar")
}

// run runs a program and returns the line that it printed.
func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "GOWORK=off")
	printed, err := output(command)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(arguments, " "), err, printed)
	}
	return printed
}

// output returns what a program printed, or if it fails, what it complained of.
func output(command *exec.Cmd) (string, error) {
	var printed, complained bytes.Buffer
	command.Stdout, command.Stderr = &printed, &complained
	if err := command.Run(); err != nil {
		return strings.TrimSpace(complained.String()), err
	}
	return strings.TrimSpace(printed.String()), nil
}

func requirePart(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("it says %q, which has no %q", text, part)
	}
}
