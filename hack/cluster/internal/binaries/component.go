// Package binaries builds the programs of a cluster from pinned Go modules and caches them. The key of a cache entry is a
// hash of everything that the programs are built from.
package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Component is a set of programs that one run of "go build" builds.
type Component struct {
	Name     string
	Module   string   // The folder of the module, relative to the root of the repository.
	Sources  string   // The folder with the .go files, relative to Module.
	Packages []string // The import paths to build.
	Output   string   // The name of the binary, if it differs from that of the package.
	Links    []string // The names by which a multi-call binary is called, as links to Output.
	Cgo      bool
	Tags     string
	Stamp    stamp // Sets the version of programs that cannot determine it themselves.
}

// stamp defines the linker flags that set the version of a program.
type stamp struct {
	Module string
	Flags  func(version string) string
}

// Kubernetes is a multi-call binary of all programs of Kubernetes and of etcd.
var Kubernetes = Component{
	Name:     "kubernetes",
	Module:   "hack/kubernetes",
	Packages: []string{"."},
	Output:   "kubernetes",
	Links: []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
	},
	Stamp: stamp{Module: "k8s.io/kubernetes", Flags: kubernetesVersion},
}

// Kubeadm is what kind needs besides the programs of hack/cluster: see hack/kind.
var Kubeadm = Component{
	Name: "kubeadm", Module: "hack/kubernetes", Sources: "kubeadm", Packages: []string{"./kubeadm"}, Output: "kubeadm", Stamp: Kubernetes.Stamp,
}

// NodeComponents are the programs that a node needs besides Kubernetes.
var NodeComponents = []Component{
	{
		Name: "containerd", Module: "hack/node",
		Packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
		Stamp: stamp{Module: "github.com/containerd/containerd/v2", Flags: containerdVersion},
	},
	{
		Name: "runc", Module: "hack/node", Cgo: true, Tags: "seccomp",
		Packages: []string{"github.com/opencontainers/runc"},
	},
	{
		Name: "cni", Module: "hack/node",
		Packages: []string{
			"github.com/containernetworking/plugins/plugins/main/ptp",
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
		},
	},
	{Name: "coredns", Module: "hack/node", Sources: "coredns", Packages: []string{"./coredns"}, Output: "coredns"},
	Pause,
}

// Pause is the program of the pause image, whose container holds a pod's namespaces.
var Pause = Component{
	Name: "pause", Module: ".", Sources: "hack/cluster/pause", Packages: []string{"./hack/cluster/pause"}, Output: "pause",
}

func kubernetesVersion(version string) string {
	const variable = "-X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return variable + "gitVersion=" + version + " " + variable + "gitMajor=" + major + " " + variable + "gitMinor=" + minor
}

func containerdVersion(version string) string {
	return "-X github.com/containerd/containerd/v2/version.Version=" + version
}

// compilerFlags omit the debug information, which the linker would remove: without it, the compiler needs a fifth less time. The
// Makefile has the same flags, so that packages of several builds are compiled once.
const compilerFlags = "all=-dwarf=false"

// arguments returns the arguments of the go command.
func (c Component) arguments(output, goMod string) ([]string, error) {
	flags := "-s -w"
	if c.Stamp.Module != "" {
		version, err := requiredVersion(goMod, c.Stamp.Module)
		if err != nil {
			return nil, err
		}
		flags += " " + c.Stamp.Flags(version)
	}
	arguments := []string{"build", "-trimpath", "-buildvcs=false", "-gcflags", compilerFlags, "-ldflags", flags, "-o", output}
	if c.Tags != "" {
		arguments = append(arguments, "-tags", c.Tags)
	}
	return append(arguments, c.Packages...), nil
}

// environment disables the workspace. It also disables cgo where that isn't needed, so that the program is static.
func (c Component) environment() []string {
	cgo := "CGO_ENABLED=0"
	if c.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	return []string{"GOWORK=off", cgo}
}

// requiredVersion returns the version of a module in a go.mod file.
func requiredVersion(goMod, module string) (string, error) {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod must require %s", module)
}

// key returns a hash of the sources, the pinned modules and the build flags.
func (c Component) key(root string) (string, error) {
	hash := sha256.New()
	sources, err := filepath.Glob(filepath.Join(root, c.Module, c.Sources, "*.go"))
	if err != nil {
		return "", fmt.Errorf("cannot list the sources of %s: %w", c.Name, err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		sources = append(sources, filepath.Join(root, c.Module, name))
	}
	slices.Sort(sources)
	for _, source := range sources {
		if err := hashFile(hash, source); err != nil {
			return "", fmt.Errorf("cannot read the sources of %s: %w", c.Name, err)
		}
	}
	goMod, err := os.ReadFile(filepath.Join(root, c.Module, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("cannot read the sources of %s: %w", c.Name, err)
	}
	arguments, err := c.arguments("", string(goMod))
	if err != nil {
		return "", err
	}
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH, c.environment(), c.Links, arguments)
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func hashFile(hash io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintln(hash, filepath.Base(path))
	_, err = io.Copy(hash, file)
	return err
}
