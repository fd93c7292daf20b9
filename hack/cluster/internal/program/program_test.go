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
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func newCAs(t *testing.T) CAs {
	t.Helper()
	var cas CAs
	for _, ca := range []*pki.Pair{&cas.Cluster, &cas.ServiceAccount} {
		created, err := pki.NewCA("test")
		must.Succeed(t, err)
		*ca = created
	}
	return cas
}

// machinesOf returns the programs and files of a cluster with one node, by machine.
func machinesOf(t *testing.T, kernel Kernel) map[string]struct {
	programs []machine.Program
	files    []File
} {
	t.Helper()
	cas := newCAs(t)
	controlPlane, err := ControlPlaneFiles(cas)
	must.Succeed(t, err)
	node := topology.Node(1)
	nodeFiles, err := NodeFiles(node, cas, kernel)
	must.Succeed(t, err)
	return map[string]struct {
		programs []machine.Program
		files    []File
	}{
		topology.ControlPlaneName: {ControlPlane(), controlPlane},
		node.Name:                 {Node(node), nodeFiles},
	}
}

// A machine has exactly the files that its programs use.
func TestFilesMatchPrograms(t *testing.T) {
	named := regexp.MustCompile(regexp.QuoteMeta(machine.EtcDir) + `/[-./a-zA-Z0-9]*[a-zA-Z0-9]`)
	for name, on := range machinesOf(t, Kernel{}) {
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
				t.Errorf("%s: got no file %s, but a program uses it", name, file)
			}
		}
		for file := range files {
			if !wanted[file] && !wanted[path.Dir(file)] {
				t.Errorf("%s: got file %s, but no program uses it", name, file)
			}
		}
	}
}

// A pod that escapes from its container must not be able to issue certificates or tokens.
func TestNodesHaveNoCAKeys(t *testing.T) {
	cas := newCAs(t)
	files, err := NodeFiles(topology.Node(1), cas, Kernel{})
	must.Succeed(t, err)
	for _, file := range files {
		for _, key := range [][]byte{cas.Cluster.Key, cas.ServiceAccount.Key} {
			if strings.Contains(string(file.Data), string(key)) {
				t.Errorf("%s contains the key of a CA", file.Name)
			}
		}
	}
}

func TestConfigurationIsJSON(t *testing.T) {
	for name, on := range machinesOf(t, Kernel{}) {
		for _, file := range on.files {
			if path.Ext(file.Name) != ".json" && path.Ext(file.Name) != ".kubeconfig" && path.Ext(file.Name) != ".conflist" {
				continue
			}
			if !json.Valid(file.Data) {
				t.Errorf("%s of %s must be JSON, got %s", file.Name, name, file.Data)
			}
		}
	}
}

func TestMissingKernelFeaturesAreNotUsed(t *testing.T) {
	minimal, full := containerdConfig(Kernel{}), containerdConfig(Kernel{Overlay: true, OOMScores: true})
	if !strings.Contains(minimal, `snapshotter = "native"`) || !strings.Contains(minimal, "restrict_oom_score_adj = true") {
		t.Errorf("without overlays and OOM scores: got\n%s", minimal)
	}
	if !strings.Contains(full, `snapshotter = "overlayfs"`) || !strings.Contains(full, "restrict_oom_score_adj = false") {
		t.Errorf("with overlays and OOM scores: got\n%s", full)
	}
}
