package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCluster walks through the life of a cluster. Its parts build on each other, so the first that fails ends it.
func TestCluster(t *testing.T) {
	h := newHarness(t, "test")
	h.on("down") // Whatever an interrupted run has left.
	before := takeInventory(t, "test", "other")
	for _, part := range []struct {
		name string
		test func(*harness)
	}{
		{"three nodes are Ready within 30 s", testUp},
		{"up again changes nothing", testUpAgain},
		{"five pods with sidecars spread over the nodes", testSpread},
		{"each pod reaches each other pod", testReach},
		{"names are resolved", testDNS},
		{"a Service's ClusterIP leads to its pods", testService},
		{"logs and port-forward work", testStreams},
		{"a partitioned node is unreachable within a second, and comes back", testPartition},
		{"a killed node says no goodbye, and comes back", testKill},
		{"the control plane can be killed and started", testControlPlane},
		{"another cluster runs side by side", testSideBySide},
		{"up goes on where another was interrupted", testInterrupted},
		{"up makes anew what was switched off in the middle", testSwitchedOff},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(h.in(t)) }) {
			t.FailNow()
		}
	}
	t.Run("down leaves nothing behind", func(t *testing.T) {
		h.in(t).on("down")
		requireSameInventory(t, before, takeInventory(t, "test", "other"))
		if said := h.in(t).on("down"); !strings.Contains(said, "there is no cluster") {
			t.Errorf("down a second time said %q", said)
		}
	})
}

func testUp(h *harness) {
	begun := time.Now()
	h.on("up", "--nodes", "3")
	took := time.Since(begun)
	h.t.Logf("up --nodes 3 took %s", took.Round(10*time.Millisecond))
	if took > 30*time.Second {
		h.t.Errorf("up took %s", took)
	}
	if nodes := h.get("get", "nodes", "--no-headers"); strings.Count(nodes, " Ready ") != 3 {
		h.t.Errorf("the nodes are\n%s", nodes)
	}
}

func testUpAgain(h *harness) {
	status := h.on("status")
	if said := h.on("up", "--nodes", "3"); !strings.Contains(said, "is up already, with 3 nodes") {
		h.t.Errorf("up said %q", said)
	}
	if after := h.on("status"); after != status {
		h.t.Errorf("up changed\n%s\nto\n%s", status, after)
	}
}

func testSpread(h *harness) {
	h.startPeers()
	nodes := map[string]int{}
	for _, pod := range h.pods() {
		nodes[pod.Spec.NodeName]++
	}
	if len(nodes) != 3 {
		h.t.Errorf("the pods are on %v", nodes)
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
	for _, pod := range pods {
		answer, err := h.peer(pod.Metadata.Name, append([]string{"get"}, urls...)...)
		if err != nil {
			h.t.Errorf("from %s: %v\n%s", pod.Metadata.Name, err, answer)
		}
		if answered := strings.Fields(answer); !slices.Equal(slices.Sorted(slices.Values(answered)), names) {
			h.t.Errorf("from %s, %q answered", pod.Metadata.Name, answered)
		}
	}
}

func testDNS(h *harness) {
	addresses := []string{}
	for _, pod := range h.pods() {
		addresses = append(addresses, pod.Status.PodIP)
	}
	slices.Sort(addresses)
	for _, from := range []string{"peer-0", "peer-1", "peer-2"} { // On three nodes, and each has its own CoreDNS.
		h.eventually(10*time.Second, "the headless Service has all addresses on "+from, func() bool {
			answer, err := h.peer(from, "lookup", "peers")
			return err == nil && slices.Equal(strings.Fields(answer), addresses)
		})
		if answer, err := h.peer(from, "get", "http://peer-4.peers."+namespace+".svc.cluster.local:8080"); strings.TrimSpace(answer) != "peer-4" {
			h.t.Errorf("peer-4 by its name answered %q, %v", answer, err)
		}
	}
	if answer, err := h.peer("peer-0", "lookup", "conclave.invalid"); err == nil || !strings.Contains(answer, "no such host") {
		h.t.Errorf("a name that there isn't gave %q, %v", answer, err)
	}
}

func testService(h *harness) {
	address := h.get("get", "service", "any", "-o", "jsonpath={.spec.clusterIP}")
	seen := map[string]bool{}
	h.eventually(30*time.Second, "each pod has answered for the Service "+address, func() bool {
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
	if answer, err := h.peer("peer-0", "hold", "kubernetes.default:443", "100ms"); err != nil {
		h.t.Errorf("the API server's Service: %v, %s", err, answer)
	}
	// As the API server reaches webhooks: straight at a pod's address.
	if answer := h.get("get", "--raw", "/api/v1/namespaces/"+namespace+"/services/any:80/proxy/"); !strings.HasPrefix(answer, "peer-") {
		h.t.Errorf("the Service answered the API server with %q", answer)
	}
}

func testStreams(h *harness) {
	if logs := h.get("logs", "peer-3", "-c", "sidecar"); strings.TrimSpace(logs) != "peer-3 serves :8081" {
		h.t.Errorf("the sidecar's log is %q", logs)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	forward := h.kube(ctx, "port-forward", "--namespace", namespace, "peer-2", ":8080")
	said, err := forward.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		h.t.Fatal(err)
	}
	defer func() { cancel(); _ = forward.Wait() }()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		h.t.Fatalf("port-forward said %q, %v", line, err)
	}
	_, rest, _ := strings.Cut(line, "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	response, err := http.Get("http://" + address)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); strings.TrimSpace(string(body)) != "peer-2" || err != nil {
		h.t.Errorf("the forwarded port answered %q, %v", body, err)
	}
}

// apart picks two pods on different nodes.
func (h *harness) apart() (victim, witness pod) {
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
	victim, witness := h.apart()
	h.on("partition", victim.Spec.NodeName)
	begun := time.Now()
	// The question itself gives up after a second.
	if answer, err := h.peer(witness.Metadata.Name, "get", victim.url()); err == nil {
		h.t.Errorf("%s still answered %q, %s after the partition", victim.Metadata.Name, answer, time.Since(begun))
	}
	if said := h.on("status"); !strings.Contains(said, "partitioned") {
		h.t.Errorf("status said %q", said)
	}
	h.on("heal", victim.Spec.NodeName)
	h.eventually(10*time.Second, "the healed node's pod answers", func() bool {
		answer, err := h.peer(witness.Metadata.Name, "get", victim.url())
		return err == nil && strings.TrimSpace(answer) == victim.Metadata.Name
	})
	h.awaitPeers()
}

func testKill(h *harness) {
	victim, witness := h.apart()
	held := h.kube(h.t.Context(), "exec", "--namespace", namespace, witness.Metadata.Name, "-c", "peer", "--",
		"/program", "hold", victim.Status.PodIP+":8080", "4s")
	said, err := held.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := held.Start(); err != nil {
		h.t.Fatal(err)
	}
	reader := bufio.NewReader(said)
	if line, err := reader.ReadString('\n'); line != "connected\n" {
		h.t.Fatalf("the connection to be held: %q, %v", line, err)
	}
	h.on("kill", victim.Spec.NodeName)
	if line, err := reader.ReadString('\n'); line != "silence\n" {
		h.t.Errorf("a peer of the killed node's pod heard %q, %v", line, err)
	}
	if err := held.Wait(); err != nil {
		h.t.Error(err)
	}
	if left := processesOf(h.t, "/"+h.cluster+"/"+victim.Spec.NodeName); len(left) > 0 {
		h.t.Errorf("the killed node left %v", left)
	}
	h.on("start", victim.Spec.NodeName)
	h.eventually(time.Minute, "the pod is back on the node that was killed", func() bool {
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
		h.t.Error("the API server answers although its machine is dead")
	}
	h.on("start", "control-plane")
	h.awaitPeers() // Known by the same API server's data, over the same kubeconfig.
	testReach(h)
}

func testSideBySide(h *harness) {
	other := h.with(clusterName(h.t, "other"))
	other.on("up", "--nodes", "1")
	if nodes := other.get("get", "nodes", "--no-headers"); strings.Count(nodes, " Ready ") != 1 {
		h.t.Errorf("the other cluster's nodes are\n%s", nodes)
	}
	testReach(h)
	other.on("down")
	testReach(h)
}

// testInterrupted kills up again and again, at different moments. The next one goes on from whatever is there.
func testInterrupted(h *harness) {
	h.on("down")
	for _, after := range []time.Duration{
		100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second,
	} {
		up := h.command("up", "--nodes", "2", "--name", h.cluster)
		if err := up.Start(); err != nil {
			h.t.Fatal(err)
		}
		time.Sleep(after)
		_ = up.Process.Kill() // It may be done by now.
		_ = up.Wait()
	}
	// And two of them at once don't get in each other's way.
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, said, err := h.try("up", "--nodes", "3", "--name", h.cluster)
			if err != nil {
				err = fmt.Errorf("%w: %s", err, said)
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
	if said := h.on("up", "--nodes", "3"); !strings.Contains(said, "making it anew") {
		h.t.Errorf("up said %q", said)
	}
	h.startPeers()
	testReach(h)
}
