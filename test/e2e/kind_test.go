package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// newKindCluster uses the cluster of the current kubeconfig. The tests find its processes on this machine.
func newKindCluster(t *testing.T) *cluster {
	t.Helper()
	name := os.Getenv("KIND_CLUSTER_NAME")
	k := kindNodes{t, name, &kindnodes.Nodes{Runtime: "docker"}}
	c := &cluster{
		t: t, kubectlPath: "kubectl", environment: []string{"KUBECONFIG=" + os.Getenv("KUBECONFIG")},
		load:    func(archive string) { run(t, "kind", "load", "image-archive", archive, "--name", name) },
		control: k.control, machines: k.nodes, name: k.cgroup(), networks: k.networks,
	}
	return c
}

// kindNodes are the nodes of a kind cluster, which are containers.
type kindNodes struct {
	t     *testing.T
	name  string
	nodes *kindnodes.Nodes
}

func (k kindNodes) control(verb, node string) {
	k.t.Helper()
	ctx := context.Background() // That of the test ends before its cleanup.
	controlPlane := k.name + "-control-plane"
	node = strings.ReplaceAll(node, "control-plane", controlPlane)
	network := kindnodes.Network{Node: node}
	// When a control plane starts again that was killed, it may have another address.
	silence, resume := k.nodes.Kill, k.nodes.Start
	if node == controlPlane {
		silence, resume = k.nodes.Pause, k.nodes.Unpause
	}
	switch verb {
	case "partition":
		must.Succeed(k.t, k.nodes.Drop(ctx, network, kindnodes.Packets{}))
	case "heal":
		must.Succeed(k.t, k.nodes.Heal(ctx, network))
	case "kill":
		must.Succeed(k.t, silence(ctx, node))
	case "start":
		must.Succeed(k.t, resume(ctx, node))
	default:
		k.t.Fatalf("a kind cluster can't %s", verb)
	}
}

// processes returns the first process of each node, by its process ID on this machine.
func (k kindNodes) processes() []string {
	k.t.Helper()
	nodes := strings.Fields(run(k.t, "docker", "ps", "--quiet", "--filter", "label=io.x-k8s.kind.cluster="+k.name))
	return strings.Fields(run(k.t, "docker", append([]string{"inspect", "--format", "{{.State.Pid}}"}, nodes...)...))
}

// cgroup returns the first element of the nodes' cgroups.
func (k kindNodes) cgroup() string {
	k.t.Helper()
	text := readFile(k.t, filepath.Join("/proc", k.processes()[0], "cgroup"))
	for line := range strings.Lines(text) {
		if fields := strings.SplitN(line, ":", 3); fields[1] == "pids" ||
			fields[0] == "0" && !strings.Contains(text, ":pids:") {
			return strings.Split(fields[2], "/")[1]
		}
	}
	k.t.Fatalf("got cgroups %q of a node", text)
	return ""
}

func (k kindNodes) networks() (files []string) {
	k.t.Helper()
	for _, process := range k.processes() {
		files = append(files, filepath.Join("/proc", process, "ns", "net"))
	}
	return files
}

// testOneWay lets packets between the node of the coordinator and others pass in one direction only. A member on
// another node leads.
func testOneWay(e env) {
	nodes := e.nodesOf(samplesNamespace, pods...)
	for _, blocked := range []kindnodes.Direction{kindnodes.Received, kindnodes.Sent} {
		cut := kindnodes.Network{Node: nodes[e.group("ledger").coordinator()]}
		heal := func() { must.Succeed(e.t, e.machines.Heal(context.Background(), cut)) }
		e.t.Cleanup(heal)
		must.Succeed(e.t, e.machines.Drop(e.t.Context(), cut, kindnodes.Packets{Direction: blocked}))
		e.waitUntil(defaultTimeout, "a member on another node leads", func() bool {
			next := e.group("ledger").coordinator()
			return next != "" && nodes[next] != cut.Node
		})
		heal()
		e.waitUntil(defaultTimeout, "all members follow one", func() bool {
			return strings.Count(e.group("ledger").rows(), string(v1.ProcessNormal)) == len(pods)-1
		})
	}
}

// testPowerFailure kills all nodes with members at the same time, and starts them again. The agents continue with
// what they have stored.
func testPowerFailure(e env) {
	before, workers := e.group("ledger").Status.Term, e.nodes()
	e.t.Cleanup(func() { must.Succeed(e.t, e.machines.Start(context.Background(), workers...)) })
	must.Succeed(e.t, e.machines.Kill(e.t.Context(), workers...))
	must.Succeed(e.t, e.machines.Start(e.t.Context(), workers...))
	e.awaitStatus(before)
}
