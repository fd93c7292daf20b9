package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const root = "../.."

var digests = map[string]string{
	"manager": "sha256:" + strings.Repeat("1", 64), "agent": "sha256:" + strings.Repeat("2", 64),
}

// hello is a small program instead of those of a release.
var hello = program{plugin, "./hack/image/testdata/hello", []string{"linux/amd64"}}

// newRelease returns a release of sources in a folder.
func newRelease(t *testing.T, source string) *release {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	r := &release{
		source: source, output: t.TempDir(), version: "v0.1.0", registry: "registry.example.com/conclave", stdout: t.Output(),
	}
	must.Succeed(t, r.check())
	must.Succeed(t, r.prepare())
	return r
}

// build writes what doesn't take long. The tests of hack/image are about images.
func build(t *testing.T, r *release) {
	t.Helper()
	for _, err := range []error{
		r.writeInstaller(t.Context(), digests), r.writeChart(digests), r.writeProgram(t.Context(), hello, hello.platforms[0]),
		r.writeProgram(t.Context(), hello, "windows/amd64"),
		r.writeClients(), r.writeHeadlamp(t.Context()),
		r.writeNotes("changes", digests), r.writeProvenance(), r.writeChecksums(),
	} {
		must.Succeed(t, err)
	}
}

// copySources copies what build needs. The copy has other times of change.
func copySources(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "elsewhere")
	for _, path := range []string{
		"Makefile", "LICENSE", "go.mod", "go.sum", "api/go.mod", "client/go.mod", "config", "charts",
		"hack/overlay", "hack/tools",
		"hack/image/testdata/hello", "cmd/kubectl-conclave/kubectl_complete-conclave",
		"clients/python", "clients/typescript/package.json", "clients/typescript/index.js", "clients/typescript/index.d.ts",
		"clients/typescript/README.md",
		"clients/headlamp/build", "clients/headlamp/package.json", "clients/headlamp/src", "clients/headlamp/tsconfig.json",
	} {
		to := filepath.Join(folder, filepath.Dir(path))
		must.Succeed(t, os.MkdirAll(to, 0o755))
		if output, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(root, path),
			to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	return folder
}

func TestSamplesHaveTheDigestOfTheirImage(t *testing.T) {
	r := newRelease(t, root)
	must.Succeed(t, r.writeSamples(map[string]string{"worker": "sha256:" + strings.Repeat("5", 64)}))
	samples, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	must.Succeed(t, err)
	for _, sample := range samples {
		text := string(read(t, r, "sample-"+filepath.Base(sample)))
		if want := "image: registry.example.com/conclave/worker@sha256:555"; !strings.Contains(text, want) ||
			strings.Contains(text, ".invalid") {
			t.Errorf("got sample %s\nwant it with %s and no other image", text, want)
		}
	}
}

func TestCandidateHasTheChangesOfItsVersion(t *testing.T) {
	r := newRelease(t, root)
	want, err := r.changes()
	must.Succeed(t, err)
	r.version = "v0.1.0-rc.1"
	if got, err := r.changes(); err != nil || got != want {
		t.Errorf("got changes %q, error %v, want those of v0.1.0", got, err)
	}
	r.version = "v99.0.0-rc.1"
	if got, err := r.changes(); err == nil {
		t.Errorf("got changes %q of a version without an entry, want an error", got)
	}
}

func TestPlatforms(t *testing.T) {
	for platforms, want := range map[string]string{
		"linux/amd64": "", "linux/arm64,darwin/arm64": "", "darwin/arm64": "must have one for images",
		"plan9/amd64": `got "plan9/amd64"`,
	} {
		r := newRelease(t, root)
		r.platforms = strings.Split(platforms, ",")
		if err := r.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", platforms, err, want)
		}
	}
}

func TestSecondBuildIsIdentical(t *testing.T) {
	tools, err := filepath.Abs(filepath.Join(root, "bin", "tools"))
	must.Succeed(t, err)
	t.Setenv("TOOLBIN", tools)
	first, second := newRelease(t, root), newRelease(t, copySources(t))
	build(t, first)
	build(t, second)
	want := []string{
		"SHA256SUMS", "artifacthub-pkg.yml", "conclave-0.1.0-py3-none-any.whl",
		"conclave-0.1.0.tgz", "conclave-dev-client-0.1.0.tgz",
		"conclave-headlamp-0.1.0.tar.gz", "install.yaml", "kubectl-conclave_v0.1.0_linux_amd64.tar.gz",
		"kubectl-conclave_v0.1.0_windows_amd64.zip", "notes.md",
		"provenance.json",
	}
	expect.EqualSlicesf(t, names(t, first.output), want, "files")
	for _, name := range want {
		if !bytes.Equal(read(t, first, name), read(t, second, name)) {
			t.Errorf("got two different builds of %s, want identical ones", name)
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first.output
	if output, err := check.CombinedOutput(); err != nil || strings.Count(string(output), ": OK") != len(want)-1 {
		t.Errorf("got %v, want a correct checksum of each file:\n%s", err, output)
	}
}

// TestManifestsNameDigests: what users install can't change when somebody moves a tag.
func TestManifestsNameDigests(t *testing.T) {
	r := newRelease(t, root)
	build(t, r)
	installer := string(read(t, r, "install.yaml"))
	for _, line := range []string{
		"image: registry.example.com/conclave/manager@" + digests["manager"],
		"value: registry.example.com/conclave/agent@" + digests["agent"],
	} {
		expect.Containsf(t, installer, line, "install.yaml")
	}
	chart := unpack(t, read(t, r, "conclave-0.1.0.tgz"))
	var metadata struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(chart["conclave/Chart.yaml"], &metadata); err != nil || metadata.Version != "0.1.0" ||
		metadata.AppVersion != "v0.1.0" {
		t.Errorf("got versions %+v of the chart (%v), want 0.1.0 and v0.1.0", metadata, err)
	}
	type image struct{ Repository, Tag, Digest string }
	var values struct {
		Image image
		Agent struct{ Image image }
	}
	must.Succeed(t, yaml.Unmarshal(chart["conclave/values.yaml"], &values))
	for name, got := range map[string]image{"manager": values.Image, "agent": values.Agent.Image} {
		expect.Equalf(t, got, image{"registry.example.com/conclave/" + name, "", digests[name]}, "image in the values")
	}
	if crd := chart["conclave/config/crd/bases/conclave.dev_electiongroups.yaml"]; len(crd) == 0 {
		t.Error("got no CRD in the chart, want the files of config")
	}
}

func TestArchiveHasPluginCompletionAndLicense(t *testing.T) {
	r := newRelease(t, root)
	must.Succeed(t, r.writeProgram(t.Context(), hello, "linux/amd64"))
	files := unpack(t, read(t, r, "kubectl-conclave_v0.1.0_linux_amd64.tar.gz"))
	for _, name := range []string{"kubectl-conclave", "kubectl_complete-conclave", "LICENSE"} {
		if len(files[name]) == 0 {
			t.Errorf("got no %s in the archive", name)
		}
	}
}

// writeArchives writes files with the names of the plugin's archives.
func writeArchives(t *testing.T, r *release) {
	t.Helper()
	for _, platform := range programs[0].platforms {
		file := "kubectl-conclave_v0.1.0_" + strings.ReplaceAll(platform, "/", "_") + ".tar.gz"
		if strings.HasPrefix(platform, "windows") {
			file = strings.TrimSuffix(file, ".tar.gz") + ".zip"
		}
		must.Succeed(t, os.WriteFile(filepath.Join(r.output, file), []byte(platform), 0o600))
	}
}

func TestKrewManifestHasChecksumOfEachPlatform(t *testing.T) {
	r := newRelease(t, root)
	writeArchives(t, r)
	must.Succeed(t, r.writeKrew())
	var manifest krewManifest
	must.Succeed(t, yaml.UnmarshalStrict(read(t, r, "conclave.yaml"), &manifest))
	if manifest.Metadata["name"] != "conclave" || manifest.Spec.Version != "v0.1.0" || len(manifest.Spec.Platforms) != 6 {
		t.Fatalf("got %+v, want version v0.1.0 of the plugin conclave for six platforms", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		want, err := checksum(filepath.Join(r.output, filepath.Base(p.URI)))
		if err != nil || p.SHA256 != want {
			t.Errorf("%s: got checksum %s, want %s (%v)", p.URI, p.SHA256, want, err)
		}
		if windows := p.Selector.MatchLabels["os"] == "windows"; windows != (p.Bin == "kubectl-conclave.exe") {
			t.Errorf("%s: got program %s", p.URI, p.Bin)
		}
	}
}

// TestChangelogDescribesRelease: the real one, and a missing entry.
func TestChangelogDescribesRelease(t *testing.T) {
	r := newRelease(t, root)
	if changes, err := r.changes(); err != nil || !strings.HasPrefix(changes, "The first release.") ||
		strings.Contains(changes, "## v") {
		t.Errorf("got changes %q (%v), want those of v0.1.0 only", changes, err)
	}
	r.version = "v0.1"
	if _, err := r.changes(); err == nil ||
		err.Error() != "CHANGELOG.md must have an entry for the release: ## v0.1 - DATE" {
		t.Errorf("got error %v, want one that asks for the entry", err)
	}
}

// TestModulesAreOfOneVersion: that of the release, or of the one for which this is a candidate.
func TestModulesAreOfOneVersion(t *testing.T) {
	r := newRelease(t, root)
	for version, want := range map[string]string{
		"v0.1.0": "", "v0.1.0-rc.1": "",
		"v0.2.0": "controllerruntime/go.mod must require github.com/conclave-dev/conclave/client v0.2.0",
	} {
		r.version = version
		expect.Equalf(t, fmt.Sprint(r.checkModules()), cmp.Or(want, "<nil>"), "%s", version)
	}
}

func TestInvalidArguments(t *testing.T) {
	const version, registry = "VERSION must be a version such as v0.1.0",
		"REGISTRY must be where users pull the images, such as registry.example.com/conclave, got "
	for _, c := range []struct{ args, want string }{
		{"", version},
		{"-version v0.1 -registry example.org/conclave", version},
		{"-version 0.1.0 -registry example.org/conclave", version},
		{"-version v0.1.0+dirty -registry example.org/conclave", version},
		{"-version v0.1.0", registry + `""`},
		{"-version v0.1.0 -registry conclave", registry + `"conclave"`},
		{"-version v0.1.0 -registry https://example.org/conclave", registry},
		{"-version v0.1.0 -registry example.org/conclave/", registry},
		{"-version v0.1.0 -registry example.org/Conclave", registry},
		{"-version v9.9.9 -registry localhost:5000 -source " +
			root, "CHANGELOG.md must have an entry for the release: ## v9.9.9 - DATE"},
	} {
		err := run(t.Context(), append(strings.Fields(c.args), "-output", t.TempDir()), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want one line with %q", c.args, err, c.want)
		}
	}
}

func read(t *testing.T, r *release, name string) []byte {
	t.Helper()
	content := must.ReadFile(t, filepath.Join(r.output, name))
	return content
}

func names(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must.Succeed(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// unpack returns the files of a compressed tar archive.
func unpack(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	must.Succeed(t, err)
	files, found := tar.NewReader(compressed), map[string][]byte{}
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		must.Succeed(t, err)
		if found[header.Name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
}
