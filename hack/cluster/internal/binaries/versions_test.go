package binaries

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// differing are the modules whose versions differ on purpose: containerd doesn't compile with the API that Kubernetes requires, and
// runc needs newer versions of three small modules than Kubernetes.
var differing = []string{
	"github.com/containerd/containerd/api",
	"cyphar.com/go-pathrs", "github.com/moby/sys/userns", "github.com/opencontainers/cgroups",
}

// TestModulesShareVersions: a package is compiled once for Conclave, Kubernetes, containerd and CoreDNS if its module and all
// modules that it imports have the same versions. One version that differs, for example of golang.org/x/net, doubles the
// effort for hundreds of packages.
func TestModulesShareVersions(t *testing.T) {
	root := repository(t)
	found := map[string]map[string][]string{} // The folders by module and version.
	for _, folder := range []string{".", "hack/kubernetes", "hack/node"} {
		for module, version := range versionsIn(t, filepath.Join(root, folder, "go.mod")) {
			if found[module] == nil {
				found[module] = map[string][]string{}
			}
			found[module][version] = append(found[module][version], folder)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(found)) {
		if len(found[module]) > 1 && !slices.Contains(differing, module) {
			t.Errorf("the folders must require the same version of %s, got %v: run go get %s@VERSION and go mod tidy in each", module, found[module], module)
		}
	}
	for _, module := range []string{"k8s.io/client-go", "google.golang.org/protobuf"} {
		for version, folders := range found[module] {
			if len(folders) != 3 {
				t.Errorf("got %s %s only in %q, want it in all three folders", module, version, folders)
			}
		}
	}
}

// versionsIn returns the versions of the modules that a go.mod requires, after its replacements.
func versionsIn(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		switch {
		case len(fields) == 2 && strings.HasPrefix(fields[1], "v"):
			versions[fields[0]] = fields[1]
		case len(fields) == 4 && fields[1] == "=>" && versions[fields[0]] != "": // Replacements follow requirements.
			versions[fields[0]] = fields[3]
		}
	}
	return versions
}
