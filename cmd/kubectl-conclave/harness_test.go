package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// result is the output of a command and its exit status.
type result struct {
	stdout, stderr string
	status         int
}

// runCommand runs the command in this process. If sample isn't nil, it replaces
// sim.Sample.
func runCommand(t *testing.T, sample simulate.Sampler, args ...string) result {
	t.Helper()
	root := newRoot()
	if sample != nil {
		original, _, _ := root.Find([]string{"simulate"})
		root.RemoveCommand(original)
		root.AddCommand(simulate.New(sample))
	}
	var stdout, stderr bytes.Buffer
	root.SetArgs(append([]string{}, args...)) // With nil, cobra uses the arguments of the test binary.
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status := run(t.Context(), root)
	return result{stdout: stdout.String(), stderr: stderr.String(), status: status}
}

// checkGolden compares an output with a golden file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), got)
}

// awaitTimeout limits the waits of tests.
const awaitTimeout = testwait.Limit

// await waits for the next value of a channel.
func await[T any](t *testing.T, values <-chan T, what string) (value T) {
	t.Helper()
	select {
	case next, ok := <-values:
		if !ok {
			t.Fatalf("channel closed, want %s", what)
		}
		value = next
	case <-time.After(awaitTimeout):
		t.Fatalf("got nothing within %s, want %s", awaitTimeout, what)
	}
	return value
}
