package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// module contains a test that depends on a program and on a folder.
var module = map[string]string{
	"go.mod":          "module example.test/dependent\n\ngo 1.26\n",
	"go.sum":          "",
	"program/main.go": "package main\n\nimport \"example.test/dependent/part\"\n\nfunc main() { part.Act() }\n",
	"part/part.go":    "package part\n\nfunc Act() {}\n",
	"files/deep/one":  "1",
	"other/other.go":  "package other\n",
	"dependent_test.go": `package dependent

import (
	"testing"

	"example.test/dependent/testcache"
)

func TestDependent(t *testing.T) {
	if err := program.DependOnProgram(t.Context(), ".", "./program"); err != nil {
		t.Fatal(err)
	}
	if err := program.DependOnFolder("files"); err != nil {
		t.Fatal(err)
	}
}
`,
}

// write creates a file with an old modification time: Go doesn't cache a test that depends on files modified just now.
func write(t *testing.T, folder, path, content string, age time.Time) {
	t.Helper()
	file := filepath.Join(folder, path)
	must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	for ; file != folder; file = filepath.Dir(file) {
		must.Succeed(t, os.Chtimes(file, age, age))
	}
}

func TestChangedDependencyInvalidatesCachedTest(t *testing.T) {
	folder := t.TempDir()
	age := time.Now().AddDate(-1, 0, 0)
	for path, content := range module {
		write(t, folder, path, content, age)
	}
	own := must.ReadFile(t, "testcache.go")
	write(t, folder, "testcache/testcache.go", string(own), age)
	cached := func() bool {
		command := exec.CommandContext(t.Context(), "go", "test", ".")
		command.Dir = folder
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return strings.Contains(string(output), "(cached)")
	}
	cached()
	if !cached() {
		t.Fatal("the test ran again although nothing changed")
	}
	write(t, folder, "other/other.go", "package other\n\nconst One = 1\n", age)
	if !cached() {
		t.Error("the test ran again although only an unrelated file changed")
	}
	for path, content := range map[string]string{
		"part/part.go":      "package part\n\nfunc Act() { println() }\n",
		"program/beside.go": "package main\n",
		"files/deep/one":    "one",
		"files/deep/two":    "2",
		"go.sum":            "\n",
	} {
		write(t, folder, path, content, age)
		if cached() {
			t.Errorf("the test came from the cache although %s changed", path)
		}
	}
}

func TestMissingDependencyIsAnError(t *testing.T) {
	if err := DependOnProgram(t.Context(), "../../..", "./cmd/none"); err == nil {
		t.Error("DependOnProgram accepted a missing program")
	}
	if err := DependOnFolder("none"); err == nil {
		t.Error("DependOnFolder accepted a missing folder")
	}
}
