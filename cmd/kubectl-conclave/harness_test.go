package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// result is the output of a command and its exit status.
type result struct {
	stdout, stderr string
	status         int
}

// runCommand runs the command in this process. If sample isn't nil, it replaces
// sim.Sample.
func runCommand(t *testing.T, sample sampler, args ...string) result {
	t.Helper()
	root := newRoot()
	if sample != nil {
		simulate, _, _ := root.Find([]string{"simulate"})
		root.RemoveCommand(simulate)
		root.AddCommand(newSimulate(sample))
	}
	var stdout, stderr bytes.Buffer
	root.SetArgs(append([]string{}, args...)) // With nil, cobra uses the arguments of the test binary.
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status := run(t.Context(), root)
	return result{stdout: stdout.String(), stderr: stderr.String(), status: status}
}

// runWithStdin runs the command with this stdin.
func runWithStdin(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	root := newRoot()
	var stdout, stderr bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status := run(t.Context(), root)
	return result{stdout: stdout.String(), stderr: stderr.String(), status: status}
}

// checkGolden compares an output with a golden file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(-update rewrites it)", path, got, want)
	}
}

// awaitTimeout limits the waits of tests.
const awaitTimeout = 20 * time.Second

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
