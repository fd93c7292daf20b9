package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/conclave-dev/conclave/hack/internal/gobuild"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const tag = "conclave/hello:test"

// makeHello builds the image of testdata/hello from the sources in a directory and returns the paths of the output.
func makeHello(t *testing.T, source string) (archive, sbom string) {
	t.Helper()
	output := t.TempDir()
	var stdout bytes.Buffer
	err := run(t.Context(), []string{
		"-source", source, "-package", "./testdata/hello", "-version", "test", "-tag", tag, "-output", output,
	}, &stdout)
	must.Succeed(t, err)
	return filepath.Join(output, "hello.tar"), filepath.Join(output, "hello.spdx.json")
}

func load(t *testing.T, archive string) v1.Image {
	t.Helper()
	image, err := tarball.ImageFromPath(archive, nil)
	must.Succeed(t, err)
	return image
}

func TestImageRunsAsNonRootUser(t *testing.T) {
	archive, _ := makeHello(t, ".")
	file, err := load(t, archive).ConfigFile()
	must.Succeed(t, err)
	config := file.Config
	if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/hello"}) || len(config.Env) != 0 {
		t.Errorf("got config %+v, want the user, the entrypoint and no environment", config)
	}
	expect.Equalf(t, config.Labels["org.opencontainers.image.version"], "test", "version label")
	if file.OS != "linux" || file.Architecture != runtime.GOARCH {
		t.Errorf("got platform %s/%s, want linux and that of the test", file.OS, file.Architecture)
	}
}

// copyHello copies the sources of testdata/hello and returns the folder that replaces this one.
func copyHello(t *testing.T) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "elsewhere")
	for _, file := range []string{"go.mod", "go.sum", "api/go.mod", "client/go.mod", "hack/image/testdata/hello/main.go"} {
		to := filepath.Join(copied, file)
		must.Succeed(t, os.MkdirAll(filepath.Dir(to), 0o755))
		must.Succeed(t, os.WriteFile(to, must.ReadFile(t, filepath.Join("../..", file)), 0o600))
	}
	return filepath.Join(copied, "hack/image")
}

// Builds of the same sources in different directories are identical.
func TestBuildsAreReproducible(t *testing.T) {
	archive1, sbom1 := makeHello(t, ".")
	archive2, sbom2 := makeHello(t, copyHello(t))
	for _, pair := range [][2]string{{archive1, archive2}, {sbom1, sbom2}} {
		a, b := must.ReadFile(t, pair[0]), must.ReadFile(t, pair[1])
		if !bytes.Equal(a, b) {
			t.Errorf("got two different builds of %s, want identical ones", filepath.Base(pair[0]))
		}
	}
}

func TestSourceDateSetsImageDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	archive, _ := makeHello(t, ".")
	file, err := load(t, archive).ConfigFile()
	must.Succeed(t, err)
	expect.Equalf(t, file.Created.UTC().Format("2006-01-02"), "2026-01-01", "date")
}

func TestSBOMNamesEveryModule(t *testing.T) {
	_, sbom := makeHello(t, ".")
	var document struct {
		Packages      []struct{ Name string }
		Relationships []any
	}
	must.Succeed(t, json.Unmarshal(must.ReadFile(t, sbom), &document))
	names := make([]string, 0, len(document.Packages))
	for _, p := range document.Packages {
		names = append(names, p.Name)
	}
	for _, want := range []string{"conclave-hello", "stdlib", "github.com/google/go-containerregistry"} {
		if !slices.Contains(names, want) {
			t.Errorf("got packages %q, want %s among them", names, want)
		}
	}
	if len(document.Relationships) != len(document.Packages)+1 {
		t.Errorf("got %d packages and %d relationships, want one more relationship", len(document.Packages),
			len(document.Relationships))
	}
}

func TestInvalidArguments(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{"-package and -tag must be set", "-package ./testdata/hello"},
		{"-platform must be os/architecture", "-package ./testdata/hello -tag a:b -platform linux"},
		{"-platform must be os/architecture", "-package ./testdata/hello -tag a:b -platform linux/amd64,"},
		{"invalid -tag", "-package ./testdata/hello -tag A:b"},
		{"go build ./nowhere", "-package ./nowhere -tag a:b"},
	} {
		args := append(strings.Fields(c.args), "-output", t.TempDir())
		expect.ErrorContainsf(t, run(t.Context(), args, io.Discard), c.want, "%s: error", c.args)
	}
}

// unpack writes the image's files to a directory and returns their names.
func unpack(t *testing.T, image v1.Image, dir string) []string {
	t.Helper()
	layers, err := image.Layers()
	must.Succeed(t, err)
	var names []string
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		must.Succeed(t, err)
		names = append(names, extract(t, content, dir)...)
		must.Succeed(t, content.Close())
	}
	return names
}

func extract(t *testing.T, content io.Reader, dir string) (names []string) {
	t.Helper()
	files := tar.NewReader(content)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		must.Succeed(t, err)
		data, err := io.ReadAll(files)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(dir, header.Name), data, header.FileInfo().Mode()))
		names = append(names, header.Name)
	}
}

func TestTitle(t *testing.T) {
	for path, want := range map[string]string{
		"./cmd/manager":          "conclave-manager",
		"./cmd/agent":            "conclave-agent",
		"./cmd/kubectl-conclave": "kubectl-conclave",
	} {
		expect.Equalf(t, (recipe{Program: gobuild.Program{Package: path}}).Title(), want, "%s: title", path)
	}
}
