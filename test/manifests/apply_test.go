package manifests_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSamplesAreUnchangedWhenAppliedAgain: a default of the schema that kubectl apply or Argo CD takes for a difference would make
// them apply an object again and again.
func TestSamplesAreUnchangedWhenAppliedAgain(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("got samples %q, error %v", samples, err)
	}
	c := newTargetCluster(t)
	c.kubectlOn(t, "apply", "--server-side", "-k", filepath.Join(root, "config/crd"))
	for _, sample := range samples {
		t.Run(filepath.Base(sample), func(t *testing.T) {
			c.kubectlOn(t, "apply", "-n", "default", "-f", sample)
			for line := range strings.Lines(c.kubectlOn(t, "apply", "-n", "default", "-f", sample)) {
				if !strings.HasSuffix(line, " unchanged\n") {
					t.Errorf("applied again: got %q, want it unchanged", line)
				}
			}
			versions := []string{"get", "-n", "default", "-f", sample, "-o", "custom-columns=:.kind,:.metadata.name,:.metadata.resourceVersion"}
			c.kubectlOn(t, "apply", "--server-side", "--force-conflicts", "-n", "default", "-f", sample)
			before := c.kubectlOn(t, versions...)
			c.kubectlOn(t, "apply", "--server-side", "-n", "default", "-f", sample)
			if after := c.kubectlOn(t, versions...); after != before {
				t.Errorf("applied again at the server: got versions\n%s\nwant\n%s", after, before)
			}
		})
	}
}

func (c *targetCluster) kubectlOn(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), c.kubectl, append([]string{"--kubeconfig", c.kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v\n%s", arguments, err, output)
	}
	return string(output)
}
