package program

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

func newAuthorities(t *testing.T) Authorities {
	t.Helper()
	var authorities Authorities
	for _, authority := range []*pki.Pair{&authorities.Cluster, &authorities.ServiceAccount} {
		made, err := pki.NewAuthority("test")
		if err != nil {
			t.Fatal(err)
		}
		*authority = made
	}
	return authorities
}

// everything that a cluster of one node runs, by machine.
func everything(t *testing.T, kernel Kernel) map[string]struct {
	programs []machine.Program
	files    []File
} {
	t.Helper()
	authorities := newAuthorities(t)
	controlPlane, err := ControlPlaneFiles(authorities)
	if err != nil {
		t.Fatal(err)
	}
	node := topology.Node(1)
	nodeFiles, err := NodeFiles(node, authorities, kernel)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		programs []machine.Program
		files    []File
	}{
		topology.ControlPlaneName: {ControlPlane(), controlPlane},
		node.Name:                 {Node(node, kernel), nodeFiles},
	}
}

// TestFilesMatchPrograms: a machine has each file that its programs are told to read, and no other.
func TestFilesMatchPrograms(t *testing.T) {
	named := regexp.MustCompile(regexp.QuoteMeta(machine.EtcDir) + `/[-./a-zA-Z0-9]*[a-zA-Z0-9]`)
	for name, on := range everything(t, Kernel{Proxy: true}) {
		files, wanted := map[string]bool{}, map[string]bool{}
		text := ""
		for _, file := range on.files {
			files[path.Join(machine.EtcDir, file.Name)] = true
			text += string(file.Data) + "\n"
		}
		for _, program := range on.programs {
			text += strings.Join(program.Args, "\n") + "\n"
		}
		for _, file := range named.FindAllString(text, -1) {
			wanted[file] = true
			if !files[file] && file != path.Dir(etc(fileNetwork)) {
				t.Errorf("%s has no %s, and is told to read it", name, file)
			}
		}
		for file := range files {
			if !wanted[file] && !wanted[path.Dir(file)] {
				t.Errorf("%s has %s, and nothing reads it", name, file)
			}
		}
	}
}

// TestNodesCantIssue: what a pod that breaks out of its container finds on a node must not make it master of the cluster.
func TestNodesCantIssue(t *testing.T) {
	authorities := newAuthorities(t)
	files, err := NodeFiles(topology.Node(1), authorities, Kernel{})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, key := range [][]byte{authorities.Cluster.Key, authorities.ServiceAccount.Key} {
			if strings.Contains(string(file.Data), string(key)) {
				t.Errorf("%s has an authority's key", file.Name)
			}
		}
	}
}

func TestConfigurationIsJSON(t *testing.T) {
	for name, on := range everything(t, Kernel{}) {
		for _, file := range on.files {
			if path.Ext(file.Name) != ".json" && path.Ext(file.Name) != ".kubeconfig" && path.Ext(file.Name) != ".conflist" {
				continue
			}
			if !json.Valid(file.Data) {
				t.Errorf("%s of %s is %s", file.Name, name, file.Data)
			}
		}
	}
}

// TestKernel: what the kernel hasn't got isn't used.
func TestKernel(t *testing.T) {
	programs := func(kernel Kernel) string {
		var names []string
		for _, program := range Node(topology.Node(1), kernel) {
			names = append(names, program.Name)
		}
		return strings.Join(names, " ")
	}
	if got := programs(Kernel{Proxy: true}); got != "containerd kubelet coredns kube-proxy" {
		t.Errorf("with nftables, a node runs %s", got)
	}
	if got := programs(Kernel{}); got != "containerd kubelet coredns" {
		t.Errorf("without nftables, a node runs %s", got)
	}
	poor, rich := containerdConfig(Kernel{}), containerdConfig(Kernel{Overlay: true, OOMScores: true})
	if !strings.Contains(poor, `snapshotter = "native"`) || !strings.Contains(poor, "restrict_oom_score_adj = true") {
		t.Errorf("without overlays and OOM scores, containerd is told\n%s", poor)
	}
	if !strings.Contains(rich, `snapshotter = "overlayfs"`) || !strings.Contains(rich, "restrict_oom_score_adj = false") {
		t.Errorf("with overlays and OOM scores, containerd is told\n%s", rich)
	}
}
