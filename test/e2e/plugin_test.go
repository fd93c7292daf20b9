package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// buildPlugin builds the kubectl plugin.
func (c *cluster) buildPlugin() {
	c.t.Helper()
	c.plugin = filepath.Join(c.t.TempDir(), "kubectl-conclave")
	run(c.t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", c.plugin, repositoryRoot+"/cmd/kubectl-conclave")
}

// runPlugin runs a command of the plugin in the namespace of the samples, and returns its output.
func (e env) runPlugin(arguments ...string) []byte {
	e.t.Helper()
	return e.runPluginIn(samplesNamespace, arguments...)
}

func (e env) runPluginIn(namespace string, arguments ...string) []byte {
	e.t.Helper()
	command := exec.Command(e.plugin, append(arguments, "--namespace", namespace)...)
	command.Env = append(os.Environ(), e.environment...)
	output, err := command.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		e.t.Fatalf("%v: %v\n%s%s", arguments, err, output, failed.Stderr)
	}
	must.Succeed(e.t, err)
	return output
}

// testPlugin runs the commands of the plugin that need a kubelet: explain reads the journals of the agents through forwarded ports.
func testPlugin(e env) {
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	e.t.Logf("%s", e.runPlugin("explain", "ledger"))
	var explained struct {
		Election *struct {
			Coordinator string
			Steps       []struct{ Agent string }
			Missing     []struct{ Agent, Reason string }
		}
	}
	must.Succeed(e.t, json.Unmarshal(e.runPlugin("explain", "ledger", "-o", "json"), &explained))
	if last := explained.Election; last == nil || last.Coordinator != highest || len(last.Steps) == 0 {
		e.t.Errorf("got transcript %+v, want that of the election of %s", last, highest)
	}
	e.t.Logf("%s", e.runPlugin("check", "ledger")) // fails if there is a problem

	archive := filepath.Join(e.t.TempDir(), "report.tar.gz")
	e.t.Logf("%s", e.runPlugin("report", "ledger", "--file", archive))
	for _, name := range []string{"journals/" + highest + ".json", "logs/" + highest + ".log", "status.txt"} {
		requireContains(e.t, run(e.t, "tar", "--extract", "--to-stdout", "--file", archive, "report/"+name), highest)
	}
}
