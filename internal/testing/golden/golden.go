// Package golden compares the outputs of tests with files. With the flag -update, tests
// rewrite these files.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Compare compares an output with the content of a file.
func Compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want := must.ReadFile(t, path)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(-update rewrites it)", path, got, want)
	}
}
