package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newKindCluster uses the cluster of the current kubeconfig. The tests find its processes on this machine.
func newKindCluster(t *testing.T) *cluster {
	t.Helper()
	name := os.Getenv("KIND_CLUSTER_NAME")
	k := kindNodes{t, name}
	c := &cluster{
		t: t, kubectlPath: "kubectl", environment: []string{"KUBECONFIG=" + os.Getenv("KUBECONFIG")},
		load:    func(archive string) { run(t, "kind", "load", "image-archive", archive, "--name", name) },
		control: k.control, name: k.cgroup(), networks: k.networks,
	}
	return c
}

// kindNodes are the nodes of a kind cluster, which are containers.
type kindNodes struct {
	t    *testing.T
	name string
}

// partitionTable is the nftables table that drops what a node sends and receives.
const partitionTable = "inet conclave_e2e"

func (k kindNodes) control(verb, node string) {
	k.t.Helper()
	controlPlane := k.name + "-control-plane"
	node = strings.ReplaceAll(node, "control-plane", controlPlane)
	switch verb {
	case "partition":
		k.nft(node, "table "+partitionTable+` {
			chain in { type filter hook input priority -300; iifname eth0 drop; }
			chain out { type filter hook output priority -300; oifname eth0 drop; }
			chain forward { type filter hook forward priority -300; iifname eth0 drop; oifname eth0 drop; }
		}`)
	case "heal": // Adding it makes this succeed also if the node isn't isolated.
		k.nft(node, "add table "+partitionTable+"; delete table "+partitionTable)
	case "kill":
		if node == controlPlane { // When it starts again, it may have another address.
			run(k.t, "docker", "pause", node)
			return
		}
		run(k.t, "docker", "kill", node)
	case "start":
		if node == controlPlane {
			run(k.t, "docker", "unpause", node)
			return
		}
		run(k.t, "docker", "start", node)
	default:
		k.t.Fatalf("a kind cluster can't %s", verb)
	}
}

func (k kindNodes) nft(node, rules string) {
	k.t.Helper()
	run(k.t, "docker", "exec", node, "nft", rules)
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
		if fields := strings.SplitN(line, ":", 3); fields[1] == "pids" || fields[0] == "0" && !strings.Contains(text, ":pids:") {
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
