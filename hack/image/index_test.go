package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/conclave-dev/conclave/hack/internal/gobuild"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// makeIndex builds hello for two platforms and returns the folder of the output.
func makeIndex(t *testing.T, source string) string {
	t.Helper()
	output := t.TempDir()
	var stdout bytes.Buffer
	err := run(t.Context(), []string{
		"-source", source, "-package", "./testdata/hello", "-version", "test", "-tag",
		"registry.example.com/conclave/hello:test",
		"-platform", "linux/amd64,linux/arm64", "-output", output,
	}, &stdout)
	must.Succeed(t, err)
	return output
}

// TestIndexHasImageForEachPlatform: a runtime finds the image of its platform by the index, and the index by its name.
func TestIndexHasImageForEachPlatform(t *testing.T) {
	output := makeIndex(t, ".")
	folder := t.TempDir()
	files := tar.NewReader(bytes.NewReader(must.ReadFile(t, filepath.Join(output, "hello.tar"))))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(files)
		must.Succeed(t, err)
		file := filepath.Join(folder, header.Name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Succeed(t, os.WriteFile(file, content, 0o600))
	}
	archived, err := layout.ImageIndexFromPath(folder)
	must.Succeed(t, err)
	top, err := archived.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("got manifests %+v (%v), want the image index", top, err)
	}
	names := top.Manifests[0].Annotations
	if names["io.containerd.image.name"] != "registry.example.com/conclave/hello:test" ||
		names["org.opencontainers.image.ref.name"] != "test" {
		t.Errorf("got annotations %v, want the name and the tag", names)
	}
	index, err := archived.ImageIndex(top.Manifests[0].Digest)
	must.Succeed(t, err)
	manifest, err := index.IndexManifest()
	must.Succeed(t, err)
	// skopeo 1.9, that of Debian 12, drops this field when it pushes the index, which changes the digest.
	if raw, err := index.RawManifest(); err != nil || bytes.Contains(raw, []byte("artifactType")) {
		t.Errorf("got index %s (%v), want no artifactType", raw, err)
	}
	var platforms []string
	for _, found := range manifest.Manifests {
		image, err := index.Image(found.Digest)
		must.Succeed(t, err)
		config, err := image.ConfigFile()
		must.Succeed(t, err)
		if config.OS != found.Platform.OS || config.Architecture != found.Platform.Architecture {
			t.Errorf("got an image for %s/%s at the platform %s", config.OS, config.Architecture, found.Platform)
		}
		platforms = append(platforms, found.Platform.String())
		expect.EqualSlicesf(t, unpack(t, image, t.TempDir()), []string{"hello"},
			"%s: files (only hello)", found.Platform)
	}
	expect.EqualSlicesf(t, platforms, []string{"linux/amd64", "linux/arm64"}, "platforms")
	for _, sbom := range []string{"hello-linux-amd64.spdx.json", "hello-linux-arm64.spdx.json"} {
		if !bytes.Contains(must.ReadFile(t, filepath.Join(output, sbom)), []byte(`"conclave-hello"`)) {
			t.Errorf("%s doesn't describe the program", sbom)
		}
	}
}

func TestIndexIsReproducible(t *testing.T) {
	first, second := makeIndex(t, "."), makeIndex(t, copyHello(t))
	for _, name := range []string{"hello.tar", "hello-linux-arm64.spdx.json"} {
		if !bytes.Equal(must.ReadFile(t, filepath.Join(first, name)), must.ReadFile(t, filepath.Join(second, name))) {
			t.Errorf("got two different builds of %s, want identical ones", name)
		}
	}
}

// The Dockerfile builds the same images with Docker, so the values that it repeats must be equal.
func TestDockerfileMatches(t *testing.T) {
	dockerfile := string(must.ReadFile(t, "../../Dockerfile"))
	lines := []string{
		"USER " + user,
		`ENTRYPOINT ["/manager"]`,
		`ENTRYPOINT ["/agent"]`,
		"FROM scratch AS manager",
		"FROM scratch AS agent",
		"-trimpath -buildvcs=false -gcflags " + gobuild.CompilerFlags + " -ldflags \"" +
			gobuild.LinkerFlags + " -X main.version=",
	}
	for key, value := range constantLabels {
		lines = append(lines, key+`="`+value+`"`)
	}
	for _, line := range lines {
		expect.Containsf(t, dockerfile, line, "Dockerfile")
	}
}

// A replaced module has the name of its replacement. The modules ./api and ./client of this repository have the
// program's version.
func TestModulesOfSBOM(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/program"},
		Deps: []*debug.Module{
			{
				Path: "example.com/old", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/a_New", Version: "v1.0.1+incompatible", Sum: "h1:x"},
			},
			{Path: "example.com/program/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./api", Version: "(devel)"}},
		},
	}
	r := recipe{}
	r.Package, r.Version = "./cmd/program", "v2"
	packages, _ := r.sbom(info, "0", "sha256:1")["packages"].([]object)
	must.Equalf(t, len(packages), 4, "packages (the program, the standard library and two modules)")
	got := packages[2]
	if got["name"] != "example.com/a_New" || got["sourceInfo"] != "go.sum h1:x" ||
		got["SPDXID"] != "SPDXRef-Module-example.com-a-New-v1.0.1-incompatible" {
		t.Errorf(
			"got %v, want the name and the checksum of the replacement, and an ID of letters, digits, periods and hyphens", got)
	}
	references, _ := got["externalRefs"].([]object)
	must.Equalf(t, len(references), 1, "references")
	locator := references[0]["referenceLocator"]
	if locator != "pkg:golang/example.com/a_new@v1.0.1%2Bincompatible" {
		t.Errorf("got package URL %s, want one with an escaped version and a lowercase path", locator)
	}
	if got := packages[3]; got["name"] != "example.com/program/api" || got["versionInfo"] != "v2" {
		t.Errorf("got %v, want the module's own path and the version v2", got)
	}
}
