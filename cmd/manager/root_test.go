package main

import (
	"bytes"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestInvalidFlagsReportOneLine: the file has the arguments, one in a line.
func TestInvalidFlagsReportOneLine(t *testing.T) {
	datadriven.RunTest(t, "testdata/usage.txt", func(t *testing.T, d *datadriven.TestData) string {
		return refusal(t, "conclave-system", "agent:1", strings.Split(d.Input, "\n"))
	})
}

func TestInvalidEnvironmentReportsOneLine(t *testing.T) {
	expect.Equal(t, refusal(t, "", "agent:1", []string{}),
		"error: "+"the environment variable POD_NAMESPACE must be the manager's namespace, and is empty"+"\n")
	expect.Equal(t, refusal(t, "A b", "agent:1", []string{}),
		"error: "+`the environment variable POD_NAMESPACE must be a valid namespace name, got "A b"`+"\n")
	expect.Equal(t, refusal(t, "conclave-system", " ", []string{}),
		"error: "+"the environment variable AGENT_IMAGE must be the agent's image, and is empty"+"\n")
}

// refusal returns what the manager prints when it refuses to start.
func refusal(t *testing.T, namespace, image string, args []string) string {
	t.Helper()
	t.Setenv("POD_NAMESPACE", namespace)
	t.Setenv("AGENT_IMAGE", image)
	root := newRoot()
	var stderr bytes.Buffer
	root.SetArgs(args)
	root.SetErr(&stderr)
	expect.Equalf(t, command.Execute(t.Context(), root), command.ExitUsage, "%q: exit status", args)
	return stderr.String()
}

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot, []string{"docs/configure.md"}, "manager")
}

func TestMemoryLimitOfTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, c := range []struct {
		limit, own string
		want       int64
	}{
		{"536870912", "", 357913940},
		{"536870912", "100MiB", math.MaxInt64},
		{"", "", math.MaxInt64},
		{"512Mi", "", math.MaxInt64}, // The kubelet gives bytes.
		{"0", "", math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("MEMORY_LIMIT", c.limit)
		t.Setenv("GOMEMLIMIT", c.own)
		limitMemory()
		expect.Equalf(t, debug.SetMemoryLimit(-1), c.want,
			"with MEMORY_LIMIT=%s and GOMEMLIMIT=%s: bytes", c.limit, c.own)
	}
}
