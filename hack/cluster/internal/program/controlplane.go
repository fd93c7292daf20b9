// Package program defines the programs of each machine of a cluster: the arguments and configuration files of etcd, the API
// server, kubelet and so on. Apart from the keys that it generates, its results depend only on the arguments.
package program

import (
	"fmt"
	"net/netip"
	"path"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// etcdURL is the URL of etcd. It uses no TLS, because only the control plane can reach its own loopback.
const etcdURL = "http://127.0.0.1:2379"

// frontProxyUser is the user name of the API server towards aggregated API servers.
const frontProxyUser = "front-proxy-client"

// The names of a machine's files in machine.EtcDir.
const (
	fileCA                = "ca.crt"
	fileCAKey             = "ca.key"
	fileServing           = "serving.crt"
	fileServingKey        = "serving.key"
	fileKubeletClient     = "kubelet-client.crt"
	fileKubeletClientKey  = "kubelet-client.key"
	fileFrontProxy        = "front-proxy.crt"
	fileFrontProxyKey     = "front-proxy.key"
	fileServiceAccountKey = "service-account.key"
	fileServiceAccount    = "service-account.crt"
	fileControllerManager = "kube-controller-manager.kubeconfig"
	fileScheduler         = "kube-scheduler.kubeconfig"
)

// File is a file that a machine's programs read.
type File struct {
	Name string // In machine.EtcDir.
	Data []byte
}

// CAs sign all certificates and service account tokens of a cluster.
type CAs struct {
	Cluster        pki.Pair `json:"cluster"`
	ServiceAccount pki.Pair `json:"serviceAccount"`
}

// APIServerURL returns the URL of the API server inside the cluster.
func APIServerURL() string { return "https://" + apiServerAddress().String() }

func apiServerAddress() netip.AddrPort {
	return netip.AddrPortFrom(topology.ControlPlane().IP(), topology.APIServerPort)
}

// listening is a dependency on the API server's port. An API server listens before it has created the default roles.
// kubelet doesn't need them, because the node authorizer grants its permissions. Other programs use ready.
func listening() string { return "tcp:" + apiServerAddress().String() }

func ready() string { return "ready:" + apiServerAddress().String() }

func etc(name string) string { return path.Join(machine.EtcDir, name) }

func kubernetes(name string) string { return path.Join(machine.BinDir, "kubernetes", name) }

// ControlPlane returns the programs of the control plane.
func ControlPlane() []machine.Program {
	return []machine.Program{
		{Name: "etcd", Path: kubernetes("etcd"), Args: []string{
			"--name=etcd",
			"--data-dir=" + path.Join(machine.LibDir, "etcd"),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=etcd=http://127.0.0.1:2380",
			// A throwaway cluster isn't expected to survive a power failure.
			"--unsafe-no-fsync",
			"--log-level=warn",
		}},
		{Name: "kube-apiserver", Path: kubernetes("kube-apiserver"), After: "tcp:127.0.0.1:2379", Args: apiServerArguments()},
		{Name: "kube-controller-manager", Path: kubernetes("kube-controller-manager"), After: ready(), Args: controllerManagerArguments()},
		{Name: "kube-scheduler", Path: kubernetes("kube-scheduler"), After: ready(), Args: []string{
			"--kubeconfig=" + etc(fileScheduler),
			"--authentication-kubeconfig=" + etc(fileScheduler),
			"--authorization-kubeconfig=" + etc(fileScheduler),
			"--leader-elect=false",
		}},
	}
}

func apiServerArguments() []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--advertise-address=" + topology.ControlPlane().IP().String(),
		fmt.Sprintf("--secure-port=%d", topology.APIServerPort),
		"--service-cluster-ip-range=" + topology.ServiceNet.String(),
		"--client-ca-file=" + etc(fileCA),
		"--tls-cert-file=" + etc(fileServing),
		"--tls-private-key-file=" + etc(fileServingKey),
		"--kubelet-certificate-authority=" + etc(fileCA),
		"--kubelet-client-certificate=" + etc(fileKubeletClient),
		"--kubelet-client-key=" + etc(fileKubeletClientKey),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + etc(fileCA),
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + etc(fileFrontProxy),
		"--proxy-client-key-file=" + etc(fileFrontProxyKey),
		"--service-account-issuer=https://kubernetes.default.svc." + topology.ClusterDomain,
		"--service-account-key-file=" + etc(fileServiceAccount),
		"--service-account-signing-key-file=" + etc(fileServiceAccountKey),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// Connect to webhooks at the addresses of their pods: the control plane has no kube-proxy.
		"--enable-aggregator-routing=true",
	}
}

func controllerManagerArguments() []string {
	return []string{
		"--kubeconfig=" + etc(fileControllerManager),
		"--authentication-kubeconfig=" + etc(fileControllerManager),
		"--authorization-kubeconfig=" + etc(fileControllerManager),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + etc(fileServiceAccountKey),
		"--root-ca-file=" + etc(fileCA),
		"--cluster-signing-cert-file=" + etc(fileCA),
		"--cluster-signing-key-file=" + etc(fileCAKey),
	}
}

// ControlPlaneFiles returns the credentials of the control plane's programs.
func ControlPlaneFiles(cas CAs) ([]File, error) {
	serving, err := pki.Issue(cas.Cluster, pki.Identity{
		Name: "kube-apiserver",
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + topology.ClusterDomain,
		},
		Addresses: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), topology.ControlPlane().IP(), topology.APIServerServiceIP,
		},
	})
	if err != nil {
		return nil, err
	}
	kubeletClient, err := pki.Issue(cas.Cluster, pki.Identity{
		Name: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"},
	})
	if err != nil {
		return nil, err
	}
	// Aggregated API servers trust this identity to name the user of a request.
	frontProxy, err := pki.Issue(cas.Cluster, pki.Identity{Name: frontProxyUser})
	if err != nil {
		return nil, err
	}
	files := []File{
		{fileFrontProxy, frontProxy.Cert},
		{fileFrontProxyKey, frontProxy.Key},
		{fileCA, cas.Cluster.Cert},
		{fileCAKey, cas.Cluster.Key},
		{fileServing, serving.Cert},
		{fileServingKey, serving.Key},
		{fileKubeletClient, kubeletClient.Cert},
		{fileKubeletClientKey, kubeletClient.Key},
		{fileServiceAccount, cas.ServiceAccount.Cert},
		{fileServiceAccountKey, cas.ServiceAccount.Key},
	}
	for name, user := range map[string]string{
		fileControllerManager: "system:kube-controller-manager",
		fileScheduler:         "system:kube-scheduler",
	} {
		file, err := kubeconfigFile(cas, name, pki.Identity{Name: user})
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func kubeconfigFile(cas CAs, name string, identity pki.Identity) (File, error) {
	client, err := pki.Issue(cas.Cluster, identity)
	if err != nil {
		return File{}, err
	}
	content, err := pki.Kubeconfig("cluster", APIServerURL(), cas.Cluster.Cert, client)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Data: content}, nil
}
