package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestClientsCanBeImported imports the packages as they are in a release.
func TestClientsCanBeImported(t *testing.T) {
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1"
	must.Succeed(t, r.writeClients())
	run := func(t *testing.T, folder, environment string, command ...string) string {
		t.Helper()
		if _, err := exec.LookPath(command[0]); err != nil {
			need.Skip(t, command[0])
		}
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir, c.Env = folder, append(os.Environ(), environment)
		output, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", command, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	t.Run("python", func(t *testing.T) {
		// Python imports from a zip archive, too.
		got := run(t, r.output, "PYTHONPATH="+filepath.Join(r.output, "conclave-0.2.0rc1-py3-none-any.whl"), "python3", "-c", `
import base64, conclave.aio, hashlib, importlib.metadata
package = importlib.metadata.distribution("conclave")
for file in package.files:
    if file.hash:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
        assert digest == file.hash.value, file
print(conclave.run.__name__, conclave.aio.run.__name__, package.version, package.metadata["Requires-Python"], len(package.files))`)
		expect.Equal(t, got, "run run 0.2.0rc1 >=3.9 10")
	})
	t.Run("typescript", func(t *testing.T) {
		folder := t.TempDir()
		run(t, folder, "", "tar", "-xzf", filepath.Join(r.output, "conclave-dev-client-0.2.0-rc.1.tgz"))
		got := run(t, folder, "", "node", "-e", `
import("./package/index.js").then((m) => console.log(Object.keys(m).join(), require("./package/package.json").version))`)
		expect.Equal(t, got, "AgentError,TenureEnded,health,leader,run,watch 0.2.0-rc.1")
	})
}
