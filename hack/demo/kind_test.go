package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// recordKind puts programs into PATH that record their arguments instead of talking to a kind cluster.
func recordKind(t *testing.T, currentContext string) (recorded func() string) {
	t.Helper()
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	for _, program := range []string{"kind", "docker", "kubectl", "make"} {
		script := "#!/bin/sh\nprintf '%s\\n' \"" + program + " $*\" >>" + log + "\n[ \"$*\" != 'config current-context' ] || echo " + currentContext + "\n"
		must.Succeed(t, os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755))
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("CLUSTER", "kind")
	return func() string {
		content := must.ReadFile(t, log)
		return string(content)
	}
}

func TestKindCommands(t *testing.T) {
	recorded := recordKind(t, "kind-test")
	c, err := findCluster(t.Context(), t.TempDir())
	must.Succeed(t, err)
	ctx := context.Background()
	out := t.Output()
	if err := errors.Join(
		c.build(ctx, out), c.start(ctx, out), c.load(ctx, "agent.tar"), c.killAgent(ctx, "p-3", "test-worker"),
		c.partition(ctx, "test-worker"), c.heal(ctx, "test-worker"), c.remove(ctx, out),
	); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("testdata", "kind.txt"), recorded())
}

func TestFindClusterSaysWhatToDo(t *testing.T) {
	recordKind(t, "production")
	for cluster, want := range map[string]string{
		"kind": "the current kubeconfig context isn't a kind cluster: create one with kind create cluster",
		"k3s":  `CLUSTER must be hack or kind, got "k3s"`,
	} {
		t.Setenv("CLUSTER", cluster)
		if _, err := findCluster(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CLUSTER=%s: got %v, want %s", cluster, err, want)
		}
	}
}
