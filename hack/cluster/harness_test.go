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

	"github.com/conclave-dev/conclave/hack/internal/image"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const (
	peerImage = "conclave.dev/hack/peer:1"
	namespace = "peers"
)

// stateFolder has the folders of all clusters.
const stateFolder = "/var/lib/conclave-cluster"

// harness runs the command as a user would.
type harness struct {
	t       *testing.T
	tool    string
	cluster string
	kubectl string
}

// clusterName returns the name of a cluster. It is the same for each run in a checkout, so that a run cleans up after an
// interrupted one. It differs between checkouts, so that they can be tested at the same time.
func clusterName(t *testing.T, purpose string) string {
	t.Helper()
	working, err := os.Getwd()
	must.Succeed(t, err)
	return fmt.Sprintf("%s-%08x", purpose, crc32.ChecksumIEEE([]byte(working)))
}

// requireRoot skips the test without root. In CI it fails the test.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	skip(t, "a cluster needs root: sudo -E go test ./...")
}

// requireMachine skips the test if the machine cannot run a cluster, for example because the kernel lacks a feature. In CI
// it fails the test.
func (h *harness) requireMachine() {
	h.t.Helper()
	if _, stderr, err := h.try("check"); err != nil {
		skip(h.t, strings.TrimSpace(stderr))
	}
}

// skip skips the test. In CI it fails the test.
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
	tool := filepath.Join(readableFolder(t), "cluster")
	build(t, tool, ".")
	h := &harness{t: t, tool: tool, cluster: cluster}
	h.requireMachine()
	h.run("build")
	h.kubectl = filepath.Join(strings.TrimSpace(h.run("assets")), "kubectl")
	t.Cleanup(func() {
		if t.Failed() {
			h.printLogs()
		}
		h.run("down", "--name", cluster)
	})
	return h
}

// printLogs prints the end of each log of the cluster, which down removes.
func (h *harness) printLogs() {
	paths, _ := filepath.Glob(filepath.Join(h.directory(), "machines", "*", "log", "*")) // The pattern is valid.
	for _, path := range paths {
		text, err := os.ReadFile(path)
		h.t.Logf("the end of %s, error %v:\n%s", path, err, text[max(0, len(text)-2000):])
	}
}

// readableFolder creates a folder that all users can read.
func readableFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cluster-test-")
	must.Succeed(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	must.Succeed(t, os.Chmod(folder, 0o755))
	return folder
}

func build(t *testing.T, output, source string) {
	t.Helper()
	command := exec.Command("go", "build", "-o", output, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", source, err, text)
	}
}

// in returns the harness for a subtest.
func (h *harness) in(t *testing.T) *harness {
	copied := *h
	copied.t = t
	return &copied
}

// with returns the harness for another cluster.
func (h *harness) with(cluster string) *harness {
	copied := *h
	copied.cluster = cluster
	return &copied
}

// run runs the command and returns its standard output. Its standard error goes to the test's log.
func (h *harness) run(arguments ...string) string {
	h.t.Helper()
	stdout, stderr, err := h.try(arguments...)
	if err != nil {
		h.t.Fatalf("cluster %s: %v\n%s", strings.Join(arguments, " "), err, stderr)
	}
	h.t.Logf("cluster %s\n%s", strings.Join(arguments, " "), stderr)
	return stdout
}

// on runs the command on the harness's cluster and returns its standard output and standard error.
func (h *harness) on(arguments ...string) string {
	h.t.Helper()
	stdout, stderr, err := h.try(append(arguments, "--name", h.cluster)...)
	if err != nil {
		h.t.Fatalf("cluster %s: %v\n%s", strings.Join(arguments, " "), err, stderr)
	}
	h.t.Logf("cluster %s\n%s", strings.Join(arguments, " "), stderr)
	return stdout + stderr
}

func (h *harness) try(arguments ...string) (stdout, stderr string, err error) {
	return output(h.command(arguments...))
}

func (h *harness) command(arguments ...string) *exec.Cmd { return exec.Command(h.tool, arguments...) }

func output(command *exec.Cmd) (stdout, stderr string, err error) {
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	err = command.Run()
	return out.String(), log.String(), err
}

func (h *harness) directory() string {
	return filepath.Join(stateFolder, h.cluster)
}

// kube returns a kubectl command for the cluster.
func (h *harness) kube(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, h.kubectl, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(h.directory(), "kubeconfig"))
	return command
}

// get runs kubectl in the peers' namespace. The test fails if kubectl fails.
func (h *harness) get(arguments ...string) string {
	h.t.Helper()
	stdout, stderr, err := h.tryKube(arguments...)
	if err != nil {
		h.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, stderr)
	}
	return stdout
}

func (h *harness) tryKube(arguments ...string) (stdout, stderr string, err error) {
	return output(h.kube(h.t.Context(), append([]string{"--namespace", namespace, "--request-timeout", "30s"}, arguments...)...))
}

// peer runs the program of the workload in a pod.
func (h *harness) peer(pod string, arguments ...string) (string, error) {
	stdout, stderr, err := h.tryKube(append([]string{"exec", pod, "-c", "peer", "--", "/peer"}, arguments...)...)
	return stdout + stderr, err
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

// pods returns the peers, sorted by name.
func (h *harness) pods() []pod {
	h.t.Helper()
	var list struct{ Items []pod }
	must.Succeed(h.t, json.Unmarshal([]byte(h.get("get", "pods", "-l", "app=peer", "--sort-by=.metadata.name", "-o", "json")), &list))
	return list.Items
}

// startPeers loads the image of the workload and starts it: a StatefulSet of five pods with native sidecars, under Pod
// Security "restricted".
func (h *harness) startPeers() {
	h.t.Helper()
	program := filepath.Join(h.t.TempDir(), "peer")
	build(h.t, program, "./peer")
	tarball := filepath.Join(h.t.TempDir(), "peer.tar")
	must.Succeed(h.t, image.Write(tarball, peerImage, program))
	h.on("load", tarball)
	h.get("apply", "-f", "testdata/peers.yaml")
	h.awaitPeers()
}

// awaitPeers returns when all five pods are ready.
func (h *harness) awaitPeers() {
	h.t.Helper()
	h.eventually("five ready pods", func() bool {
		ready := 0
		for _, pod := range h.pods() {
			if pod.ready() {
				ready++
			}
		}
		return ready == 5
	})
}

// eventually polls until the condition holds. Only failing tests wait for the limit.
func (h *harness) eventually(condition string, holds func() bool) {
	h.t.Helper()
	const limit = 5 * time.Minute
	begun := time.Now()
	for !holds() {
		if time.Since(begun) > limit {
			h.t.Fatalf("timed out after %s waiting for %s\n%s", limit, condition, h.get("get", "pods,nodes", "-o", "wide"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.t.Logf("got %s after %s", condition, time.Since(begun).Round(10*time.Millisecond))
}
