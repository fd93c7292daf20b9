package e2e

import (
	"path/filepath"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// namespace enforces the restricted Pod Security Standard, which our images must meet.
const namespace = "conclave-e2e"

// TestInCluster runs most tests that need a cluster as subtests, which share the operator.
func TestInCluster(t *testing.T) {
	c := newCluster(t)
	// It waits for a signal.
	pause, err := filepath.Abs(filepath.Join(repositoryRoot, "hack", "kubernetes"))
	must.Succeed(t, err)
	c.load(buildImage(t, "./pause", "conclave/pause:e2e", "-source", pause))
	c.createNamespace(namespace)
	for _, part := range []struct {
		name string
		test func(*cluster)
	}{
		{"Pod Security rejects pods that are not restricted", testPodSecurity},
		{"the operator coordinates the samples despite faults", testOperator},
		{"the pods of the example elect a coordinator despite faults", testExample},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(c.withT(t)) })
	}
}

// testPodSecurity checks that Pod Security is enforced. Otherwise, it would prove nothing that our pods run.
func testPodSecurity(c *cluster) {
	output, err := c.tryKubectl("run", "anything", "--namespace", namespace, "--image", "any/thing:1", "--dry-run=server")
	if err == nil {
		c.t.Errorf("a pod without a security context was accepted: %s", output)
	}
	requireContains(c.t, output, `violates PodSecurity "restricted`)
}
