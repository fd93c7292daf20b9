package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/hack/cluster/internal/image"
)

const (
	peerImage = "conclave.dev/hack/peer:1"
	namespace = "peers"
)

// harness runs the program as a user would, in a state folder of its own.
type harness struct {
	t       *testing.T
	tool    string
	cluster string
	kubectl string
}

// clusterName is the same for each run in one checkout, so that a run cleans up after one that was interrupted, and
// another for each checkout, so that two of them can be tested at once.
func clusterName(t *testing.T, purpose string) string {
	t.Helper()
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s-%08x", purpose, crc32.ChecksumIEEE([]byte(working)))
}

// requireRoot skips where there's no root to be had, and fails where there ought to be.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	skip(t, "a cluster needs root: sudo -E go test ./...")
}

// requireMachine skips where the machine lacks something, such as a kernel that makes namespaces for us.
func (h *harness) requireMachine() {
	h.t.Helper()
	if _, said, err := h.try("check"); err != nil {
		skip(h.t, strings.TrimSpace(said))
	}
}

// skip skips the test, but not in CI: there, a test that can't run has failed.
func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

func newHarness(t *testing.T, purpose string) *harness {
	t.Helper()
	cluster := clusterName(t, purpose)
	requireRoot(t)
	tool := filepath.Join(openFolder(t), "cluster")
	build(t, tool, ".")
	h := &harness{t: t, tool: tool, cluster: cluster}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	h.requireMachine()
	h.run("build")
	h.kubectl = filepath.Join(strings.TrimSpace(h.run("assets")), "kubectl")
	t.Cleanup(func() { h.run("down", "--name", cluster) })
	return h
}

// openFolder makes one that everybody may look into.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cluster-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func build(t *testing.T, output, source string) {
	t.Helper()
	command := exec.Command("go", "build", "-o", output, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, said)
	}
}

// in is the harness for a subtest.
func (h *harness) in(t *testing.T) *harness {
	copied := *h
	copied.t = t
	return &copied
}

// with is the harness for another cluster.
func (h *harness) with(cluster string) *harness {
	copied := *h
	copied.cluster = cluster
	return &copied
}

// run runs the program and returns what it printed; what it said on the way goes to the test's log.
func (h *harness) run(arguments ...string) string {
	h.t.Helper()
	printed, said, err := h.try(arguments...)
	if err != nil {
		h.t.Fatalf("cluster %s: %v\n%s", strings.Join(arguments, " "), err, said)
	}
	h.t.Logf("cluster %s\n%s", strings.Join(arguments, " "), said)
	return printed
}

// on runs the program on the harness's cluster, and returns all that it wrote.
func (h *harness) on(arguments ...string) string {
	h.t.Helper()
	printed, said, err := h.try(append(arguments, "--name", h.cluster)...)
	if err != nil {
		h.t.Fatalf("cluster %s: %v\n%s", strings.Join(arguments, " "), err, said)
	}
	h.t.Logf("cluster %s\n%s", strings.Join(arguments, " "), said)
	return printed + said
}

func (h *harness) try(arguments ...string) (printed, said string, err error) {
	return output(h.command(arguments...))
}

func (h *harness) command(arguments ...string) *exec.Cmd { return exec.Command(h.tool, arguments...) }

func output(command *exec.Cmd) (printed, said string, err error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func (h *harness) directory() string {
	return filepath.Join(os.Getenv("XDG_STATE_HOME"), "conclave", "cluster", h.cluster)
}

// kube makes a command of kubectl on the cluster.
func (h *harness) kube(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, h.kubectl, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(h.directory(), "kubeconfig"))
	return command
}

// get runs kubectl in the peers' namespace, and fails the test if it fails.
func (h *harness) get(arguments ...string) string {
	h.t.Helper()
	printed, said, err := h.tryKube(arguments...)
	if err != nil {
		h.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, said)
	}
	return printed
}

func (h *harness) tryKube(arguments ...string) (printed, said string, err error) {
	return output(h.kube(h.t.Context(), append([]string{"--namespace", namespace, "--request-timeout", "30s"}, arguments...)...))
}

// peer runs the workload's program in a pod.
func (h *harness) peer(pod string, arguments ...string) (string, error) {
	printed, said, err := h.tryKube(append([]string{"exec", pod, "-c", "peer", "--", "/program"}, arguments...)...)
	return printed + said, err
}

type pod struct {
	Metadata struct{ Name string }
	Spec     struct{ NodeName string }
	Status   struct {
		PodIP      string
		Conditions []struct{ Type, Status string }
	}
}

func (p pod) ready() bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

func (p pod) url() string { return "http://" + p.Status.PodIP + ":8080" }

// pods lists the peers, in the order of their names.
func (h *harness) pods() []pod {
	h.t.Helper()
	var list struct{ Items []pod }
	if err := json.Unmarshal([]byte(h.get("get", "pods", "-l", "app=peer", "--sort-by=.metadata.name", "-o", "json")), &list); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

// startPeers loads the workload's image and runs it: a StatefulSet of five with native sidecars, under Pod Security
// "restricted".
func (h *harness) startPeers() {
	h.t.Helper()
	program := filepath.Join(h.t.TempDir(), "peer")
	build(h.t, program, "./peer")
	tarball := filepath.Join(h.t.TempDir(), "peer.tar")
	if err := image.WriteFile(tarball, peerImage, program); err != nil {
		h.t.Fatal(err)
	}
	h.on("load", tarball)
	h.get("apply", "-f", "testdata/peers.yaml")
	h.awaitPeers()
}

// awaitPeers returns when all five are ready, and can be reached over their Service.
func (h *harness) awaitPeers() {
	h.t.Helper()
	h.eventually(time.Minute, "five pods are ready", func() bool {
		ready := 0
		for _, pod := range h.pods() {
			if pod.ready() {
				ready++
			}
		}
		return ready == 5
	})
}

// eventually polls until it's so.
func (h *harness) eventually(limit time.Duration, what string, so func() bool) {
	h.t.Helper()
	begun := time.Now()
	for !so() {
		if time.Since(begun) > limit {
			h.t.Fatalf("not within %s: %s\n%s", limit, what, h.get("get", "pods,nodes", "-o", "wide"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.t.Logf("%s, after %s", what, time.Since(begun).Round(10*time.Millisecond))
}
