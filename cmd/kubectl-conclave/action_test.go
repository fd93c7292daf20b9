package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// runAction runs the action for GitHub's workflows as a job does, and returns the job's summary and the log.
func runAction(t *testing.T, arguments, budgets string) (summary, log string, err error) {
	t.Helper()
	const script = "../../.github/actions/chaos/run"
	_, err = os.ReadFile(script) // Go's test cache then depends on it.
	must.Succeed(t, err)
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), script)
	command.Env = append(os.Environ(), "ARGUMENTS="+arguments, "BUDGETS="+budgets, "RUNNER_TEMP="+folder, "GITHUB_STEP_SUMMARY="+filepath.Join(folder, "summary"),
		"KUBECONFIG="+filepath.Join(folder, "none"))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err = command.Run()
	text, readErr := os.ReadFile(filepath.Join(folder, "summary"))
	must.Succeed(t, readErr)
	return string(text), stderr.String(), err
}

func TestActionPassesArgumentsAndReport(t *testing.T) {
	summary, log, err := runAction(t, "--leader 'lease/web' --help", "")
	if err != nil || !strings.Contains(summary, "--observe") {
		t.Errorf("got error %v, log %q and summary %q, want the help in the summary", err, log, summary)
	}
	_, log, err = runAction(t, "--leader lease/web --kinds pod", "p99(elected) > 20s\n\n  three-leaders > 0\n")
	if err == nil || !strings.Contains(log, "three-leaders") || strings.Contains(log, "20s") {
		t.Errorf("got error %v and log %q, want that the second budget is refused", err, log)
	}
	_, log, err = runAction(t, "--leader 'exec:echo $(id)' --selector app=web --colour", "")
	if err == nil || !strings.Contains(log, "unknown flag: --colour") {
		t.Errorf("got error %v and log %q, want that the unknown flag is refused", err, log)
	}
	_, log, err = runAction(t, "--leader lease/web\n  --kinds pod", "p99(elected) > 20s\nflaps > 0")
	if err == nil || strings.Contains(log, "flaps") || !strings.Contains(log, "cluster") {
		t.Errorf("got error %v and log %q, want that only the cluster is missing", err, log)
	}
}
