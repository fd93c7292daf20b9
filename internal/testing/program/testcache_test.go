package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module is one with a test that starts a program, and has that read a file.
var module = map[string]string{
	"go.mod":          "module example.test/relying\n\ngo 1.26\n",
	"go.sum":          "",
	"program/main.go": "package main\n\nimport \"example.test/relying/part\"\n\nfunc main() { part.Act() }\n",
	"part/part.go":    "package part\n\nfunc Act() {}\n",
	"files/deep/one":  "1",
	"other/other.go":  "package other\n",
	"relying_test.go": `package relying

import (
	"testing"

	"example.test/relying/testcache"
)

func TestRelying(t *testing.T) {
	if err := program.DependOnProgram(t.Context(), ".", "./program"); err != nil {
		t.Fatal(err)
	}
	if err := program.DependOnFolder("files"); err != nil {
		t.Fatal(err)
	}
}
`,
}

// write puts a file into a folder. It is of last year: Go caches nothing that
// relies on files of this moment.
func write(t *testing.T, folder, path, content string, age time.Time) {
	t.Helper()
	file := filepath.Join(folder, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for ; file != folder; file = filepath.Dir(file) {
		if err := os.Chtimes(file, age, age); err != nil {
			t.Fatal(err)
		}
	}
}

// TestATestRunsAgainWhenWhatItReliesOnHasChanged, and only then.
func TestATestRunsAgainWhenWhatItReliesOnHasChanged(t *testing.T) {
	folder := t.TempDir()
	age := time.Now().AddDate(-1, 0, 0)
	for path, content := range module {
		write(t, folder, path, content, age)
	}
	own, err := os.ReadFile("testcache.go")
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "testcache/testcache.go", string(own), age)
	cached := func() bool {
		command := exec.CommandContext(t.Context(), "go", "test", ".")
		command.Dir = folder
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		said, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return strings.Contains(string(said), "(cached)")
	}
	cached()
	if !cached() {
		t.Fatal("nothing has changed, and it runs again")
	}
	write(t, folder, "other/other.go", "package other\n\nconst One = 1\n", age)
	if !cached() {
		t.Error("something else has changed, and it runs again")
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
			t.Errorf("%s has changed, and it doesn't run again", path)
		}
	}
}

// TestWhatIsNotThereCannotBeReliedOn.
func TestWhatIsNotThereCannotBeReliedOn(t *testing.T) {
	if err := DependOnProgram(t.Context(), "../../..", "./cmd/none"); err == nil {
		t.Error("a program that isn't there is relied on")
	}
	if err := DependOnFolder("none"); err == nil {
		t.Error("a folder that isn't there is relied on")
	}
}
