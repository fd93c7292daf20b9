package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A demo that is killed while a node is isolated must not break the next one.
func TestStartHealsNodes(t *testing.T) {
	folder := t.TempDir()
	calls, tool := filepath.Join(folder, "calls"), filepath.Join(folder, "cluster")
	script := "#!/bin/sh\necho \"$*\" >>" + calls + "\n[ \"$1\" != heal ]\n" // Without a cluster, heal fails.
	if err := os.WriteFile(tool, []byte(script), 0o700); err != nil {        //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	must.Succeed(t, (&hackCluster{top: folder, tool: tool}).start(t.Context(), io.Discard))
	text := must.ReadFile(t, calls)
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(got) != nodes+1 || got[0] != "heal --name demo node-1" || got[nodes-1] != "heal --name demo node-4" || !strings.HasPrefix(got[nodes], "up ") {
		t.Errorf("got calls %q, want each node healed before up", got)
	}
}
