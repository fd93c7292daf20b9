package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestCluster tests one cluster from its start to its removal. Each part needs the previous parts, so the first failure ends
// the test.
func TestCluster(t *testing.T) {
	h := newHarness(t, "test")
	h.on("down") // An interrupted run may have left a cluster.
	before := takeInventory(t, "test", "other")
	for _, part := range []struct {
		name string
		test func(*harness)
	}{
		{"three nodes are Ready after up", testUp},
		{"a second up changes nothing", testUpAgain},
		{"five pods with sidecars run on three nodes", testSpread},
		{"each pod can reach all pods", testReach},
		{"names are resolved", testDNS},
		{"the ClusterIP of a Service routes to its pods", testService},
		{"logs and port-forward work", testStreams},
		{"a partitioned node is unreachable within a second, and reachable after heal", testPartition},
		{"a killed node sends no packets, and restarts", testKill},
		{"the control plane can be killed and restarted", testControlPlane},
		{"up starts all machines that were killed", testAllKilled},
		{"two clusters run side by side", testSideBySide},
		{"up continues after an interrupted up", testInterrupted},
		{"up creates a new cluster after the machines were switched off", testSwitchedOff},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(h.in(t)) }) {
			t.FailNow()
		}
	}
	t.Run("down removes everything", func(t *testing.T) {
		h.in(t).on("down")
		requireSameInventory(t, before, takeInventory(t, "test", "other"))
		if output := h.in(t).on("down"); !strings.Contains(output, "there is no cluster") {
			t.Errorf("second down: got output %q", output)
		}
	})
}

func testUp(h *harness) {
	begun := time.Now()
	h.on("up", "--nodes", "3")
	took := time.Since(begun)
	h.t.Logf("up --nodes 3 took %s", took.Round(10*time.Millisecond)) // The benchmark of the operator measures this, too.
	if nodes := h.get("get", "nodes", "--no-headers"); strings.Count(nodes, " Ready ") != 3 {
		h.t.Errorf("got nodes\n%s\nwant 3 that are Ready", nodes)
	}
}

func testUpAgain(h *harness) {
	status := h.on("status")
	if output := h.on("up", "--nodes", "3"); !strings.Contains(output, "is already up with 3 nodes") {
		h.t.Errorf("up: got output %q", output)
	}
	if after := h.on("status"); after != status {
		h.t.Errorf("up changed the status from\n%s\nto\n%s", status, after)
	}
}

func testSpread(h *harness) {
	h.startPeers()
	nodes := map[string]int{}
	for _, pod := range h.pods() {
		nodes[pod.Spec.NodeName]++
	}
	if len(nodes) != 3 {
		h.t.Errorf("got pods on nodes %v, want 3 nodes", nodes)
	}
}

func testReach(h *harness) {
	pods := h.pods()
	names := []string{}
	urls := []string{}
	for _, pod := range pods {
		names = append(names, pod.Metadata.Name)
		urls = append(urls, pod.url())
	}
	for _, pod := range pods { // On a busy machine, a request may take longer than its timeout of a second.
		h.eventually("responses of all pods to "+pod.Metadata.Name, func() bool {
			answer, err := h.peer(pod.Metadata.Name, append([]string{"get"}, urls...)...)
			if err != nil {
				h.t.Logf("from %s: %v\n%s", pod.Metadata.Name, err, answer)
			}
			return err == nil && slices.Equal(slices.Sorted(strings.FieldsSeq(answer)), names)
		})
	}
}

func testDNS(h *harness) {
	addresses := []string{}
	for _, pod := range h.pods() {
		addresses = append(addresses, pod.Status.PodIP)
	}
	slices.Sort(addresses)
	for _, from := range []string{"peer-0", "peer-1", "peer-2"} { // They run on three nodes, each with its own CoreDNS.
		h.eventually("all addresses of the headless Service in "+from, func() bool {
			answer, err := h.peer(from, "lookup", "peers")
			return err == nil && slices.Equal(strings.Fields(answer), addresses)
		})
		h.eventually("a response of peer-4 by its name", func() bool {
			answer, err := h.peer(from, "get", "http://peer-4.peers."+namespace+".svc.cluster.local:8080")
			return err == nil && strings.TrimSpace(answer) == "peer-4"
		})
	}
	h.eventually("the answer that a name doesn't exist", func() bool {
		answer, err := h.peer("peer-0", "lookup", "conclave.invalid")
		return err != nil && strings.Contains(answer, "no such host")
	})
}

func testService(h *harness) {
	address := h.get("get", "service", "any", "-o", "jsonpath={.spec.clusterIP}")
	seen := map[string]bool{}
	h.eventually("a response of each pod of the Service "+address, func() bool {
		for _, url := range []string{"http://" + address, "http://any"} {
			answer, err := h.peer("peer-0", "get", url, url, url, url)
			if err != nil {
				h.t.Logf("%s: %v %s", url, err, answer)
			}
			for name := range strings.FieldsSeq(answer) {
				seen[name] = true
			}
		}
		return seen["peer-0"] && seen["peer-1"] && seen["peer-2"] && seen["peer-3"] && seen["peer-4"]
	})
	h.eventually("a connection to the Service of the API server", func() bool {
		_, err := h.peer("peer-0", "hold", "kubernetes.default:443", "100ms")
		return err == nil
	})
	// The API server connects to the address of a pod, as it does for webhooks.
	if answer := h.get("get", "--raw", "/api/v1/namespaces/"+namespace+"/services/any:80/proxy/"); !strings.HasPrefix(answer, "peer-") {
		h.t.Errorf("request through the API server: got %q", answer)
	}
}

func testStreams(h *harness) {
	if logs := h.get("logs", "peer-3", "-c", "sidecar"); strings.TrimSpace(logs) != "peer-3 serves :8081" {
		h.t.Errorf("got log %q of the sidecar", logs)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	forward := h.kube(ctx, "port-forward", "--namespace", namespace, "peer-2", ":8080")
	output, err := forward.StdoutPipe()
	must.Succeed(h.t, err)
	must.Succeed(h.t, forward.Start())
	defer func() { cancel(); _ = forward.Wait() }()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		h.t.Fatalf("port-forward: got %q, error %v", line, err)
	}
	_, rest, _ := strings.Cut(line, "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	response, err := http.Get("http://" + address)
	must.Succeed(h.t, err)
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); strings.TrimSpace(string(body)) != "peer-2" || err != nil {
		h.t.Errorf("forwarded port: got %q, error %v", body, err)
	}
}

// podsOnTwoNodes returns two pods on different nodes.
func (h *harness) podsOnTwoNodes() (victim, witness pod) {
	h.t.Helper()
	pods := h.pods()
	for _, pod := range pods[1:] {
		if pod.Spec.NodeName != pods[0].Spec.NodeName {
			return pods[0], pod
		}
	}
	h.t.Fatal("all pods are on one node")
	return victim, witness
}

func testPartition(h *harness) {
	victim, witness := h.podsOnTwoNodes()
	h.on("partition", victim.Spec.NodeName)
	begun := time.Now()
	// The request has a timeout of a second.
	if answer, err := h.peer(witness.Metadata.Name, "get", victim.url()); err == nil {
		h.t.Errorf("got response of %s: %q, %s after the partition", victim.Metadata.Name, answer, time.Since(begun))
	}
	if output := h.on("status"); !strings.Contains(output, "partitioned") {
		h.t.Errorf("status: got output %q", output)
	}
	h.on("heal", victim.Spec.NodeName)
	h.eventually("a response of the pod on the healed node", func() bool {
		answer, err := h.peer(witness.Metadata.Name, "get", victim.url())
		return err == nil && strings.TrimSpace(answer) == victim.Metadata.Name
	})
	h.awaitPeers()
}

func testKill(h *harness) {
	victim, witness := h.podsOnTwoNodes()
	held := h.kube(h.t.Context(), "exec", "--namespace", namespace, witness.Metadata.Name, "-c", "peer", "--",
		"/peer", "hold", victim.Status.PodIP+":8080", "4s")
	output, err := held.StdoutPipe()
	must.Succeed(h.t, err)
	must.Succeed(h.t, held.Start())
	reader := bufio.NewReader(output)
	if line, err := reader.ReadString('\n'); line != "connected\n" {
		h.t.Fatalf("cannot open the connection: got %q, error %v", line, err)
	}
	h.on("kill", victim.Spec.NodeName)
	if line, err := reader.ReadString('\n'); line != "silence\n" {
		h.t.Errorf("connection to a pod on the killed node: got %q, error %v, want silence", line, err)
	}
	if err := held.Wait(); err != nil {
		h.t.Error(err)
	}
	if left := processesOf(h.t, "/"+h.cluster+"/"+victim.Spec.NodeName); len(left) > 0 {
		h.t.Errorf("got processes of the killed node: %v", left)
	}
	h.on("start", victim.Spec.NodeName)
	h.eventually("the pod on the killed node to restart", func() bool {
		for _, pod := range h.pods() {
			if pod.Metadata.Name == victim.Metadata.Name && pod.ready() {
				answer, err := h.peer(witness.Metadata.Name, "get", pod.url())
				return err == nil && strings.TrimSpace(answer) == victim.Metadata.Name
			}
		}
		return false
	})
	h.awaitPeers()
	testReach(h)
}

func testControlPlane(h *harness) {
	h.on("kill", "control-plane")
	if _, _, err := h.tryKube("get", "nodes"); err == nil {
		h.t.Error("got a response of the API server, whose machine was killed")
	}
	h.on("start", "control-plane")
	h.awaitPeers() // The API server has kept its data, and the kubeconfig is still valid.
	testReach(h)
}

func testAllKilled(h *harness) {
	for _, machine := range []string{"node-1", "node-2", "node-3", "control-plane"} {
		h.on("kill", machine)
	}
	h.on("up", "--nodes", "0")
	if status := h.on("status"); strings.Count(status, "running") != 4 {
		h.t.Errorf("got status\n%s\nwant four running machines", status)
	}
	h.awaitPeers()
	testReach(h)
}

func testSideBySide(h *harness) {
	other := h.with(clusterName(h.t, "other"))
	other.on("up", "--nodes", "1")
	if nodes := other.get("get", "nodes", "--no-headers"); strings.Count(nodes, " Ready ") != 1 {
		h.t.Errorf("got nodes of the other cluster\n%s", nodes)
	}
	testReach(h)
	other.on("down")
	testReach(h)
}

// testInterrupted kills up several times at different moments. The next up must continue.
func testInterrupted(h *harness) {
	h.on("down")
	for _, after := range []time.Duration{
		100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second,
	} {
		up := h.command("up", "--nodes", "2", "--name", h.cluster)
		must.Succeed(h.t, up.Start())
		time.Sleep(after)
		_ = up.Process.Kill() // It may have exited.
		_ = up.Wait()
	}
	// Two concurrent commands must both succeed.
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, output, err := h.try("up", "--nodes", "3", "--name", h.cluster)
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output)
			}
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			h.t.Error(err)
		}
	}
	h.startPeers()
	testReach(h)
}

func testSwitchedOff(h *harness) {
	switchOff(h)
	state := filepath.Join(h.directory(), "state.json")
	content := must.ReadFile(h.t, state)
	content = regexp.MustCompile(`"bootID": "[^"]*"`).ReplaceAll(content, []byte(`"bootID": "earlier"`))
	must.Succeed(h.t, os.WriteFile(state, content, 0o600))
	if output := h.on("up", "--nodes", "3"); !strings.Contains(output, "creating a new cluster") {
		h.t.Errorf("up: got output %q", output)
	}
	h.startPeers()
	testReach(h)
}
