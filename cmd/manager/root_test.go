package main

import (
	"bytes"
	"testing"

	"github.com/conclave-dev/conclave/internal/command"
)

func TestInvalidFlagsReportOneLine(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("AGENT_IMAGE", "")
	usual := []string{"--namespace", "conclave-system", "--agent-image", "agent:1"}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":     {nil, "--namespace must be set to the manager's namespace: $POD_NAMESPACE is empty"},
		"a bad namespace":  {[]string{"--namespace", "A b"}, `--namespace must be a valid namespace name, got "A b"`},
		"no image":         {[]string{"--namespace", "conclave-system"}, "--agent-image must be set to the agent's image: $AGENT_IMAGE is empty"},
		"no port":          {append(usual, "--webhook-port", "0"), "--webhook-port must be a port from 1 to 65535, got 0"},
		"no number":        {append(usual, "--identity-port", "x"), `--identity-port must be a whole number such as 10, got "x"`},
		"one port for two": {append(usual, "--identity-port", "9443"), "--webhook-port and --identity-port must be different, got 9443 for both"},
		"a level":          {append(usual, "--log-level", "loud"), `--log-level must be debug, info, warn or error, got "loud"`},
		"a user":           {append(usual, "--agent-uid", "root"), `invalid argument "root" for "--agent-uid" flag: it must be a user ID from 1 to 2147483647, or inherit`},
		"a request":        {append(usual, "--agent-cpu-request", "1", "--agent-cpu-limit", "100m"), "--agent-cpu-request must be at most --agent-cpu-limit, got 1 and 100m"},
		"a secret":         {append(usual, "--agent-image-pull-secrets", "a b"), `--agent-image-pull-secrets must be names of Secrets, separated by commas, got "a b"`},
		"a format":         {append(usual, "--log-format", "xml"), `--log-format must be json or text, got "xml"`},
		"an argument":      {[]string{"start"}, `unknown command "start" for conclave-manager; available commands: check-uninstall, version`},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot()
			var stderr bytes.Buffer
			root.SetArgs(tc.args)
			root.SetErr(&stderr)
			if status := run(t.Context(), root); status != command.ExitUsage || stderr.String() != "error: "+tc.want+"\n" {
				t.Errorf("got status %d and %q, want status %d and %q", status, stderr.String(), command.ExitUsage, "error: "+tc.want+"\n")
			}
		})
	}
}
