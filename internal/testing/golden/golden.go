// Package golden compares the outputs of tests with files. With the flag -update, tests rewrite these files.
package golden

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// Cases are the expected outputs of the cases of a test, in a file that has a section for each: its name after "## ",
// then the output.
type Cases struct {
	path      string
	want, got map[string]string
}

// Open reads the cases. When the test ends, each section must have been compared.
func Open(t *testing.T, path string) *Cases {
	t.Helper()
	c := &Cases{path: path, want: map[string]string{}, got: map[string]string{}}
	text, err := os.ReadFile(path)
	if !*update {
		must.Succeed(t, err)
	}
	for section := range strings.SplitSeq("\n"+string(text), "\n## ") {
		if name, output, ok := strings.Cut(section, "\n"); ok && name != "" {
			c.want[name] = strings.TrimSpace(output)
		}
	}
	t.Cleanup(func() { c.end(t) })
	return c
}

// Compare compares the output of a case with its section.
func (c *Cases) Compare(t *testing.T, name, got string) {
	t.Helper()
	c.got[name] = strings.TrimSpace(got)
	if want, ok := c.want[name]; !*update && (!ok || c.got[name] != want) {
		t.Errorf("%q in %s: got\n%s\nwant\n%s\n(-update rewrites it)", name, c.path, got, want)
	}
}

// end rewrites the file, or checks that no section is left over. If -run selected some cases, the others remain.
func (c *Cases) end(t *testing.T) {
	t.Helper()
	all := maps.Clone(c.got)
	for name, want := range c.want {
		if _, compared := c.got[name]; !compared && flag.Lookup("test.run").Value.String() != "" {
			all[name] = want
		} else if !compared && !*update {
			t.Errorf("%s has the section %q, which no case compares", c.path, name)
		}
	}
	if !*update {
		return
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "## %s\n%s\n\n", name, all[name])
	}
	must.Succeed(t, os.WriteFile(c.path, []byte(strings.TrimSpace(text.String())+"\n"), 0o600))
}
