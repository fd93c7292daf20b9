package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
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

	"github.com/conclave-dev/conclave/hack/image/spdx"
)

const tag = "conclave/hello:test"

// makeHello makes the image of testdata/hello from the sources in a folder and returns where it is.
func makeHello(t *testing.T, source string) (archive, bill string) {
	t.Helper()
	output := t.TempDir()
	var stdout bytes.Buffer
	err := run(t.Context(), []string{
		"-source", source, "-package", "./testdata/hello", "-version", "test", "-tag", tag, "-output", output,
	}, &stdout)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(output, "hello.tar"), filepath.Join(output, "hello.spdx.json")
}

func load(t *testing.T, archive string) v1.Image {
	t.Helper()
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestImageHasTheBinaryAndNothingElse(t *testing.T) {
	archive, _ := makeHello(t, ".")
	files := unpack(t, load(t, archive), t.TempDir())
	if !slices.Equal(files, []string{"hello"}) {
		t.Errorf("the image has the files %q", files)
	}
}

func TestImageRunsAsNobody(t *testing.T) {
	archive, _ := makeHello(t, ".")
	file, err := load(t, archive).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config := file.Config
	if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/hello"}) || len(config.Env) != 0 {
		t.Errorf("config: %+v", config)
	}
	if got := config.Labels["org.opencontainers.image.version"]; got != "test" {
		t.Errorf("version label: %q", got)
	}
	if file.OS != "linux" || file.Architecture != runtime.GOARCH {
		t.Errorf("platform: %s/%s", file.OS, file.Architecture)
	}
}

func TestBinaryIsStatic(t *testing.T) {
	archive, _ := makeHello(t, ".")
	folder := t.TempDir()
	unpack(t, load(t, archive), folder)
	binary, err := elf.Open(filepath.Join(folder, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, part := range binary.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the binary wants a dynamic linker, and an empty base has none")
		}
	}
}

// The same sources give the same bytes, whatever folder they are in.
func TestSameInputSameDigest(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(copied, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	here, hereBill := makeHello(t, ".")
	there, thereBill := makeHello(t, copied)
	for _, pair := range [][2]string{{here, there}, {hereBill, thereBill}} {
		a, b := read(t, pair[0]), read(t, pair[1])
		if !bytes.Equal(a, b) {
			t.Errorf("two builds of %s differ", filepath.Base(pair[0]))
		}
	}
}

func TestSourceDateIsTheImagesDate(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	archive, _ := makeHello(t, ".")
	file, err := load(t, archive).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := file.Created.UTC().Format("2006-01-02"); got != "2026-01-01" {
		t.Errorf("created %s", got)
	}
}

func TestBillNamesEveryModule(t *testing.T) {
	_, bill := makeHello(t, ".")
	var document spdx.Document
	if err := json.Unmarshal(read(t, bill), &document); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(document.Packages))
	for _, p := range document.Packages {
		names = append(names, p.Name)
	}
	for _, want := range []string{"conclave-hello", "stdlib", "github.com/google/go-containerregistry"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s isn't among %q", want, names)
		}
	}
	if len(document.Relationships) != len(document.Packages)+1 {
		t.Errorf("%d packages, %d relationships", len(document.Packages), len(document.Relationships))
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{"-package and -tag must be given", "-package ./testdata/hello"},
		{"a platform is os/architecture", "-package ./testdata/hello -tag a:b -platform linux"},
		{"the image's tag", "-package ./testdata/hello -tag A:b"},
		{"go build ./nowhere", "-package ./nowhere -tag a:b"},
	} {
		args := append(strings.Fields(c.args), "-output", t.TempDir())
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.args, err, c.want)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack writes the image's files into a folder and returns their names.
func unpack(t *testing.T, image v1.Image, folder string) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, extract(t, content, folder)...)
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func extract(t *testing.T, content io.Reader, folder string) (names []string) {
	t.Helper()
	files := tar.NewReader(content)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, header.Name), data, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

func TestTitle(t *testing.T) {
	for path, want := range map[string]string{
		"./cmd/manager":          "conclave-manager",
		"./cmd/agent":            "conclave-agent",
		"./cmd/kubectl-conclave": "kubectl-conclave",
	} {
		if got := (recipe{Package: path}).Title(); got != want {
			t.Errorf("%s is called %q, not %q", path, got, want)
		}
	}
}
