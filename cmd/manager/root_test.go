package main

import (
	"bytes"
	"math"
	"runtime/debug"
	"testing"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestInvalidFlagsReportOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no port":          {[]string{"--webhook-port", "0"}, "--webhook-port must be a port from 1 to 65535, got 0"},
		"no number":        {[]string{"--identity-port", "x"}, `--identity-port must be a whole number such as 10, got "x"`},
		"one port for two": {[]string{"--identity-port", "9443"}, "--webhook-port and --identity-port must be different, got 9443 for both"},
		"a level":          {[]string{"--log-level", "loud"}, `--log-level must be debug, info, warn or error, got "loud"`},
		"a user":           {[]string{"--agent-uid", "root"}, `invalid argument "root" for "--agent-uid" flag: it must be a user ID from 1 to 2147483647, or inherit`},
		"a request":        {[]string{"--agent-cpu-request", "1", "--agent-cpu-limit", "100m"}, "--agent-cpu-request must be at most --agent-cpu-limit, got 1 and 100m"},
		"a secret":         {[]string{"--agent-image-pull-secrets", "a b"}, `--agent-image-pull-secrets must be names of Secrets, separated by commas, got "a b"`},
		"an argument":      {[]string{"start"}, `unknown command "start" for conclave-manager; available commands: check-uninstall, version`},
	} {
		t.Run(name, func(t *testing.T) { checkRefused(t, "conclave-system", "agent:1", tc.args, tc.want) })
	}
}

func TestInvalidEnvironmentReportsOneLine(t *testing.T) {
	checkRefused(t, "", "agent:1", []string{}, "the environment variable POD_NAMESPACE must be the manager's namespace, and is empty")
	checkRefused(t, "A b", "agent:1", []string{}, `the environment variable POD_NAMESPACE must be a valid namespace name, got "A b"`)
	checkRefused(t, "conclave-system", " ", []string{}, "the environment variable AGENT_IMAGE must be the agent's image, and is empty")
}

// checkRefused checks that the manager refuses to start, with one line.
func checkRefused(t *testing.T, namespace, image string, args []string, want string) {
	t.Helper()
	t.Setenv("POD_NAMESPACE", namespace)
	t.Setenv("AGENT_IMAGE", image)
	root := newRoot()
	var stderr bytes.Buffer
	root.SetArgs(args)
	root.SetErr(&stderr)
	if status := command.Execute(t.Context(), root); status != command.ExitUsage || stderr.String() != "error: "+want+"\n" {
		t.Errorf("got status %d and %q, want status %d and %q", status, stderr.String(), command.ExitUsage, "error: "+want+"\n")
	}
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
