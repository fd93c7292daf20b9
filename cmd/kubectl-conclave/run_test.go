package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// told is what a command said, and its exit status.
type told struct {
	out, err string
	status   int
}

// conclave runs the command in this process, with sample in place of sim.Sample
// if it isn't nil.
func conclave(t *testing.T, sample sampler, args ...string) told {
	t.Helper()
	root := newRoot()
	if sample != nil {
		simulate, _, _ := root.Find([]string{"simulate"})
		root.RemoveCommand(simulate)
		root.AddCommand(newSimulate(sample))
	}
	var out, err bytes.Buffer
	root.SetArgs(append([]string{}, args...)) // nil would be those of the test
	root.SetOut(&out)
	root.SetErr(&err)
	status := run(t.Context(), root)
	return told{out: out.String(), err: err.String(), status: status}
}

// golden compares what a command said with what was reviewed.
func golden(t *testing.T, name, got string) {
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
		t.Errorf("%s is now\n%s\nwant\n%s\n(-update writes it anew)", path, got, want)
	}
}
