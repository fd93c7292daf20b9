package sim_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// mutantVariable is the environment variable with the number of the mutant that a process checks, or noMutant.
const (
	mutantVariable = "CONCLAVE_MUTANT"
	noMutant       = "none"
)

// mutant is a bug that is injected into the code and that a test must detect.
type mutant struct {
	description string
	// file is below internal. In it, new replaces old.
	file, old, new string
	// check is the pattern of the test that must fail, pkg its package, and wantOutput a part of its output.
	check, pkg, wantOutput string
}

// readMutants returns the mutants of testdata/mutants.txt. Each is a paragraph.
func readMutants(t *testing.T) (all []mutant) {
	t.Helper()
	for paragraph := range strings.SplitSeq(string(must.ReadFile(t, "testdata/mutants.txt")), "\n\n") {
		if strings.HasPrefix(paragraph, "# ") {
			continue
		}
		var m mutant
		for line := range strings.Lines(paragraph) {
			kind, rest, _ := strings.Cut(line, " ")
			switch text := strings.TrimSpace(rest); kind {
			case "file:":
				m.file = text
			case "test:":
				m.pkg, m.check, _ = strings.Cut(text, " ")
			case "says:":
				m.wantOutput = text
			case "-":
				m.old += rest
			case "+":
				m.new += rest
			default:
				must.Equalf(t, m.description, "", "a second description: %s", line)
				m.description = strings.TrimSpace(line)
			}
		}
		m.new = strings.TrimSpace(m.new)
		if m.description == "" || m.file == "" || m.old == "" || m.check == "" || m.wantOutput == "" {
			t.Fatalf("a part is missing: %+v", m)
		}
		all = append(all, m)
	}
	return all
}

// TestMutantsFitTheCode also in short runs, which don't compile them.
func TestMutantsFitTheCode(t *testing.T) {
	for path, f := range mutatedFiles(t, readMutants(t)) {
		if _, err := parser.ParseFile(token.NewFileSet(), path, f.text(), parser.SkipObjectResolution); err != nil {
			t.Error(err)
		}
	}
}

// A test detects each of these bugs, so the checks are able to fail. Without a bug, the same programs pass: with fewer
// cases, because the same tests run completely without mutants.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() || os.Getenv(mutantVariable) != "" {
		t.Skip("skipped in short runs and in the runs that check a mutant")
	}
	all := readMutants(t)
	programs := buildMutants(t, all)
	unchanged := map[string]bool{}
	for number, m := range all {
		if name := m.pkg + " " + m.check; !unchanged[name] {
			unchanged[name] = true
			t.Run("no mutant/"+name, func(t *testing.T) {
				t.Parallel()
				if output, err := m.run(t, programs, noMutant, "-test.short"); err != nil ||
					strings.Contains(output, "no tests to run") {
					t.Errorf("got error %v of %s without a mutant:\n%s", err, m.check, output)
				}
			})
		}
		t.Run(m.description, func(t *testing.T) {
			t.Parallel()
			output, err := m.run(t, programs, fmt.Sprint(number+1))
			switch {
			case err == nil:
				t.Errorf("got no failure of %s, want one", m.check)
			case !strings.Contains(output, "--- FAIL"):
				t.Fatalf("the check did not run: %v\n%s", err, output)
			case !strings.Contains(output, m.wantOutput):
				t.Errorf("got a failure without %q:\n%s", m.wantOutput, output)
			}
		})
	}
}

// run runs the check with the mutant of this number.
func (m mutant) run(t *testing.T, programs, number string, flags ...string) (string, error) {
	t.Helper()
	program := filepath.Join(programs, path.Base(m.pkg)+".test")
	flags = append(flags, "-test.failfast", "-test.timeout=5m", "-test.run", m.check)
	cmd := exec.CommandContext(t.Context(), program, flags...)
	cmd.Dir = absolute(t, m.pkg)
	cmd.Env = append(os.Environ(), mutantVariable+"="+number)
	output, err := cmd.CombinedOutput()
	return string(output), err
}
