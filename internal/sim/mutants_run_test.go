package sim_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test detects each of these bugs, so the checks are able to fail.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() || os.Getenv("CONCLAVE_MUTANT") != "" {
		t.Skip("skipped in short runs and in the runs that check a mutant")
	}
	for _, m := range slices.Concat(mutants, termMutants, electionMutants, adaptMutants, settingsMutants) {
		t.Run(m.description, func(t *testing.T) {
			t.Parallel()
			output, err := m.run(t)
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

// run runs the check on the code with the bug, by an overlay of the file.
func (m mutant) run(t *testing.T) (string, error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%s contains %q %d times, want once: update the mutant", m.file, m.old, n)
	}
	mutated := filepath.Join(t.TempDir(), "mutated.go")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout=5m", "-overlay", overlay, "-run", m.check, "../"+cmp.Or(m.pkg, "sim"))
	cmd.Env = append(os.Environ(), "CONCLAVE_MUTANT=1")
	output, err := cmd.CombinedOutput()
	return string(output), err
}
