package layers_test

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var (
	external = regexp.MustCompile(`^ *(?:- )?(?:uses: [^.]|container: )|^FROM .*[:/]`)
	pinned   = regexp.MustCompile(`@[0-9a-f]{40} # v\d+\.\d+\.\d+$|@sha256:[0-9a-f]{64}( |$)`)
)

// exposed returns the lines of a workflow or Dockerfile that run what its owner can replace, or that leave a token in a
// file.
func exposed(text string) (found []string) {
	lines := append(strings.Split(text, "\n"), "")
	for i, line := range lines {
		if external.MatchString(line) && !pinned.MatchString(line) ||
			strings.Contains(line, "actions/checkout@") && !strings.Contains(lines[i+1], "persist-credentials: false") {
			found = append(found, line)
		}
	}
	return found
}

func TestWorkflowsRunWhatTheyPin(t *testing.T) {
	var names []string
	for _, pattern := range []string{".github/workflows/*", ".github/actions/*/*.yml", "Dockerfile"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		must.Succeed(t, err)
		names = append(names, found...)
	}
	for _, name := range names {
		for _, line := range exposed(string(must.ReadFile(t, name))) {
			t.Errorf("%s: want a SHA or digest, and a checkout with persist-credentials: false: %s", name, line)
		}
	}
	expect.AtLeastf(t, len(names), 7, "files")
	release := string(must.ReadFile(t, filepath.Join(root, ".github/workflows/release.yaml")))
	expect.Equalf(t, strings.Count(release, "actions/setup-go@"), strings.Count(release, "cache: false"),
		"release.yaml must not use a cache, because other workflows write to it")
	sha, digest := strings.Repeat("a", 40), "sha256:"+strings.Repeat("b", 64)
	for text, want := range map[string]int{
		"    - uses: a/b@v5": 1, "    - uses: a/b/c@" + sha: 1,
		"    - uses: a/b@" + sha + " # v5.1.0": 0, "    - uses: ./a": 0,
		"    container: debian:12": 1, "    container: debian:12@" + digest + " # why": 0,
		"FROM --platform=$X golang:1 AS source": 1, "FROM golang:1@" + digest + " AS source": 0, "FROM source AS build": 0,
		"    - uses: actions/checkout@" + sha + " # v5.1.0\n    - run: x":                             1,
		"    - uses: actions/checkout@" + sha + " # v5.1.0\n      with: {persist-credentials: false}": 0,
	} {
		expect.Equalf(t, len(exposed(text)), want, "exposed lines in %q", text)
	}
}

func TestDependabotKnowsAllFolders(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	must.Succeed(t, yaml.Unmarshal(must.ReadFile(t, filepath.Join(root, ".github/dependabot.yml")), &config))
	got := map[string]bool{}
	want := map[string]bool{"github-actions /": true, "github-actions /.github/actions/chaos": true}
	for _, update := range config.Updates {
		for _, folder := range append(update.Directories, update.Directory) {
			if folder != "" {
				got[update.Ecosystem+" "+folder] = true
			}
		}
	}
	ecosystems := map[string]string{
		"go.mod": "gomod", "package.json": "npm", "pyproject.toml": "pip", "Dockerfile": "docker",
	}
	walk(t, func(name string) {
		if ecosystem := ecosystems[path.Base(name)]; ecosystem != "" {
			want[ecosystem+" "+path.Join("/", path.Dir(name))] = true
		}
	})
	expect.DeepEqualf(t, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), "folders in dependabot.yml")
}

// TestPackagesHaveTheLicense: a package that users get without the rest of the repository has its own copy.
func TestPackagesHaveTheLicense(t *testing.T) {
	want := string(must.ReadFile(t, filepath.Join(root, "LICENSE")))
	for _, folder := range []string{"api", "client", "controllerruntime", "clients/python", "clients/typescript"} {
		got := string(must.ReadFile(t, filepath.Join(root, folder, "LICENSE")))
		expect.Equalf(t, got, want, "LICENSE of %s", folder)
	}
}
