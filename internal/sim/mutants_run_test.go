package sim_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutantVariable is the environment variable with the number of the mutant that a process checks, or noMutant.
const (
	mutantVariable = "CONCLAVE_MUTANT"
	noMutant       = "none"
)

func allMutants() []mutant {
	return slices.Concat(mutants, termMutants, electionMutants, growMutants, settingsMutants, outageMutants,
		memoryMutants, tenureMutants)
}

// TestMutantsFitTheCode also in short runs, which don't compile them.
func TestMutantsFitTheCode(t *testing.T) {
	for path, f := range mutatedFiles(t, allMutants()) {
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
	all := allMutants()
	programs := buildMutants(t, all)
	unchanged := map[string]bool{}
	for number, m := range all {
		if name := m.folder() + " " + m.check; !unchanged[name] {
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
	program := filepath.Join(programs, path.Base(m.folder())+".test")
	flags = append(flags, "-test.failfast", "-test.timeout=5m", "-test.run", m.check)
	cmd := exec.CommandContext(t.Context(), program, flags...)
	cmd.Dir = absolute(t, m.folder())
	cmd.Env = append(os.Environ(), mutantVariable+"="+number)
	output, err := cmd.CombinedOutput()
	return string(output), err
}
