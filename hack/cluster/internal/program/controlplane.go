// Package program says what runs on each machine of a cluster: the arguments and configuration files of etcd, the API
// server, kubelet and so on. It is pure: the same machine and credentials give the same programs and files.
package program

import (
	"fmt"
	"net/netip"
	"path"

	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// etcdURL is where etcd listens: on the control plane's own loopback, which nobody else can reach, so without TLS.
const etcdURL = "http://127.0.0.1:2379"

// frontProxyUser is whom the API server is to those behind it.
const frontProxyUser = "front-proxy-client"

// The files of a machine, by name in machine.EtcDir.
const (
	fileAuthority         = "ca.crt"
	fileAuthorityKey      = "ca.key"
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

// Authorities are what every certificate and service-account token of a cluster is signed with.
type Authorities struct {
	Cluster        pki.Pair `json:"cluster"`
	ServiceAccount pki.Pair `json:"serviceAccount"`
}

// APIServerURL is where programs inside the cluster reach the API server.
func APIServerURL() string { return "https://" + apiServerAddress().String() }

func apiServerAddress() netip.AddrPort {
	return netip.AddrPortFrom(topology.ControlPlane().IP(), topology.APIServerPort)
}

// An API server listens well before it has the roles of its clients. Programs that need those wait for them; kubelet
// gets its permissions from the node authorizer, and need not.
func listening() string { return "tcp:" + apiServerAddress().String() }

func ready() string { return "ready:" + apiServerAddress().String() }

func etc(name string) string { return path.Join(machine.EtcDir, name) }

func kubernetes(name string) string { return path.Join(machine.BinDir, "kubernetes", name) }

// ControlPlane is what the control plane runs.
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
			// A throwaway cluster is made anew after a power cut; waiting for the disk at each write is for others.
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
		"--client-ca-file=" + etc(fileAuthority),
		"--tls-cert-file=" + etc(fileServing),
		"--tls-private-key-file=" + etc(fileServingKey),
		"--kubelet-certificate-authority=" + etc(fileAuthority),
		"--kubelet-client-certificate=" + etc(fileKubeletClient),
		"--kubelet-client-key=" + etc(fileKubeletClientKey),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + etc(fileAuthority),
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
		// Webhooks are reached at their pods' addresses: there is no kube-proxy on the control plane.
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
		"--root-ca-file=" + etc(fileAuthority),
		"--cluster-signing-cert-file=" + etc(fileAuthority),
		"--cluster-signing-key-file=" + etc(fileAuthorityKey),
	}
}

// ControlPlaneFiles makes the credentials that the control plane's programs read.
func ControlPlaneFiles(authorities Authorities) ([]File, error) {
	serving, err := pki.Issue(authorities.Cluster, pki.Identity{
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
	kubeletClient, err := pki.Issue(authorities.Cluster, pki.Identity{
		Name: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"},
	})
	if err != nil {
		return nil, err
	}
	// Whom API servers behind this one believe when it says who asks.
	frontProxy, err := pki.Issue(authorities.Cluster, pki.Identity{Name: frontProxyUser})
	if err != nil {
		return nil, err
	}
	files := []File{
		{fileFrontProxy, frontProxy.Cert},
		{fileFrontProxyKey, frontProxy.Key},
		{fileAuthority, authorities.Cluster.Cert},
		{fileAuthorityKey, authorities.Cluster.Key},
		{fileServing, serving.Cert},
		{fileServingKey, serving.Key},
		{fileKubeletClient, kubeletClient.Cert},
		{fileKubeletClientKey, kubeletClient.Key},
		{fileServiceAccount, authorities.ServiceAccount.Cert},
		{fileServiceAccountKey, authorities.ServiceAccount.Key},
	}
	for name, user := range map[string]string{
		fileControllerManager: "system:kube-controller-manager",
		fileScheduler:         "system:kube-scheduler",
	} {
		file, err := kubeconfigFile(authorities, name, pki.Identity{Name: user})
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func kubeconfigFile(authorities Authorities, name string, identity pki.Identity) (File, error) {
	client, err := pki.Issue(authorities.Cluster, identity)
	if err != nil {
		return File{}, err
	}
	content, err := pki.Kubeconfig("cluster", APIServerURL(), authorities.Cluster.Cert, client)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Data: content}, nil
}
