package controllerruntime

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestRecipe runs the program of docs/recipes/operator.md: it goes on after a tenure, and leads again.
func TestRecipe(t *testing.T) {
	e := newEnv(t, "Majority")
	_, source, _ := strings.Cut(string(must.ReadFile(t, "../../docs/recipes/operator.md")), "\n```go\n")
	source, _, _ = strings.Cut(source, "\n```\n")
	file := filepath.Join(t.TempDir(), "main")
	must.Succeed(t, os.WriteFile(file+".go", []byte(source), 0o600))
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, file+".go").CombinedOutput()
	must.Succeedf(t, err, "%s", output)
	for _, member := range replicas {
		e.launch(exec.Command(file), "http://"+e.Agent(member).API, member, "KUBECONFIG="+e.kubeconfig)
	}
	reconciled := func(member string) int { return e.managers[member].log.Count("reconciled default/work with token ") }
	first := -1
	testwait.Until(t, "a process reconciles", func() bool {
		first = slices.IndexFunc(replicas, func(member string) bool { return reconciled(member) > 0 })
		return first >= 0
	})
	for _, leader := range []string{replicas[first], other(replicas[first])} {
		next, before := other(leader), reconciled(other(leader))
		e.stepDown(leader)
		testwait.Until(t, next+" reconciles", func() bool { return reconciled(next) > before })
	}
}
