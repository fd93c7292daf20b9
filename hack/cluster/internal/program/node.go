package program

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

const (
	fileContainerd        = "containerd.toml"
	fileNetwork           = "cni/10-pods.conflist"
	fileKubelet           = "kubelet.json"
	fileKubeletKubeconfig = "kubelet.kubeconfig"
	fileProxy             = "kube-proxy.json"
	fileProxyKubeconfig   = "kube-proxy.kubeconfig"
	fileCorefile          = "Corefile"
	fileDNSKubeconfig     = "coredns.kubeconfig"

	// ContainerdSocket is the path of containerd's socket in the machine.
	ContainerdSocket = "/run/containerd/containerd.sock"

	// PauseImage is the image of the container that holds a pod's namespaces.
	PauseImage = "conclave.dev/hack/pause:1"

	// DNSUser is the user name of CoreDNS.
	DNSUser = "system:coredns"
)

// Kernel contains the features of the kernel on which the programs depend.
type Kernel struct {
	Overlay   bool // Overlay file systems can be mounted on the state folder.
	OOMScores bool // The OOM score of a process can be lowered.
}

// Node returns the programs of a node. Each node has its own CoreDNS, so that pods can resolve names while the control
// plane or any other node is unreachable.
func Node(node topology.Machine) []machine.Program {
	return []machine.Program{
		{Name: "containerd", Path: path.Join(machine.BinDir, "containerd", "containerd"), Args: []string{
			"--config=" + etc(fileContainerd),
		}},
		{Name: "kubelet", Path: kubernetes("kubelet"), After: listening(), Args: []string{
			"--config=" + etc(fileKubelet),
			"--kubeconfig=" + etc(fileKubeletKubeconfig),
			"--root-dir=" + path.Join(machine.LibDir, "kubelet"),
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.IP().String(),
		}},
		{Name: "coredns", Path: path.Join(machine.BinDir, "coredns", "coredns"), After: ready(), Args: []string{
			"-conf", etc(fileCorefile),
		}},
		{Name: "kube-proxy", Path: kubernetes("kube-proxy"), After: ready(), Args: []string{"--config=" + etc(fileProxy)}},
	}
}

// NodeFiles returns the credentials and configuration files of a node's programs.
func NodeFiles(node topology.Machine, cas CAs, kernel Kernel) ([]File, error) {
	// kubelet uses the same certificate as a server and as a client of the API server.
	identity := pki.Identity{
		Name: "system:node:" + node.Name, Organizations: []string{"system:nodes"},
		DNSNames: []string{node.Name}, Addresses: []netip.Addr{node.IP()},
	}
	serving, err := pki.Issue(cas.Cluster, identity)
	if err != nil {
		return nil, err
	}
	files := []File{
		{fileCA, cas.Cluster.Cert},
		{fileServing, serving.Cert},
		{fileServingKey, serving.Key},
		{fileContainerd, []byte(containerdConfig(kernel))},
		{fileCorefile, []byte(corefile(node))},
	}
	for name, user := range map[string]pki.Identity{
		fileKubeletKubeconfig: identity,
		fileProxyKubeconfig:   {Name: "system:kube-proxy"},
		fileDNSKubeconfig:     {Name: DNSUser},
	} {
		file, err := kubeconfigFile(cas, name, user)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	for name, content := range map[string]any{
		fileNetwork: networkConfig(node),
		fileKubelet: kubeletConfig(node),
		fileProxy:   proxyConfig(node),
	} {
		encoded, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("cannot encode %s of %s: %w", name, node.Name, err)
		}
		files = append(files, File{Name: name, Data: append(encoded, '\n')})
	}
	return files, nil
}

func containerdConfig(kernel Kernel) string {
	snapshotter := "overlayfs"
	if !kernel.Overlay {
		snapshotter = "native" // Copies each layer, which is slow but works on all file systems.
	}
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"

# These plugins create folders outside the machine's own, or need devices that it doesn't have.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = %q

[plugins.'io.containerd.cri.v1.images']
snapshotter = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %q

# Imports must unpack with the snapshotter that pods use.
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
platform = "linux"
snapshotter = %q

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = %t
enable_cdi = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%q]
conf_dir = %q
use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = %q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %q
`,
		path.Join(machine.LibDir, "containerd"), ContainerdSocket, snapshotter, PauseImage, snapshotter, !kernel.OOMScores,
		path.Join(machine.BinDir, "cni"), path.Dir(etc(fileNetwork)),
		path.Join(machine.BinDir, "containerd", "containerd-shim-runc-v2"), path.Join(machine.BinDir, "runc", "runc"))
}

// networkConfig connects each pod to its node with a separate link. All traffic between pods is routed, even on one node,
// so that kube-proxy's rules apply to it without bridge netfilter.
func networkConfig(node topology.Machine) map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{map[string]any{
			"type":   "ptp",
			"ipMasq": false,
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": "/run/cni", // On a tmpfs: a machine that restarts has no pods, so it must forget the leases of addresses.
				"ranges":  []any{[]any{map[string]any{"subnet": node.PodCIDR().String()}}},
				"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}

func kubeletConfig(node topology.Machine) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": etc(fileCA)},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              etc(fileServing),
		"tlsPrivateKeyFile":        etc(fileServingKey),
		"containerRuntimeEndpoint": "unix://" + ContainerdSocket,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/", // The root of the machine's cgroup namespace.
		"failCgroupV1":             false,
		"clusterDomain":            topology.ClusterDomain,
		"clusterDNS":               []string{node.IP().String()},
		"resolvConf":               "", // Pods cannot reach the host's name servers.
		// The machine shares its disk and memory with the host. Never evict pods because of their usage, and never delete
		// images, which couldn't be pulled again.
		"enforceNodeAllocatable":        []string{},
		"localStorageCapacityIsolation": false,
		"imageGCHighThresholdPercent":   100,
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
			"imagefs.inodesFree": "0%",
		},
		"failSwapOn":             false,
		"makeIPTablesUtilChains": false,
		"podLogsDir":             path.Join(machine.LogDir, "pods"),
		"volumePluginDir":        path.Join(machine.LibDir, "kubelet", "volume-plugins"),
	}
}

func proxyConfig(node topology.Machine) map[string]any {
	return map[string]any{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"hostnameOverride": node.Name,
		"clusterCIDR":      topology.PodNet.String(),
		"clientConnection": map[string]any{"kubeconfig": etc(fileProxyKubeconfig)},
		// With 0, kube-proxy doesn't change the kernel's settings, which belong to the host.
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
}

// corefile returns CoreDNS's configuration. It resolves the names of the cluster and answers NXDOMAIN for all others, which
// pods cannot reach anyway.
func corefile(node topology.Machine) string {
	return fmt.Sprintf(`%[2]s:53 in-addr.arpa:53 {
    bind %[1]s
    errors
    kubernetes %[2]s in-addr.arpa {
        kubeconfig %[3]s
        ttl 5
    }
}
.:53 {
    bind %[1]s
    template ANY ANY . {
        rcode NXDOMAIN
    }
}
`, node.IP(), topology.ClusterDomain, etc(fileDNSKubeconfig))
}
