// Package binaries builds the programs of a cluster from pinned Go modules, once: what is built stays in a cache, keyed by
// everything that it was built from.
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

// Component is what one run of "go build" makes.
type Component struct {
	Name     string
	Module   string   // The folder of its module, from the top of the repository.
	Sources  string   // The folder whose .go files are part of it, if not the module's; from there.
	Packages []string // What to build, by import path.
	Output   string   // What to call it, if it's one file that shall not have its package's name.
	Links    []string // Other names for Output: what a multi-call binary answers to.
	Cgo      bool
	Tags     string
	Stamp    stamp // Writes the version into the program, where that isn't done by itself.
	Minutes  int   // About how long it takes the first time, on two cores.
}

// stamp says which linker flags tell a program the version that it was pinned to.
type stamp struct {
	Module string
	Flags  func(version string) string
}

// Kubernetes is every program of Kubernetes, and etcd.
var Kubernetes = Component{
	Name:     "kubernetes",
	Module:   "hack/kubernetes",
	Packages: []string{"."},
	Output:   "kubernetes",
	Links: []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
	},
	Stamp:   stamp{Module: "k8s.io/kubernetes", Flags: kubernetesVersion},
	Minutes: 5,
}

// NodeComponents are what a node runs beside Kubernetes.
var NodeComponents = []Component{
	{
		Name: "containerd", Module: "hack/containerd", Minutes: 1,
		Packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
		Stamp: stamp{Module: "github.com/containerd/containerd/v2", Flags: containerdVersion},
	},
	{
		Name: "runc", Module: "hack/runc", Minutes: 1, Cgo: true, Tags: "seccomp",
		Packages: []string{"github.com/opencontainers/runc"},
	},
	{
		Name: "cni", Module: "hack/cni", Minutes: 1,
		Packages: []string{
			"github.com/containernetworking/plugins/plugins/main/ptp",
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
		},
	},
	{Name: "coredns", Module: "hack/coredns", Minutes: 1, Packages: []string{"."}, Output: "coredns"},
	Pause,
}

// Pause is the program of the image that holds a pod's namespaces.
var Pause = Component{
	Name: "pause", Module: "hack/cluster", Sources: "pause", Minutes: 1, Packages: []string{"./pause"}, Output: "pause",
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

// arguments are those of the go command.
func (c Component) arguments(output, goMod string) ([]string, error) {
	flags := "-s -w"
	if c.Stamp.Module != "" {
		version, err := requiredVersion(goMod, c.Stamp.Module)
		if err != nil {
			return nil, err
		}
		flags += " " + c.Stamp.Flags(version)
	}
	arguments := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", output}
	if c.Tags != "" {
		arguments = append(arguments, "-tags", c.Tags)
	}
	return append(arguments, c.Packages...), nil
}

// environment keeps the workspace out of it, and C where it isn't needed: then the program runs on every machine.
func (c Component) environment() []string {
	cgo := "CGO_ENABLED=0"
	if c.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	return []string{"GOWORK=off", cgo}
}

// requiredVersion finds the version of a module in a go.mod.
func requiredVersion(goMod, module string) (string, error) {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("the go.mod requires no version of %s", module)
}

// key is different whenever the programs might be.
func (c Component) key(root string) (string, error) {
	hash := sha256.New()
	sources, err := filepath.Glob(filepath.Join(root, c.Module, c.Sources, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list the sources of %s: %w", c.Name, err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		sources = append(sources, filepath.Join(root, c.Module, name))
	}
	slices.Sort(sources)
	for _, source := range sources {
		if err := hashFile(hash, source); err != nil {
			return "", fmt.Errorf("look at what %s is built from: %w", c.Name, err)
		}
	}
	goMod, err := os.ReadFile(filepath.Join(root, c.Module, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("look at what %s is built from: %w", c.Name, err)
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
